"""Acknowledgements: what they change, what is written, and what is refused with which words."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.core.share.errors import client_error
from oncelog.core.share.model import DeadLetterCause, DeadLetters, Refusal
from tests.unit.core.share.partitions import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ALICE,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    BOB,
    GAP,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    Tried,
    batches_of,
    message_of,
)


def test_a_whole_batch_stays_whole() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    write = tried.acknowledge((0, 9, ACCEPT))
    assert batches_of(write) == [(0, 9, ACKNOWLEDGED, 1)]
    assert tried.span == (0, 9), "not before the write is durable"
    assert tried.written(write).wakes
    assert tried.span == (10, 10)
    assert tried.records == []


def test_each_offset_may_have_its_type() -> None:
    tried = Tried()
    tried.acquire((0, 5))
    write = tried.acknowledge((0, 5, ACCEPT, GAP, RELEASE, RELEASE, REJECT, ACCEPT))
    assert batches_of(write) == [
        (0, 0, ACKNOWLEDGED, 1),
        (1, 1, ARCHIVED, 1),
        (2, 3, AVAILABLE, 1),
        (4, 4, ARCHIVED, 1),
        (5, 5, ACKNOWLEDGED, 1),
    ]
    tried.written(write)
    assert (tried.span, tried.next_offset) == ((2, 5), 2)
    assert tried.partition.delivery_complete_count == 2


def test_one_acknowledgement_may_cover_several_batches() -> None:
    tried = Tried()
    tried.acquire((0, 4), (5, 9), size=1)
    assert batches_of(tried.acknowledge((2, 7, ACCEPT))) == [(2, 7, ACKNOWLEDGED, 1)]
    assert tried.records[0] == (0, 1, ACQUIRED, 1)


def test_records_being_written_are_acquired_by_nobody_and_acknowledged_once() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.acknowledge((0, 9, RELEASE))
    assert tried.next_offset == 10
    assert tried.acquire((0, 9), at=0, member=BOB) == []
    assert isinstance(tried.acknowledge((0, 9, ACCEPT)), Refusal)


def test_the_start_waits_for_a_write_about_its_record() -> None:
    tried = Tried()
    tried.acquire((0, 4), (5, 9), size=1)
    first = tried.acknowledge((0, 4, ACCEPT))
    tried.acknowledged((5, 9, ACCEPT))
    assert tried.span == (0, 9)
    tried.written(first)
    assert tried.span == (10, 10)


def test_a_failed_write_gives_the_records_back() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    write = tried.acknowledge((0, 3, ACCEPT), (4, 9, RELEASE))
    assert tried.partition.delivery_complete_count == 4
    tried.written(write, ErrorCode.NOT_COORDINATOR)
    assert tried.records == [(0, 9, ACQUIRED, 1)]
    assert tried.partition.delivery_complete_count == 0
    tried.acknowledged((0, 9, ACCEPT))
    assert tried.span == (10, 10)


def test_records_whose_lock_expired_during_a_failed_write_are_free() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    write = tried.acknowledge((0, 9, ACCEPT))
    assert tried.sleep(LOCK_MS) is None
    assert tried.written(write, ErrorCode.NOT_COORDINATOR).wakes
    assert tried.acquire((0, 9), member=BOB) == [(0, 9, 2)]


def test_those_that_had_their_last_delivery_are_archived_then() -> None:
    tried = Tried((0, 0, AVAILABLE, 1), start=0, max_deliveries=2)
    tried.acquire((0, 0))
    write = tried.acknowledge((0, 0, ACCEPT))
    tried.sleep(LOCK_MS)
    tried.written(write, ErrorCode.NOT_COORDINATOR)
    assert tried.span == (1, 1)


def test_a_refused_request_changes_nothing() -> None:
    tried = Tried()
    tried.acquire((0, 4), (5, 9), size=1)
    tried.acquire((10, 14), member=BOB)
    before = tried.records
    assert message_of(tried.acknowledge((0, 2, ACCEPT), (5, 12, ACCEPT))) == "Member is not the owner of batch record"
    assert tried.records == before
    assert tried.partition.delivery_complete_count == 0


def test_refusals() -> None:
    tried = Tried(start=10)
    record, request = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
    not_found = "Batch record not found. The "
    assert tried.acknowledge((10, 12, ACCEPT)) == (
        record,
        not_found + "request batch offsets are not found in the cache.",
    )
    tried.acquire((10, 19))
    assert tried.acknowledge((20, 25, ACCEPT)) == (
        request,
        not_found + "first offset in request is past acquired records.",
    )
    assert tried.acknowledge((15, 25, ACCEPT)) == (
        request,
        not_found + "last offset in request is past acquired records.",
    )
    assert tried.acknowledge((10, 11, 1, 9)) == (request, "Invalid acknowledge type: [1, 9]")
    assert tried.acknowledge((10, 19, ACCEPT), member=BOB) == (record, "Member is not the owner of batch record")
    tried.acknowledged((10, 12, RELEASE))
    assert message_of(tried.acknowledge((10, 19, ACCEPT))) == (
        "The offset cannot be acknowledged. The offset is not acquired."
    )
    assert message_of(tried.acknowledge((14, 15, ACCEPT), member=BOB)) == "Member is not the owner of offset"


def test_records_before_the_start_are_done() -> None:
    tried = Tried()
    tried.acquire((0, 9), (10, 19), size=1)
    tried.partition.log_start_moved(5)  # type: ignore[arg-type]
    assert tried.acknowledge((0, 3, REJECT)) is None
    assert batches_of(tried.acknowledge((0, 9, ACCEPT))) == [(5, 9, ACKNOWLEDGED, 1)]


def test_the_last_delivery_is_not_released() -> None:
    tried = Tried((0, 0, AVAILABLE, 4), start=0)
    tried.acquire((0, 0))
    assert batches_of(tried.acknowledge((0, 0, RELEASE))) == [(0, 0, ARCHIVED, 5)]


def test_a_lowered_limit_of_deliveries_holds_at_the_next_release() -> None:
    tried = Tried((0, 9, AVAILABLE, 2), start=0)
    tried.acquire((0, 9))
    tried.partition.settings = tried.partition.settings._replace(max_deliveries=3)
    assert batches_of(tried.acknowledge((0, 9, RELEASE))) == [(0, 9, ARCHIVED, 3)]


def test_renewal_starts_the_lock_anew_and_writes_nothing() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.sleep(LOCK_MS - 1)
    assert tried.acknowledge((0, 9, RENEW)) is None
    assert tried.sleep(LOCK_MS - 1) is None
    assert tried.acknowledge((0, 3, RENEW)) is None
    assert batches_of(tried.sleep(1)) == [(4, 9, AVAILABLE, 1)]
    assert batches_of(tried.sleep(LOCK_MS)) == [(0, 3, AVAILABLE, 1)]


def test_renewal_together_with_other_types() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.sleep(10)
    assert batches_of(tried.acknowledge((0, 3, ACCEPT, RENEW, RENEW, RELEASE))) == [
        (0, 0, ACKNOWLEDGED, 1),
        (3, 3, AVAILABLE, 1),
    ]
    assert batches_of(tried.sleep(LOCK_MS - 10)) == [(4, 9, AVAILABLE, 1)]


def test_renewal_may_be_disabled() -> None:
    tried = Tried(may_renew=False)
    tried.acquire((0, 9))
    assert message_of(tried.acknowledge((0, 9, RENEW))) == "Renewing acquisition locks is not enabled for the group."


def test_release_of_a_member_frees_only_its_records() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.acquire((10, 19), member=BOB)
    tried.acknowledged((0, 4, ACCEPT))
    write = tried.partition.release(BOB)
    assert batches_of(write) == [(10, 19, AVAILABLE, 1)]
    tried.written(write)
    assert (tried.next_offset, tried.span) == (10, (5, 19))
    assert tried.partition.release(BOB) is None


def test_release_archives_what_the_log_has_lost() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.partition.log_start_moved(5)  # type: ignore[arg-type]
    write = tried.partition.release(ALICE)
    assert batches_of(write) == [(0, 4, ARCHIVED, 1), (5, 9, AVAILABLE, 1)]


def test_rejected_records_go_to_the_dead_letters_before_they_are_archived() -> None:
    tried = Tried(has_dead_letters=True)
    tried.acquire((0, 9))
    write = tried.acknowledge((0, 3, REJECT), (4, 9, ACCEPT))
    assert batches_of(write) == [(0, 3, ARCHIVING, 1), (4, 9, ACKNOWLEDGED, 1)]
    letters = DeadLetters(0, 3, 1, DeadLetterCause.REJECTED)  # type: ignore[arg-type]
    assert list(tried.written(write).dead_letters) == [letters]
    assert tried.span == (0, 9)
    archived = tried.partition.archived(letters)
    assert batches_of(archived) == [(0, 3, ARCHIVED, 1)]
    assert tried.written(archived, ErrorCode.NOT_COORDINATOR).wakes, "it holds whatever becomes of the write"
    assert tried.span == (10, 10)


def test_no_dead_letters_are_written_for_a_failed_write() -> None:
    tried = Tried(has_dead_letters=True)
    tried.acquire((0, 9))
    outcome = tried.written(tried.acknowledge((0, 9, REJECT)), ErrorCode.NOT_COORDINATOR)
    assert list(outcome.dead_letters) == []
    assert tried.records == [(0, 9, ACQUIRED, 1)]


def test_too_many_deliveries_are_a_cause_of_dead_letters() -> None:
    tried = Tried((0, 0, AVAILABLE, 4), start=0, has_dead_letters=True)
    tried.acquire((0, 0))
    write = tried.sleep(LOCK_MS)
    assert batches_of(write) == [(0, 0, ARCHIVING, 5)]
    (letters,) = tried.written(write).dead_letters
    assert letters.cause is DeadLetterCause.TOO_MANY_DELIVERIES


def test_acknowledged_records_are_counted_by_type() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.acknowledged((0, 3, ACCEPT, ACCEPT, RELEASE, REJECT), (4, 9, ACCEPT))
    assert tried.partition.acknowledged == {GAP: 0, ACCEPT: 8, RELEASE: 1, REJECT: 1, RENEW: 0}


def test_errors_of_the_persister_as_clients_get_them() -> None:
    names = {
        "NOT_COORDINATOR": "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS": "COORDINATOR_NOT_AVAILABLE",
        "GROUP_ID_NOT_FOUND": "GROUP_ID_NOT_FOUND",
        "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PARTITION",
        "FENCED_STATE_EPOCH": "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH": "NOT_LEADER_OR_FOLLOWER",
        "NETWORK_EXCEPTION": "UNKNOWN_SERVER_ERROR",
    }
    assert {name: client_error(ErrorCode[name], "why").error_code.name for name in names} == names
    assert client_error(ErrorCode.UNSUPPORTED_VERSION, "why").message == (
        "Unable to complete operation due to server error."
    )


def test_a_last_delivery_whose_release_fails_after_its_lock_is_a_dead_letter() -> None:
    tried = Tried(max_deliveries=1, has_dead_letters=True)
    tried.acquire((0, 1))
    accepted = tried.acknowledge((0, 0, ACCEPT))
    released = tried.acknowledge((1, 1, RELEASE))
    assert tried.sleep(LOCK_MS) is None
    for write, offset in ((accepted, 0), (released, 1)):
        (letter,) = tried.written(write, ErrorCode.NOT_COORDINATOR).dead_letters
        assert letter[:3] == (offset, offset, 1)
        assert batches_of(tried.partition.archived(letter)) == [(offset, offset, ARCHIVED, 1)]
    assert tried.records == [(0, 1, ARCHIVED, 1)]
