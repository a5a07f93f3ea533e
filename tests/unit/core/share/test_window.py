"""The window of a share partition: loading, locks, and the movement of its start."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.core.share.errors import InvalidShareState
from oncelog.core.share.locks import Lock, Locks
from oncelog.core.share.model import DeadLetterCause, DeadLetters, RecordState
from tests.unit.core.share.partitions import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    BOB,
    LOCK_MS,
    RELEASE,
    Tried,
    batches_of,
)


def test_a_state_without_batches() -> None:
    tried = Tried(start=7)
    assert (tried.span, tried.next_offset, tried.partition.in_flight_records) == ((7, 7), 7, 0)
    assert tried.partition.may_acquire()


def test_done_batches_at_the_start_are_not_kept() -> None:
    tried = Tried((5, 9, ACKNOWLEDGED, 1), (10, 14, ARCHIVED, 2), (15, 19, AVAILABLE, 1), start=5)
    assert (tried.span, tried.next_offset) == ((15, 19), 15)
    assert tried.partition.delivery_complete_count == 0


def test_done_batches_behind_a_gap_are_counted() -> None:
    tried = Tried((15, 19, ACKNOWLEDGED, 1), start=10)
    assert (tried.span, tried.next_offset) == ((10, 19), 10)
    assert tried.partition.delivery_complete_count == 5


@pytest.mark.parametrize(
    "batches",
    [
        [(4, 9, AVAILABLE, 1)],
        [(9, 8, AVAILABLE, 1)],
        [(5, 9, AVAILABLE, 1), (9, 12, AVAILABLE, 1)],
        [(5, 9, 7, 1)],
    ],
)
def test_a_state_that_contradicts_itself_is_refused(batches: list[tuple[int, int, RecordState, int]]) -> None:
    with pytest.raises(InvalidShareState):
        Tried(*batches, start=5)


def test_dead_letters_of_an_earlier_leader_are_found() -> None:
    tried = Tried((0, 3, ARCHIVING, 1), (4, 4, ARCHIVING, 5), start=0)
    rejected, worn = tried.partition.pending_dead_letters
    assert rejected == DeadLetters(0, 3, 1, DeadLetterCause.REJECTED)  # type: ignore[arg-type]
    assert worn.cause is DeadLetterCause.TOO_MANY_DELIVERIES
    for letters in (rejected, worn):
        tried.written(tried.partition.archived(letters))
    assert tried.span == (5, 5)


def test_locks_expire_by_their_deadlines() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.sleep(10)
    tried.acquire((10, 19), member=BOB)
    assert tried.partition.next_deadline_ms == LOCK_MS
    assert tried.sleep(LOCK_MS - 11) is None
    write = tried.sleep(1)
    assert batches_of(write) == [(0, 9, AVAILABLE, 1)]
    assert tried.next_offset == 0, "free before the write is durable"
    assert tried.partition.next_deadline_ms == LOCK_MS + 10
    tried.written(write, ErrorCode.NOT_COORDINATOR)
    assert tried.next_offset == 0, "free although the write has failed"
    assert tried.partition.lock_timeouts == 10


def test_acknowledged_records_have_no_lock() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.acknowledged((0, 9, ACCEPT))
    assert tried.partition.next_deadline_ms is None


def test_the_lock_duration_is_that_of_the_acquisition() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.partition.settings = tried.partition.settings._replace(lock_duration_ms=15_000)
    tried.acquire((10, 19))
    assert batches_of(tried.sleep(15_000)) == [(10, 19, AVAILABLE, 1)]


def test_expiry_in_part_after_acknowledgements_in_part() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.acknowledged((2, 3, ACCEPT), (6, 6, RELEASE))
    assert batches_of(tried.sleep(LOCK_MS)) == [(0, 1, AVAILABLE, 1), (4, 5, AVAILABLE, 1), (7, 9, AVAILABLE, 1)]


def test_rows_name_holders_and_locks() -> None:
    tried = Tried()
    tried.sleep(5)
    tried.acquire((0, 9), most=4, limited=True)
    held, free = tried.partition.in_flight()
    assert (held.member_id, held.locked_since_ms, held.locked_until_ms) == ("alice", 5, 5 + LOCK_MS)
    assert (free.member_id, free.locked_since_ms, free.delivery_state) == ("", None, AVAILABLE)


def test_locks_without_records_are_dropped() -> None:
    locks = Locks()
    for at_ms in range(1000):
        lock = Lock(at_ms, at_ms + LOCK_MS)
        lock.extend(0, 9)  # type: ignore[arg-type]
        locks.add(lock)
        if at_ms:
            lock.drop(10)
    assert len(locks) < 200
    assert locks.next_deadline_ms == LOCK_MS


def test_retention_moves_the_start_past_what_is_available() -> None:
    tried = Tried()
    tried.acquire((0, 9), (10, 19), size=1)
    tried.acknowledged((0, 9, RELEASE))
    tried.partition.log_start_moved(5)  # type: ignore[arg-type]
    assert (tried.span, tried.next_offset) == ((5, 19), 5)
    tried.partition.log_start_moved(3)  # type: ignore[arg-type]
    assert tried.span == (5, 19), "it never falls"


def test_retention_beyond_the_window() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.partition.log_start_moved(30)  # type: ignore[arg-type]
    assert (tried.span, tried.next_offset) == ((30, 30), 30)
    write = tried.sleep(LOCK_MS)
    assert batches_of(write) == [(0, 9, ARCHIVED, 1)]
    tried.written(write)
    assert (tried.span, tried.records, tried.partition.delivery_complete_count) == ((30, 30), [], 0)


def test_retention_while_a_release_is_written() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    write = tried.acknowledge((0, 9, RELEASE))
    tried.partition.log_start_moved(5)  # type: ignore[arg-type]
    tried.written(write, ErrorCode.NOT_COORDINATOR)
    assert tried.records == [(0, 4, ARCHIVED, 1), (5, 9, ACQUIRED, 1)]


def test_retention_while_an_acceptance_is_written_that_fails_after_the_lock() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    write = tried.acknowledge((0, 9, ACCEPT))
    tried.partition.log_start_moved(5)  # type: ignore[arg-type]
    tried.sleep(LOCK_MS)
    tried.written(write, ErrorCode.NOT_COORDINATOR)
    assert tried.records == [(0, 4, ARCHIVED, 1), (5, 9, AVAILABLE, 1)]
    assert tried.next_offset == 5


def test_retention_up_to_done_records_moves_on_at_once() -> None:
    tried = Tried()
    tried.acquire((0, 9), (10, 19), size=1)
    tried.acknowledged((0, 9, RELEASE), (10, 19, ACCEPT))
    tried.partition.log_start_moved(10)  # type: ignore[arg-type]
    assert tried.span == (20, 20)


def test_the_start_passes_offsets_without_records() -> None:
    tried = Tried((15, 20, ACKNOWLEDGED, 1), start=10)
    assert tried.acquire((15, 20), (21, 24)) == [(21, 24, 1)]
    assert tried.span == (21, 24)
    tried.acknowledged((21, 24, ACCEPT))
    assert tried.span == (25, 25)


def test_a_gap_without_records_before_done_ones_is_passed() -> None:
    tried = Tried((15, 20, ACKNOWLEDGED, 1), start=10)
    assert tried.acquire((15, 20)) == []
    assert (tried.span, tried.next_offset) == ((21, 21), 21)


def test_the_start_stays_before_a_gap_of_the_loaded_state() -> None:
    tried = Tried((0, 9, AVAILABLE, 1), (20, 29, ACKNOWLEDGED, 1), start=0)
    tried.acquire((0, 9), most=10)
    tried.acknowledged((0, 9, ACCEPT))
    assert (tried.span, tried.next_offset) == ((10, 29), 10)
    assert tried.acquire((10, 19), (20, 29)) == [(10, 19, 1)]
    tried.acknowledged((10, 19, ACCEPT))
    assert tried.span == (30, 30)
