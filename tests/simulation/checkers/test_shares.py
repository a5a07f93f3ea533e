"""W23 to W27 and H22 to H24: conversations that break one rule alone, and others that come close."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.sim.checkers.history import GroupPartition, SeenRecord
from oncelog.sim.checkers.share_groups import DeadLetterSeen, ShareGroupsSeen, check_share_groups
from oncelog.sim.checkers.wire.observer import WireObserver
from oncelog.sim.checkers.wire.shares import ShareLimits
from oncelog.wire.messages import alter_share_group_offsets as alter
from oncelog.wire.messages import produce, share_acknowledge, share_fetch
from tests.simulation.checkers.talk import batch

TOPIC = b"t" * 16
PARTITION = TopicPartition(TopicName("t"), 0)
KEY = GroupPartition("g", PARTITION)
LIMIT, LOCK_MS = 3, 1_000
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Acknowledgements = tuple[tuple[int, int], ...]


class Queue:
    """Members of a share group talk to brokers; each has a connection to each broker."""

    def __init__(self, *, is_cluster: bool = False) -> None:
        self.observer = WireObserver(is_cluster=is_cluster)
        self.observer.shares.limits = ShareLimits(LIMIT, LOCK_MS)
        self.now_ms = 0
        self.numbers = 0
        self.sessions: set[tuple[str, int]] = set()

    @property
    def rules(self) -> list[str]:
        return [rule.split(" ", 1)[0] for rule in self.observer.violations]

    def ask(self, member: str, *acknowledged: tuple[int, int], broker: int = 1, epoch: int | None = None) -> int:
        """A ShareFetch comes, with offsets to acknowledge and their types; its number."""
        self.numbers += 1
        epoch = (1 if (member, broker) in self.sessions else 0) if epoch is None else epoch
        self.sessions.add((member, broker))
        batches = [
            share_fetch.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
            for offset, kind in acknowledged
        ]
        partition = share_fetch.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        request = share_fetch.ShareFetchRequest(
            group_id="g",
            member_id=member,
            share_session_epoch=epoch,
            topics=[share_fetch.FetchTopic(topic_id=TOPIC, partitions=[partition])],
        )
        self.observer.received((member, broker), self.numbers, 2, request, self.now_ms, broker)
        return self.numbers

    def answer(
        self,
        number: int,
        member: str,
        *acquired: tuple[int, int],
        broker: int = 1,
        code: ErrorCode = ErrorCode.NONE,
        acknowledge_code: ErrorCode = ErrorCode.NONE,
    ) -> None:
        """The answer, with acquired offsets and their delivery counts."""
        rows = [
            share_fetch.AcquiredRecords(first_offset=offset, last_offset=offset, delivery_count=count)
            for offset, count in acquired
        ]
        partition = share_fetch.PartitionData(
            partition_index=0, error_code=code, acknowledge_error_code=acknowledge_code, acquired_records=rows
        )
        topic = share_fetch.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[partition])
        response = share_fetch.ShareFetchResponse(responses=[topic])
        self.observer.answered((member, broker), number, response, self.now_ms)

    def fetch(self, member: str, *acquired: tuple[int, int], broker: int = 1) -> None:
        self.answer(self.ask(member, broker=broker), member, *acquired, broker=broker)

    def acknowledge(
        self,
        member: str,
        *acknowledged: tuple[int, int],
        broker: int = 1,
        code: ErrorCode = ErrorCode.NONE,
        answers: bool = True,
    ) -> None:
        """A ShareAcknowledge, and its answer."""
        self.numbers += 1
        batches = [
            share_acknowledge.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
            for offset, kind in acknowledged
        ]
        partition = share_acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id="g",
            member_id=member,
            share_session_epoch=1,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=TOPIC, partitions=[partition])],
        )
        self.observer.received((member, broker), self.numbers, 2, request, self.now_ms, broker)
        row = share_acknowledge.PartitionData(partition_index=0, error_code=code)
        topic = share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=[row])
        if answers:
            response = share_acknowledge.ShareAcknowledgeResponse(responses=[topic])
            self.observer.answered((member, broker), self.numbers, response, self.now_ms)

    def send(self, records: bytes) -> int:
        """A Produce comes, on a connection of its own; its number."""
        self.numbers += 1
        data = [produce.PartitionProduceData(index=0, records=records)]
        topic = produce.TopicProduceData(topic_id=TOPIC, partition_data=data)
        request = produce.ProduceRequest(acks=-1, topic_data=[topic])
        self.observer.received(("p", self.numbers), self.numbers, 13, request, self.now_ms, 1)
        return self.numbers

    def written(self, number: int, offset: int) -> None:
        """The answer to a Produce."""
        data = [produce.PartitionProduceResponse(index=0, base_offset=offset)]
        topic = produce.TopicProduceResponse(topic_id=TOPIC, partition_responses=data)
        self.observer.answered(("p", number), number, produce.ProduceResponse(responses=[topic]), self.now_ms)

    def disconnect(self, member: str, broker: int = 1) -> None:
        self.sessions.discard((member, broker))
        self.observer.disconnected((member, broker))

    def restart(self) -> None:
        self.sessions.clear()
        self.observer.restarted(self.now_ms)

    def at_end(
        self, *records: int, start: int, log_start: int = 0, letters: tuple[int, ...] | None = None
    ) -> list[str]:
        """The rules that are broken at the end, in a topic with these records."""
        seen = ShareGroupsSeen({"t": TOPIC}, {KEY: start})
        if letters is not None:
            seen.with_dead_letters.add("g")
            seen.dead_letters += [DeadLetterSeen(KEY, offset) for offset in letters]
        drained = {PARTITION: [SeenRecord(offset, f"v{offset}") for offset in records]}
        broken = check_share_groups(self.observer.shares, seen, drained, {PARTITION: log_start})
        return [rule.split(" ", 1)[0] for rule in broken]


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_a_settled_record_is_not_delivered_again(kind: int) -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.acknowledge("a", (0, kind))
    queue.fetch("b", (0, 2))
    assert queue.rules == ["W23"]


def test_a_settled_record_is_not_delivered_after_a_restart() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.acknowledge("a", (0, ACCEPT))
    queue.restart()
    queue.fetch("b", (0, 1))
    assert queue.rules == ["W23"]


def test_a_record_released_after_its_last_delivery_is_settled() -> None:
    queue = Queue()
    for count in range(1, LIMIT + 1):
        queue.fetch("a", (0, count))
        queue.acknowledge("a", (0, RELEASE))
    assert queue.rules == []
    queue.restart()
    queue.fetch("b", (0, 1))
    assert "W23" in queue.rules


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.INVALID_RECORD_STATE])
def test_a_record_whose_acknowledgement_failed_may_come_again(code: ErrorCode) -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.acknowledge("a", (0, ACCEPT), code=code)
    queue.now_ms += LOCK_MS
    queue.fetch("b", (0, 2))
    assert queue.rules == []


def test_a_former_leader_may_deliver_what_its_successor_has_settled() -> None:
    queue = Queue(is_cluster=True)
    queue.fetch("a", (0, 1), broker=1)
    queue.fetch("b", (0, 1), broker=2)
    queue.acknowledge("b", (0, ACCEPT), broker=2)
    queue.now_ms += LOCK_MS
    queue.fetch("c", (0, 2), broker=1)
    assert queue.rules == []
    queue.acknowledge("c", (0, ACCEPT), broker=1, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert queue.at_end(0, start=1) == []
    # A leader that begins later has read the state.
    queue.fetch("c", (0, 2), broker=3)
    assert queue.rules == ["W23"]


def test_a_former_leader_acknowledges_nothing() -> None:
    queue = Queue(is_cluster=True)
    queue.fetch("a", (0, 1), broker=1)
    queue.fetch("b", (0, 1), broker=2)
    queue.acknowledge("b", (0, ACCEPT), broker=2)
    queue.acknowledge("a", (0, ACCEPT), broker=1)
    assert queue.at_end(0, start=1) == ["W24"]


def test_a_member_whose_record_has_gone_to_another_cannot_acknowledge_it() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.now_ms += LOCK_MS
    queue.fetch("b", (0, 2))
    queue.acknowledge("a", (0, ACCEPT))
    assert queue.rules == []
    assert queue.at_end(0, start=1) == ["W24"]
    assert queue.at_end(start=1, log_start=1) == [], "the log has lost it: it is done"


def test_an_acknowledgement_of_a_record_that_is_done_succeeds() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.now_ms += LOCK_MS
    queue.fetch("b", (0, 2))
    queue.acknowledge("b", (0, ACCEPT))
    queue.acknowledge("a", (0, ACCEPT))
    assert queue.at_end(0, start=1) == []


def test_a_locked_record_is_not_delivered() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.now_ms += LOCK_MS - 1
    queue.fetch("b", (0, 2))
    assert queue.rules == ["W25"]


def test_a_renewal_prolongs_the_lock() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.now_ms += LOCK_MS - 1
    queue.acknowledge("a", (0, RENEW))
    queue.now_ms += LOCK_MS - 1
    queue.fetch("b", (0, 2))
    assert queue.rules == ["W25"]


@pytest.mark.parametrize("end", ["lock", "release", "session", "restart", "last request"])
def test_a_record_whose_lock_has_ended_is_delivered(end: str) -> None:
    queue = Queue()
    queue.fetch("b")
    queue.fetch("a", (0, 1))
    if end == "lock":
        queue.now_ms += LOCK_MS
    elif end == "release":
        queue.acknowledge("a", (0, RELEASE))
    elif end == "session":
        queue.disconnect("a")
    elif end == "restart":
        queue.restart()
    else:
        queue.answer(queue.ask("a", epoch=-1), "a")
    queue.fetch("b", (0, 2))
    assert queue.rules == []


def test_a_release_counts_as_a_delivery_for_ever() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.acknowledge("a", (0, RELEASE))
    queue.restart()
    queue.fetch("b", (0, 1))
    assert queue.rules == ["W26"]


def test_a_release_and_the_next_delivery_may_be_in_one_answer() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    for count in range(2, LIMIT + 1):
        queue.answer(queue.ask("a", (0, RELEASE)), "a", (0, count))
    assert queue.rules == []


@pytest.mark.parametrize("count", [0, LIMIT + 1])
def test_a_delivery_is_counted_from_one_to_the_limit(count: int) -> None:
    queue = Queue()
    queue.fetch("a", (0, count))
    assert queue.rules == ["W26"]


def test_a_delivery_that_nobody_saw_is_counted() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.ask("b")
    queue.disconnect("b")
    queue.now_ms += 2 * LOCK_MS
    queue.fetch("a", (0, 3))
    assert queue.rules == []


@pytest.mark.parametrize(("waited_ms", "broken"), [(LOCK_MS, []), (LOCK_MS - 1, ["W26"])])
def test_an_answer_that_waited_for_acknowledgements_beyond_the_lock_lacks_its_records(
    waited_ms: int, broken: list[str]
) -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    number = queue.ask("a", (0, ACCEPT))
    queue.now_ms += waited_ms
    queue.answer(number, "a")
    queue.fetch("b", (1, 2))
    assert queue.rules == broken


def test_an_answer_that_waited_without_acknowledgements_has_its_records() -> None:
    queue = Queue()
    number = queue.ask("a")
    queue.now_ms += LOCK_MS
    queue.answer(number, "a")
    queue.fetch("b", (1, 2))
    assert queue.rules == ["W26"]


def test_a_delivery_that_nobody_can_have_seen_is_not() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.now_ms += 2 * LOCK_MS
    queue.fetch("a", (0, 3))
    assert queue.rules == ["W26"]


def test_a_count_in_memory_does_not_fall_and_ends_with_the_process() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.now_ms += LOCK_MS
    queue.restart()
    queue.fetch("a", (0, 1))
    assert queue.rules == []
    queue.now_ms += LOCK_MS
    queue.fetch("a", (0, 1))
    assert queue.rules == ["W26"]


def test_a_failure_of_the_broker_is_a_wrong_answer() -> None:
    queue = Queue()
    queue.answer(queue.ask("a"), "a", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert queue.rules == ["W27"]


def _alter(queue: Queue, code: ErrorCode = ErrorCode.NONE, *, answers: bool = True) -> None:
    request = alter.AlterShareGroupOffsetsRequest(group_id="g")
    queue.observer.received("admin", 1, 0, request, queue.now_ms, 1)
    if answers:
        queue.observer.answered("admin", 1, alter.AlterShareGroupOffsetsResponse(error_code=code), queue.now_ms)
    else:
        queue.observer.disconnected("admin")


def test_after_a_change_of_offsets_records_come_again_and_new_sessions_are_judged() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    queue.acknowledge("a", (0, ACCEPT))
    _alter(queue)
    queue.fetch("a", (0, 1))
    queue.fetch("b", (0, 1))
    assert queue.rules == []
    queue.acknowledge("b", (0, ACCEPT))
    queue.fetch("c", (0, 1))
    assert queue.rules == ["W23"]


def test_a_change_without_an_answer_may_come_at_any_time() -> None:
    queue = Queue()
    _alter(queue, answers=False)
    queue.fetch("a", (0, 1))
    queue.acknowledge("a", (0, ACCEPT))
    queue.fetch("b", (0, 1))
    assert queue.rules == []


def test_a_record_that_nobody_settled_is_lost() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1), (1, 1))
    queue.acknowledge("a", (0, ACCEPT))
    assert queue.at_end(0, 1, start=1) == []
    assert queue.at_end(0, 1, start=2) == ["H22"]
    queue.acknowledge("a", (1, ACCEPT), answers=False)
    queue.disconnect("a")
    assert queue.at_end(0, 1, start=2) == [], "it may have been settled"


def test_a_record_may_be_archived_after_deliveries_that_nobody_saw() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1))
    for _ in range(LIMIT - 1):
        assert queue.at_end(0, start=1) == ["H22"]
        queue.ask("b")
        queue.disconnect("b")
    assert queue.at_end(0, start=1) == []


def _lose_fetches(queue: Queue) -> None:
    for _ in range(LIMIT):
        queue.ask("b")
        queue.disconnect("b")


@pytest.mark.parametrize("is_cluster", [False, True])
def test_fetches_that_got_lost_before_a_record_was_written_have_not_got_it(is_cluster: bool) -> None:
    queue = Queue(is_cluster=is_cluster)
    queue.written(queue.send(batch("a")), 0)
    _lose_fetches(queue)
    assert queue.at_end(0, 1, start=2) == [], "record 1 may have been written at any time"
    number = queue.send(batch("b", "c"))
    queue.written(number, 2)
    assert queue.at_end(0, 1, 2, 3, start=4) == ["H22"]
    assert queue.at_end(0, 1, start=2) == []
    _lose_fetches(queue)
    assert queue.at_end(0, 1, 2, 3, start=4) == []


def test_a_fetch_that_waits_for_a_record_and_gets_lost_may_have_got_it() -> None:
    queue = Queue()
    for number in range(LIMIT):
        queue.ask(f"m{number}")
    queue.written(queue.send(batch("a")), 0)
    for number in range(LIMIT):
        assert queue.at_end(0, start=1) == ["H22"]
        queue.disconnect(f"m{number}")
    assert queue.at_end(0, start=1) == []


def test_a_batch_that_is_sent_again_may_have_been_written_at_first() -> None:
    queue = Queue()
    again = batch("a", producer=7, epoch=0, sequence=0)
    queue.observer.disconnected(("p", queue.send(again)))
    _lose_fetches(queue)
    queue.written(queue.send(again), 0)
    assert queue.at_end(0, start=1) == []


def test_a_rejected_record_has_a_dead_letter_and_an_accepted_one_has_not() -> None:
    queue = Queue()
    queue.fetch("a", (0, 1), (1, 1))
    queue.acknowledge("a", (0, REJECT), (1, ACCEPT))
    assert queue.at_end(0, 1, start=2, letters=(0, 0)) == []
    assert queue.at_end(0, 1, start=2, letters=()) == ["H23"]
    assert queue.at_end(0, 1, start=2, letters=(0, 1)) == ["H24"]


def test_a_record_that_was_delivered_too_often_may_have_a_dead_letter() -> None:
    queue = Queue()
    for count in range(1, LIMIT + 1):
        queue.fetch("a", (0, count))
        queue.now_ms += LOCK_MS
    queue.acknowledge("a", (0, ACCEPT))
    assert queue.at_end(0, start=1, letters=(0,)) == []
