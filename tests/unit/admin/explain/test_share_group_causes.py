"""Causes of share groups from facts by hand, and of facts that only look like one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from oncelog.admin.explain.findings import Cause, Finding, Severity
from oncelog.admin.explain.partition_facts import PartitionFacts
from oncelog.admin.explain.share_groups.causes import share_group_findings
from oncelog.admin.explain.share_groups.facts import Change, DeadLetters, ShareGroupFacts
from oncelog.admin.group_descriptions import GroupDescription, MemberRow
from oncelog.admin.share_deliveries import LEADER, ShareBatchRow, ShareDeliveryRow
from oncelog.admin.share_groups import ShareOffsetRow
from oncelog.admin.share_state_log import RecordedState, StateChange
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.records.internal.share_state_records import StateBatch

NOW = 1_800_000_000_000
SECOND = 1000
MINUTE = 60 * SECOND
A = TopicPartition(TopicName("jobs"), 0)
AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4
WORKER = MemberRow("m1", None, "worker", "/10.0.0.7", (A,), "share", None, ("jobs",), epoch=3)


def facts(
    *members: MemberRow,
    start: int | None = 10,
    end: int = 20,
    lag: int | None = None,
    changes: Sequence[StateChange] = (),
    batches: Iterable[StateBatch] = (),
    told: ShareDeliveryRow | None = None,
    **settings: str,
) -> ShareGroupFacts:
    """A share group that acknowledged everything up to its start offset ten seconds ago."""
    state = "Stable" if members else "Empty"
    described = GroupDescription("g", state, "share", "share", "simple", 1, [*members], 3, 3)
    row = ShareOffsetRow("g", "jobs", 0, start, 0, end, end - (start or 0) if lag is None else lag, 0)
    written_ms = changes[-1].at_ms if changes else NOW - 10 * SECOND
    recorded = {A: RecordedState(-1 if start is None else start, 0, tuple(batches), written_ms, [*changes])}
    return ShareGroupFacts(
        described,
        NOW,
        {A: row},
        {A: PartitionFacts(A, leader=1, replicas=(1,), isr=(1,), log_start=0, bounds=Bounds(end, end))},
        {} if told is None else {A: told},
        recorded,
        window_ms=15 * MINUTE,
        settings={key.replace("_", "."): value for key, value in settings.items()},
    )


def the(given: ShareGroupFacts, cause: Cause) -> Finding:
    [finding] = [finding for finding in share_group_findings(given) if finding.cause is cause]
    return finding


def causes(given: ShareGroupFacts) -> set[Cause]:
    return {finding.cause for finding in share_group_findings(given)}


def ago(seconds: float, *batches: tuple[int, int, int, int], start: int = 10) -> StateChange:
    return StateChange(int(NOW - seconds * SECOND), start, tuple(StateBatch(*batch) for batch in batches))


def window(*batches: ShareBatchRow, in_flight: int = 10, most: int = 2000) -> ShareDeliveryRow:
    return ShareDeliveryRow("g", "jobs", 0, LEADER, batches, in_flight, most)


def lock(first: int, last: int, member: str, since_s: float, until_s: float, deliveries: int = 1) -> ShareBatchRow:
    """Records acquired some seconds ago, for some more."""
    since_ms, until_ms = int(NOW - since_s * SECOND), int(NOW + until_s * SECOND)
    return ShareBatchRow(first, last, "acquired", deliveries, member, since_ms, until_ms)


def test_a_group_that_works_has_no_findings() -> None:
    assert causes(facts(WORKER)) == set()
    assert causes(facts(WORKER, told=window(lock(10, 19, "m1", 5, 25)))) == set()
    released = [ago(9, (10, 10, AVAILABLE, 1))]
    assert causes(facts(WORKER, changes=released, batches=released[0].batches)) == set()


def test_share_groups_that_are_off() -> None:
    given = facts()
    given.description = replace(given.description, epoch=None, state="Stable")
    told = the(given, Cause.SHARE_GROUPS_OFF)
    assert told.severity is Severity.STUCK
    assert "share.version is 0" in told.sentences[0]
    assert causes(given) == {Cause.SHARE_GROUPS_OFF}


def test_no_members() -> None:
    told = the(facts(), Cause.NO_MEMBERS)
    assert (told.severity, told.since_ms) == (Severity.STUCK, NOW - 10 * SECOND)
    assert "It has 10 offsets to deliver in 1 partition." in told.sentences
    assert the(facts(start=20), Cause.NO_MEMBERS).severity is Severity.NOTE


def test_locks_of_a_member_that_is_gone() -> None:
    told = the(facts(WORKER, told=window(lock(10, 14, "m9", 2, 28))), Cause.HOLDS_RECORDS)
    assert (told.severity, told.about, told.since_ms) == (Severity.RISK, "member m9", NOW - 2 * SECOND)
    assert told.evidence | {"is_gone": True, "records": 5, "clears_at_ms": NOW + 28 * SECOND} == told.evidence
    assert "5 records (jobs-0 offsets 10 to 14)" in told.sentences[0]
    assert "is not in the group any more" in told.sentences[0]
    assert "They come back when their locks end" in told.sentences[1]


@pytest.mark.parametrize(("since_s", "is_late"), [(23, False), (25, True)])
def test_a_member_that_uses_up_its_locks(since_s: float, is_late: bool) -> None:
    given = facts(WORKER, told=window(lock(10, 10, "m1", since_s, 30 - since_s), lock(11, 11, "m1", 1, 29)))
    assert (Cause.HOLDS_RECORDS in causes(given)) is is_late
    if is_late:
        told = the(given, Cause.HOLDS_RECORDS)
        assert (told.about, told.evidence["records"], told.evidence["is_gone"]) == ("member worker", 1, False)
        assert "'worker' on 10.0.0.7 has held 1 record (jobs-0 offset 10) for 25 s" in told.sentences[0]


def test_locks_that_expire_again_and_again() -> None:
    changes = [ago(70, (10, 12, AVAILABLE, 1)), ago(39, (10, 12, AVAILABLE, 2)), ago(8, (10, 12, AVAILABLE, 3))]
    told = the(facts(WORKER, changes=changes), Cause.LOCKS_EXPIRE)
    assert (told.evidence["records"], told.evidence["last_ms"], told.since_ms) == (6, NOW - 8000, NOW - 39_000)
    assert told.commands[1].endswith("share.record.lock.duration.ms=60000")


def test_releases_are_no_expired_locks() -> None:
    """Released at once, and long before the next delivery: nobody held it meanwhile, or not for a whole lock."""
    quick = [ago(70, (10, 12, AVAILABLE, 1)), ago(60, (10, 12, AVAILABLE, 2)), ago(50, (10, 12, AVAILABLE, 3))]
    assert Cause.LOCKS_EXPIRE not in causes(facts(WORKER, changes=quick))
    # Two deliveries, of which one is not in the log, within the time of one lock.
    missing = [ago(70, (10, 12, AVAILABLE, 1)), ago(38, (10, 12, AVAILABLE, 3))]
    assert Cause.LOCKS_EXPIRE not in causes(facts(WORKER, changes=missing))


def test_a_poisonous_record_and_where_it_ends() -> None:
    batches = [StateBatch(10, 10, AVAILABLE, 4), StateBatch(11, 12, AVAILABLE, 2)]
    changes = [ago(9, (10, 10, AVAILABLE, 3)), ago(5, (10, 10, AVAILABLE, 4))]
    given = facts(WORKER, batches=batches, changes=changes)
    told = the(given, Cause.REDELIVERED_REPEATEDLY)
    assert (told.about, told.since_ms, told.evidence["records"]) == ("jobs-0", NOW - 9 * SECOND, 1)
    assert "offset 10 was delivered 4 times of 5" in told.sentences[0]
    assert "After one more delivery it is archived: no member sees it again" in told.sentences[1]
    assert told.commands[0] == "oncelog consume jobs --partition 0 --from 10 --count 1"
    given.dead_letters = DeadLetters("dlq.jobs")
    assert "goes to the topic 'dlq.jobs' for dead letters." in the(given, Cause.REDELIVERED_REPEATEDLY).sentences[1]
    given.settings = {"share.delivery.count.limit": "6"}
    assert Cause.REDELIVERED_REPEATEDLY not in causes(given)


def test_an_accepted_record_is_not_poisonous() -> None:
    assert causes(facts(WORKER, batches=[StateBatch(12, 12, ACKNOWLEDGED, 5)])) == set()


def test_archived_records_by_their_reason() -> None:
    changes = [ago(30, (12, 12, ARCHIVED, 1)), ago(20, (14, 15, ARCHIVED, 5)), ago(20 * 60, (3, 3, ARCHIVED, 1))]
    given = facts(WORKER, changes=sorted(changes))
    told = the(given, Cause.RECORDS_ARCHIVED)
    assert (told.severity, told.since_ms) == (Severity.RISK, NOW - 30 * SECOND)
    assert (told.evidence["rejected"], told.evidence["delivered_too_often"]) == (1, 2)
    assert "1 rejected by a member (offset 12) and 2 delivered 5 times" in told.sentences[0]
    given.dead_letters = DeadLetters("dlq.jobs")
    assert the(given, Cause.RECORDS_ARCHIVED).severity is Severity.NOTE
    given.dead_letters = DeadLetters("dlq.jobs", "it does not exist, and …")
    assert the(given, Cause.RECORDS_ARCHIVED).severity is Severity.RISK


def test_a_dead_letter_is_one_archived_record() -> None:
    changes = [ago(30, (12, 12, ARCHIVING, 1)), ago(29, (12, 12, ARCHIVED, 1))]
    assert the(facts(WORKER, changes=changes), Cause.RECORDS_ARCHIVED).evidence["rejected"] == 1


def test_gaps_are_not_archived_records() -> None:
    given = facts(WORKER, changes=[ago(30, (12, 12, ARCHIVED, 1))])
    given.record_counts = {Change(A, 12, 12, 1, NOW - 30 * SECOND): 0}
    assert causes(given) == set()
    given = facts(WORKER, changes=[ago(30, (12, 15, ARCHIVED, 1))])
    given.record_counts = {Change(A, 12, 15, 1, NOW - 30 * SECOND): 3}
    assert the(given, Cause.RECORDS_ARCHIVED).evidence["rejected"] == 3


@pytest.mark.parametrize(
    ("obstacle", "command"),
    [
        ("it does not exist, and …", "oncelog topic create dlq.jobs -c errors.deadletterqueue.group.enable=true"),
        (
            "its setting errors.deadletterqueue.group.enable is false",
            "oncelog topic alter dlq.jobs -c errors.deadletterqueue.group.enable=true",
        ),
        ("its name …", "oncelog group alter g -c errors.deadletterqueue.topic.name=dlq.NAME"),
    ],
)
def test_a_topic_that_takes_no_dead_letters(obstacle: str, command: str) -> None:
    given = facts(WORKER)
    given.dead_letters = DeadLetters("dlq.jobs", obstacle)
    told = the(given, Cause.DEAD_LETTERS_LOST)
    assert told.commands == [command]
    assert "'dlq.jobs'" in told.sentences[0]


def test_dead_letters_of_an_older_cluster() -> None:
    given = facts(WORKER)
    given.dead_letters = DeadLetters("dlq.jobs", "the cluster's share.version is 1, and dead letters need 2")
    assert the(given, Cause.DEAD_LETTERS_LOST).commands == []


def test_a_queue_that_waits_for_one_record() -> None:
    done = [StateBatch(11, 18, ACKNOWLEDGED, 1)]
    changes = [ago(50, (9, 9, ACKNOWLEDGED, 1)), ago(49, (11, 18, ACKNOWLEDGED, 1))]
    given = facts(WORKER, batches=done, changes=changes, lag=2)
    told = the(given, Cause.WAITS_FOR_RECORD)
    assert (told.since_ms, told.evidence["offset"], told.evidence["done_after"]) == (NOW - 50 * SECOND, 10, 8)
    assert "has it for the first time" in told.sentences[1]
    given.told = {A: window(lock(10, 10, "m1", 2, 28, 3), ShareBatchRow(11, 18, "acknowledged", 1))}
    told = the(given, Cause.WAITS_FOR_RECORD)
    assert told.evidence["member_id"] == "m1"
    assert "'worker' on 10.0.0.7 holds it, in delivery 3" in told.sentences[1]
    # Its lock has not ended once since the start offset moved.
    given.settings = {"share.record.lock.duration.ms": "60000"}
    assert Cause.WAITS_FOR_RECORD not in causes(given)


def test_a_start_offset_is_recorded_one_write_late() -> None:
    """Everything is acknowledged, and the start offset that was written with it is the one before."""
    done = [StateBatch(10, 19, ACKNOWLEDGED, 1)]
    changes = [ago(80, (10, 19, ACKNOWLEDGED, 1))]
    assert causes(facts(WORKER, batches=done, changes=changes, lag=0)) == set()
    done = [StateBatch(10, 14, ACKNOWLEDGED, 1), StateBatch(16, 19, ACKNOWLEDGED, 1)]
    changes = [ago(90, (16, 19, ACKNOWLEDGED, 1)), ago(80, (10, 14, ACKNOWLEDGED, 1))]
    told = the(facts(WORKER, batches=done, changes=changes, lag=1), Cause.WAITS_FOR_RECORD)
    assert (told.evidence["offset"], told.evidence["done_after"]) == (15, 4)
    assert told.since_ms == NOW - 80 * SECOND


def test_too_many_records_in_flight() -> None:
    given = facts(WORKER, end=5000, told=window(lock(10, 209, "m1", 1, 29), in_flight=200, most=200))
    told = the(given, Cause.TOO_MANY_IN_FLIGHT)
    assert (told.severity, told.evidence["in_flight"], told.evidence["limit"]) == (Severity.STUCK, 200, 200)
    assert told.commands[1].endswith("share.partition.max.record.locks=400")
    given.told = {A: window(lock(10, 208, "m1", 1, 29), in_flight=199, most=200)}
    assert causes(given) == set()


def test_too_many_in_flight_by_the_log() -> None:
    batches = [StateBatch(509, 509, ACKNOWLEDGED, 1)]
    given = facts(WORKER, end=5000, batches=batches, share_partition_max_record_locks="500")
    assert the(given, Cause.TOO_MANY_IN_FLIGHT).evidence["in_flight"] == 500
    given = facts(WORKER, end=5000, batches=batches, share_partition_max_record_locks="501")
    assert Cause.TOO_MANY_IN_FLIGHT not in causes(given)


def test_members_that_do_not_fetch() -> None:
    given = facts(WORKER, changes=[ago(61, (9, 9, ACKNOWLEDGED, 1))])
    told = the(given, Cause.NOTHING_ACQUIRED)
    assert (told.severity, told.affected) == (Severity.STUCK, ["worker"])
    assert "10 offsets wait to be delivered" in told.sentences[0]
    assert "or one renews its locks" in told.sentences[1]
    given.told = {A: window(in_flight=0)}
    assert "no member holds a record" in the(given, Cause.NOTHING_ACQUIRED).sentences[1]
    given.told = {A: window(lock(10, 10, "m1", 1, 29))}
    assert causes(given) == set()
    assert causes(facts(WORKER, changes=[ago(59, (9, 9, ACKNOWLEDGED, 1))])) == set()
    assert causes(facts(WORKER, lag=0, changes=[ago(61, (9, 9, ACKNOWLEDGED, 1))])) == set()


def test_a_held_partition_is_not_one_that_is_not_fetched() -> None:
    given = facts(WORKER, changes=[ago(61, (9, 9, ACKNOWLEDGED, 1))], share_isolation_level="read_committed")
    given.partitions = {A: replace(given.partitions[A], bounds=Bounds(10, 20))}
    assert causes(given) == set()


def test_a_partition_where_nothing_was_acknowledged_is_a_note() -> None:
    given = facts(WORKER, start=None)
    told = the(given, Cause.NOTHING_ACQUIRED)
    assert told.severity is Severity.NOTE
    assert "the 20 offsets before that fetch are never delivered" in told.sentences[1]
    assert told.commands == ["oncelog group alter g -c share.auto.offset.reset=earliest"]
    assert causes(facts(WORKER, start=None, end=0)) == set()


def test_without_the_log_nothing_is_claimed_from_it() -> None:
    given = facts(WORKER, changes=[ago(61, (12, 12, ARCHIVED, 5))])
    given.recorded = None
    assert causes(given) == set()
