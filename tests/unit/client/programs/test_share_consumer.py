"""The programs of a share consumer, by both drivers and in virtual time, beside fake leaders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.errors import BrokerRefused, ClientError, ConnectionLost, OutOfTurn, UnsupportedRequest
from oncelog.client.machine.consumed_records import UnreadableRecords
from oncelog.client.machine.share.values import Acknowledge, Acknowledged, ShareRecord, ShareSettings
from oncelog.client.machine.versions import Versions
from oncelog.client.programs.share_records import ShareRecords
from oncelog.client.programs.steps import Program, Sleep
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from oncelog.wire.messages.share_fetch import ShareFetchRequest
from tests.unit.client.programs.fake_brokers import FakeLink, Runner
from tests.unit.client.programs.fake_brokers import runner as runner
from tests.unit.client.programs.fake_share_group import INTERVAL_MS, LOCK_MS, FakeShareGroup

EXPLICIT = ShareSettings(acknowledgement="explicit")


class Consumer(ShareRecords):
    """A share consumer that runs its programs by a runner."""

    def __init__(self, runner: Runner, settings: ShareSettings | None = EXPLICIT) -> None:
        runner.within(lambda: super(Consumer, self).__init__(runner.cluster, "g", ["t"], settings))
        self.runner = runner
        self.programs = self._programs

    def poll(self, wait_ms: int = 500) -> list[ShareRecord]:
        if self._unread:
            return self._take_unread()
        self._begin_poll()
        return self._read(self.runner.run(self._programs.poll(wait_ms, heartbeats=True)))

    def commit(self, timeout_ms: int = 5_000) -> list[Acknowledged]:
        self._begin_commit()
        self.runner.run(self._programs.commit(timeout_ms))
        return self._take_results()

    def close(self) -> list[Acknowledged]:
        self.runner.run(self._programs.close())
        self._programs.member.close()
        return self._take_results()

    def until(self, count: int) -> list[ShareRecord]:
        records: list[ShareRecord] = []
        while len(records) < count:
            records += self.poll()
        return records


def offsets(records: Iterable[ShareRecord]) -> list[int]:
    return [record.offset for record in records]


def codes(results: Iterable[Acknowledged]) -> list[int]:
    return [result.error.code if isinstance(result.error, BrokerRefused) else 0 for result in results]


def nothing_for(milliseconds: int) -> Program[None]:
    """The caller works."""
    yield Sleep(milliseconds)


def test_a_partition_is_at_its_end_once_a_fetch_found_nothing(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers)
    group.append(0, 1)
    consumer = Consumer(runner)
    assert consumer.not_at_end == ()
    consumer.accept(consumer.until(1)[0])
    assert (consumer.not_at_end[0].partition, len(consumer.assignment)) == (0, 2)
    while consumer.not_at_end:
        assert consumer.poll() == []
    group.append(1, 1)
    consumer.until(1)
    assert [partition.partition for partition in consumer.not_at_end] == [1]


def test_records_of_all_leaders_are_acquired_and_acknowledged(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers)
    group.append(0, 3)
    group.append(1, 1)
    consumer = Consumer(runner)
    records = consumer.until(4)
    assert sorted((record.partition, record.offset) for record in records) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert all(record.lock_until_ms <= runner.now_ms() + LOCK_MS for record in records)
    kinds = [Acknowledge.ACCEPT, Acknowledge.RELEASE, Acknowledge.REJECT, Acknowledge.ACCEPT]
    for record, kind in zip(sorted(records, key=lambda r: r[1:3]), kinds, strict=True):
        consumer.acknowledge(record, kind)
    assert not any(codes(consumer.commit()))
    assert (group.states(0), group.states(1)) == (["accepted", "available", "rejected"], ["accepted"])
    (again,) = consumer.until(1)
    assert (again.offset, again.delivery_count) == (1, 2)
    consumer.close()
    assert group.states(0) == ["accepted", "available", "rejected"]
    assert group.heartbeats[-1].member_epoch == -1
    assert not group.sessions


def test_a_poll_accepts_the_records_of_the_poll_before(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 2)
    consumer = Consumer(runner, ShareSettings())
    records = consumer.until(2)
    with pytest.raises(OutOfTurn, match="acknowledges by itself"):
        consumer.accept(records[0])
    assert group.states() == ["acquired"] * 2
    consumer.poll()
    assert group.states() == ["accepted"] * 2
    assert len(runner.brokers.asked(ShareAcknowledgeRequest)) == 0
    group.append(0, 1)
    consumer.until(1)
    consumer.close()
    assert group.states() == ["accepted", "accepted", "available"]


def test_records_that_a_loop_has_not_reached_are_not_accepted(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 4)
    consumer = Consumer(runner, ShareSettings())
    consumer._unread.extend(consumer.until(4))
    consumer._unread.popleft()
    consumer._unread.popleft()
    assert [(r.first_offset, r.last_offset) for r in consumer.commit()] == [(0, 1)]
    assert group.states() == ["accepted", "accepted", "acquired", "acquired"]
    assert offsets(consumer.poll()) == [2, 3]
    consumer.commit()
    assert group.states() == ["accepted"] * 4


def test_what_arrives_during_a_commit_is_not_accepted_before_it_is_returned(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 1)
    consumer = Consumer(runner, ShareSettings())
    consumer.until(1)
    consumer.poll(0)  # a fetch is in flight
    group.append(0, 1)
    consumer.poll(0)
    consumer.commit()
    assert group.states()[0] == "accepted"
    assert "accepted" not in group.states()[1:]
    assert offsets(consumer.until(1)) == [1]


def test_what_arrives_during_a_commit_is_handed_over_though_its_connection_ends(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 1)
    consumer = Consumer(runner)
    (first,) = consumer.until(1)
    group.append(0, 2)
    consumer.poll(0)  # a fetch is in flight
    consumer.accept(first)
    group.ignored.add(ShareAcknowledgeRequest)  # which ends the connection
    (result,) = consumer.commit()
    assert isinstance(result.error, ConnectionLost)
    group.records["t", 0, 0].state = group.records["t", 0, 1].state = group.records["t", 0, 2].state = "archived"
    second, third = consumer.poll()
    assert [(r.offset, r.delivery_count) for r in (second, third)] == [(1, 1), (2, 1)]
    assert consumer.lock_until_ms(second) is None
    consumer.accept(second)
    (result,) = consumer.commit()
    assert isinstance(result.error, ConnectionLost)


def test_a_session_does_not_end_before_what_it_acquired_is_handed_over(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    consumer = Consumer(runner)
    consumer.poll(1_000)
    runner.run(nothing_for(1_000))
    group.append(0, 1)
    while group.states() != ["acquired"]:
        assert consumer.poll(0) == []
    consumer.programs.member.member.assigned = ()
    (record,) = consumer.poll()
    assert group.states() == ["acquired"]
    consumer.accept(record)
    assert codes(consumer.commit()) == [0]


def test_a_renewal_keeps_the_lock_and_an_acceptance_replaces_it(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 3)
    consumer = Consumer(runner)
    first, second, third = consumer.until(3)
    before_ms = consumer.lock_until_ms(first)
    runner.run(consumer.programs.poll(1_000, heartbeats=True))
    for record in (first, second, third):
        consumer.renew(record)
    consumer.accept(second)
    results = consumer.commit()
    assert [(r.first_offset, r.kind.name) for r in results] == [(0, "RENEW"), (1, "ACCEPT"), (2, "RENEW")]
    assert (consumer.lock_until_ms(first) or 0) > (before_ms or 0)
    assert consumer.lock_until_ms(second) is None
    with pytest.raises(OutOfTurn, match="acknowledged already"):
        consumer.renew(second)
    consumer.accept(first)
    consumer.release(third)
    consumer.commit()
    assert group.states() == ["accepted", "accepted", "available"]


def test_gaps_are_acknowledged_and_damaged_batches_are_rejected(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 4)
    group.holes.add(("t", 0, 1))
    group.damaged.add(("t", 0, 2))
    consumer = Consumer(runner)
    records = consumer.until(2)
    assert offsets(records) == [0, 3]
    with pytest.raises(UnreadableRecords, match="records 2 to 2 of t-0 are rejected"):
        consumer.poll()
    results = consumer.commit()
    assert [(r.first_offset, r.kind.name) for r in results] == [(2, "REJECT")]
    assert group.states() == ["acquired", "gap", "rejected", "acquired"]


def test_a_gap_that_arrives_twice_loses_no_record(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 2)
    group.holes.add(("t", 0, 0))
    consumer = Consumer(runner)
    consumer.poll(0)
    arrived = runner.run(consumer.programs.poll(1_000, heartbeats=True))
    assert offsets(consumer._read([*arrived, *arrived])) == [1, 1]


def test_a_lost_answer_starts_another_session_and_its_records_come_again(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    consumer = Consumer(runner)
    consumer.poll(1000)
    group.append(0, 2)
    group.lost.add(ShareFetchRequest)
    records = consumer.until(2)
    assert [(record.offset, record.delivery_count) for record in records] == [(0, 2), (1, 2)]
    consumer.accept(records[0])
    consumer.accept(records[1])
    assert codes(consumer.commit()) == [0]
    assert group.states() == ["accepted"] * 2


def test_acknowledgements_whose_answer_is_lost_are_reported(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 2)
    consumer = Consumer(runner)
    first, second = consumer.until(2)
    group.ignored.add(ShareAcknowledgeRequest)
    consumer.accept(first)
    (result,) = consumer.commit()
    assert isinstance(result.error, ConnectionLost)
    consumer.accept(second)  # its lock went with the connection
    (result,) = consumer.commit()
    assert isinstance(result.error, ConnectionLost)
    assert [record.delivery_count for record in consumer.until(2)] == [2, 2]


def test_a_session_that_the_leader_lacks_is_opened_again_and_keeps_its_acknowledgements(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 1)
    consumer = Consumer(runner)
    (record,) = consumer.until(1)
    group.sessions.clear()
    consumer.accept(record)
    assert codes(consumer.commit()) == [0]
    assert group.states() == ["accepted"]


@pytest.mark.parametrize("code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.SHARE_SESSION_LIMIT_REACHED])
def test_a_refused_fetch_keeps_its_acknowledgements(runner: Runner, code: ErrorCode) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 1)
    consumer = Consumer(runner)
    (record,) = consumer.until(1)
    consumer.accept(record)
    group.fetch_codes = [code] * 2
    consumer.poll(3_000)
    assert codes(consumer.commit()) == [0]
    assert group.states() == ["accepted"]


def test_an_acknowledgement_is_repeated_while_its_error_may_pass(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 1)
    consumer = Consumer(runner)
    (record,) = consumer.until(1)
    consumer.accept(record)
    group.acknowledge_codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert codes(consumer.commit()) == [0]
    assert group.states() == ["accepted"]
    group.append(0, 1)
    (record,) = consumer.until(1)
    consumer.accept(record)
    group.acknowledge_codes = [ErrorCode.INVALID_RECORD_STATE]
    assert codes(consumer.commit()) == [ErrorCode.INVALID_RECORD_STATE]


def test_a_late_acknowledgement_fails_alone(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 1)
    consumer = Consumer(runner)
    (slow,) = consumer.until(1)
    runner.brokers.now_ms = runner.now_ms()
    runner.run(nothing_for(LOCK_MS // 2))
    group.append(0, 3)
    fresh = consumer.until(3)
    group.records["t", 0, 0].until_ms = 0  # the leader's clock is ahead
    consumer.accept(slow)
    for record in fresh:
        consumer.accept(record)
    results = sorted(consumer.commit())
    assert [(r.first_offset, r.last_offset) for r in results] == [(0, 0), (1, 3)]
    assert codes(results) == [ErrorCode.INVALID_RECORD_STATE, 0]
    assert group.states()[1:] == ["accepted"] * 3


def test_acknowledgements_whose_locks_have_ended_are_sent_after_the_others(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 1)
    consumer = Consumer(runner)
    (slow,) = consumer.until(1)
    runner.run(nothing_for(LOCK_MS // 2))
    group.append(0, 3)
    fresh = consumer.until(3)
    runner.run(nothing_for(LOCK_MS - LOCK_MS // 2))
    runner.brokers.now_ms = runner.now_ms()
    for record in (slow, *fresh):
        consumer.accept(record)
    results = consumer.close()
    assert [(r.first_offset, r.last_offset) for r in results] == [(1, 3), (0, 0)]
    assert codes(results) == [0, ErrorCode.INVALID_RECORD_STATE]
    assert group.states()[1:] == ["accepted"] * 3


def test_a_partition_is_followed_to_its_new_leader(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 2)
    consumer = Consumer(runner)
    first, second = consumer.until(2)
    runner.brokers.leaders["t"][0] = 2
    for stored in group.records.values():
        stored.state = "available"  # the new leader does not know of locks
    consumer.accept(first)
    assert codes(consumer.commit()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    again = consumer.until(2)
    assert [record.delivery_count for record in again] == [2, 2]
    consumer.accept(second)  # of the delivery before
    assert codes(consumer.commit()) == [ErrorCode.INVALID_RECORD_STATE]
    for record in again:
        consumer.accept(record)
    assert codes(consumer.commit()) == [0]
    consumer.poll(1_000)
    assert {broker for broker, _ in group.sessions} == {2}


def test_an_expelled_member_joins_again_under_its_id(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    consumer = Consumer(runner)
    consumer.poll(1_000)
    group.epochs.clear()
    group.told.clear()
    consumer.poll(2 * INTERVAL_MS)
    assert [message.member_epoch for message in group.heartbeats[-3:]] == [1, 0, 1]
    assert len({message.member_id for message in group.heartbeats}) == 1
    group.append(0, 1)
    assert len(consumer.until(1)) == 1


def test_heartbeat_errors_pass_or_are_explained(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.heartbeat_codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    consumer = Consumer(runner)
    assert consumer.poll(2_000) == []
    assert [str(partition) for partition in consumer.assignment] == ["t-0"]
    group.heartbeat_codes = [ErrorCode.UNSUPPORTED_VERSION]
    with pytest.raises(BrokerRefused, match=r"share\.version"):
        consumer.poll(2 * INTERVAL_MS)
    group.heartbeat_codes = [999]
    with pytest.raises(BrokerRefused, match="error code 999"):
        consumer.poll(2 * INTERVAL_MS)
    group.heartbeat_codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(BrokerRefused, match="not allowed to use this group"):
        consumer.poll(2 * INTERVAL_MS)


def test_a_leader_that_stays_away_is_an_error_in_the_end(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    runner.brokers.down.add(1)
    consumer = Consumer(runner)
    with pytest.raises(ClientError, match="cannot be reached"):
        consumer.poll(100_000)
    runner.brokers.down.clear()
    group.append(0, 1)
    assert len(consumer.until(1)) == 1


def test_record_limit_acquires_from_one_leader_at_a_time(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 2)
    group.append(0, 10)
    group.append(1, 10)
    settings = ShareSettings(acknowledgement="explicit", acquire="record_limit", max_records=3)
    consumer = Consumer(runner, settings)
    turns: list[int] = []
    for _ in range(200):
        records = consumer.poll()
        assert len(records) <= 3
        turns += sorted({record.partition for record in records})
        for record in records:
            consumer.accept(record)
    consumer.commit()
    assert group.states(0) + group.states(1) == ["accepted"] * 20
    assert turns[:4] == [1, 0, 1, 0] or turns[:4] == [0, 1, 0, 1]


def test_old_leaders_have_no_acquire_modes_and_no_renewals(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 1)
    old = Versions(dict.fromkeys(range(100), (0, 99)) | {78: (1, 1), 79: (1, 1)})
    connect = FakeLink.__init__

    def with_old_versions(self: FakeLink, *arguments: Any) -> None:
        connect(self, *arguments)
        self.versions = old

    monkeypatch.setattr(FakeLink, "__init__", with_old_versions)
    with pytest.raises(UnsupportedRequest, match="record_limit"):
        Consumer(runner, ShareSettings(acquire="record_limit")).poll(1_000)
    group.append(0, 1)
    consumer = Consumer(runner)
    first, second = consumer.until(2)
    consumer.accept(first)
    consumer.renew(second)
    results = consumer.commit()
    assert [(r.first_offset, r.kind.name) for r in results] == [(1, "RENEW"), (0, "ACCEPT")]
    assert isinstance(results[0].error, UnsupportedRequest)
    assert codes(results) == [0, 0]
    consumer.accept(second)
    assert codes(consumer.commit()) == [0]
    assert group.states() == ["accepted"] * 2


def test_locks_that_ended_long_ago_are_forgotten(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 2)
    consumer = Consumer(runner)
    first, _ = consumer.until(2)
    group.records.clear()  # others have processed them
    for _ in range(2 * LOCK_MS // INTERVAL_MS + 1):
        consumer.poll(INTERVAL_MS)
    assert len(consumer.programs._locks) == 0
    consumer.accept(first)
    assert codes(consumer.commit()) == [ErrorCode.INVALID_RECORD_STATE]


def test_records_of_a_leader_that_is_slower_than_the_job_are_handed_over_whatever_their_lock(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers)
    group.lock_ms, group.delay_ms = 2_000, {runner.brokers.leaders["t"][1]: 50}
    group.append(0, 1)
    group.append(1, 1)
    consumer = Consumer(runner)
    (first,) = consumer.until(1)
    runner.run(nothing_for(2_500))
    (second,) = consumer.until(1)
    assert [(r.partition, r.delivery_count) for r in (first, second)] == [(0, 1), (1, 1)]
    assert second.lock_until_ms < runner.now_ms()
    consumer.accept(second)
    assert codes(consumer.commit()) == [ErrorCode.INVALID_RECORD_STATE]
    again = {record.partition: record for record in consumer.until(2)}
    assert [again[partition].delivery_count for partition in (0, 1)] == [2, 2]
    for record in again.values():
        consumer.accept(record)
    assert not any(codes(consumer.commit()))


def test_a_leader_waits_for_records_for_half_a_lock_at_most(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.lock_ms = 1_000
    consumer = Consumer(runner, ShareSettings(max_wait_ms=5_000))
    consumer.poll(7_000)
    waits = [message.max_wait_ms for _, message in runner.brokers.requests if isinstance(message, ShareFetchRequest)]
    assert waits[:2] == [5_000, 500]
    group.append(0, 1)
    (record,) = consumer.until(1)
    assert record.lock_until_ms > runner.now_ms()
