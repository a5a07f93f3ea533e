"""Whatever is lost on the way, each record is in the log at most once, in order, and exactly once if it was delivered.

The broker here is a model of a partition leader's rules for idempotent producers: the next sequence, the last five
batches as duplicates, a new epoch from 0.
"""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.machine.pending_batch import BatchOutcome, Delivered, Failed, PendingBatch
from oncelog.client.machine.producer import ProducerMachine, ProducerSettings
from oncelog.records.batch import next_sequence, read_header
from oncelog.records.record import Record, read_records

PARTITIONS = [TopicPartition(TopicName("t"), index) for index in range(2)]


class LeaderModel:
    """A partition leader."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.max_batch_bytes = 1 << 20
        self.names_records = True
        self._epoch = -1
        self._recent: deque[tuple[int, int, int]] = deque(maxlen=5)

    def refusal(self, batch: PendingBatch) -> tuple[ErrorCode, list[int]] | None:
        """The answer to a batch that is too large, or has bad records, which some brokers name."""
        data = batch.encoded or b""
        if len(data) > self.max_batch_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, []
        records = read_records(data, 0, read_header(data), 1 << 20)
        bad = [index for index, record in enumerate(records) if self._is_bad(record.value or b"")]
        return (ErrorCode.INVALID_TIMESTAMP, bad if self.names_records else []) if bad else None

    def _is_bad(self, value: bytes) -> bool:
        """True for values that are always bad, and for those that grow too old once they are in the log."""
        return value.startswith(b"bad") or (value.startswith(b"ages") and value in self.values)

    def append(self, data: bytes | bytearray) -> tuple[int, int]:
        """Error code and base offset."""
        header = read_header(data)
        key = (header.producer_epoch, header.base_sequence, header.last_sequence)
        if key in self._recent:
            return ErrorCode.NONE, -1
        if header.producer_epoch < self._epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        due = 0 if header.producer_epoch > self._epoch else next_sequence(self._recent[-1][2], 1)
        if header.base_sequence != due and self._epoch >= 0:  # an unknown producer may begin anywhere
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if header.producer_epoch > self._epoch:
            self._epoch = header.producer_epoch
            self._recent.clear()
        self._recent.append(key)
        base_offset = len(self.values)
        self.values += [record.value or b"" for record in read_records(data, 0, header, 1 << 20)]
        return ErrorCode.NONE, base_offset


RESIGNED = {
    "leader resigned": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "leader's disk failed": ErrorCode.KAFKA_STORAGE_ERROR,
    "replicas left": ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
"""Answers to a batch that was appended and waited for replicas, which the next leader has."""
FATES = ("answered", "request lost", "response lost", "refused for now", "refused for good", *RESIGNED)


class World:
    """A producer machine, two leaders, and what happens to each request."""

    def __init__(self, fates: list[str], delivery_timeout_ms: int = 1_000_000) -> None:
        self.machine = ProducerMachine(
            ProducerSettings(batch_bytes=60, linger_ms=0, delivery_timeout_ms=delivery_timeout_ms)
        )
        self.machine.identify(7, 0)
        self.leaders = {partition: LeaderModel() for partition in PARTITIONS}
        self.fates = fates
        self.now_ms = 0
        self.flying: deque[tuple[PendingBatch, str]] = deque()
        self.delivered: list[Delivered] = []
        self.failed: list[Failed] = []

    def send(self) -> None:
        """Everything that may be sent now. On a connection that has lost something nothing more arrives."""
        for partition in list(self.machine.ready(self.now_ms, flush=True)):
            batch = self.machine.drain(partition)
            fate = self.fates.pop() if self.fates else "answered"
            earlier = {item[1] for item in self.flying}
            if "request lost" in earlier:
                fate = "request lost"
            elif "response lost" in earlier:
                fate = "response lost" if fate == "answered" else "request lost"
            self.flying.append((batch, fate))

    def settle(self) -> None:
        """The oldest flight ends."""
        batch, fate = self.flying.popleft()
        self.now_ms += 100
        if fate == "refused for now":
            self.note(self.machine.answered(batch, ErrorCode.NOT_ENOUGH_REPLICAS, -1, None, self.now_ms))
        elif fate == "refused for good":
            self.note(self.machine.answered(batch, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, None, self.now_ms))
        elif (refusal := self.leaders[batch.partition].refusal(batch)) is not None and fate != "request lost":
            if fate == "response lost":
                self.note(self.machine.lost(batch, self.now_ms))
            else:
                self.note(self.machine.answered(batch, refusal[0], -1, None, self.now_ms, refusal[1]))
        elif fate == "request lost":
            self.note(self.machine.lost(batch, self.now_ms))
        else:
            code, offset = self.leaders[batch.partition].append(batch.encoded or b"")
            if fate == "response lost":
                self.note(self.machine.lost(batch, self.now_ms))
            else:
                code = code or RESIGNED.get(fate, ErrorCode.NONE)
                self.note(self.machine.answered(batch, code, offset, None, self.now_ms))

    def note(self, outcome: BatchOutcome | None) -> None:
        if isinstance(outcome, Delivered):
            self.delivered.append(outcome)
        elif outcome is not None:
            self.failed.append(outcome)

    def run_dry(self) -> None:
        for _ in range(10_000):
            for failed in self.machine.renumber():
                self.note(failed)
            self.send()
            if self.flying:
                self.settle()
            elif self.machine.is_empty:
                return
            self.now_ms += 50
        raise AssertionError("the producer does not come to an end")


@pytest.mark.slow
@settings(max_examples=400)
@given(
    st.lists(st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 3)), min_size=1, max_size=60),
    st.lists(st.sampled_from(FATES), max_size=60),
    st.sampled_from([500, 2_000, 1_000_000]),
)
def test_at_most_once_in_order_and_exactly_once_when_delivered(
    plan: list[tuple[TopicPartition, int]], fates: list[str], delivery_timeout_ms: int
) -> None:
    world = World(fates, delivery_timeout_ms)
    sent: dict[TopicPartition, list[bytes]] = {partition: [] for partition in PARTITIONS}
    for number, (partition, flights) in enumerate(plan):
        value = b"%d" % number
        sent[partition].append(value)
        world.machine.add(partition, Record(-1, 0, None, value), world.now_ms)
        world.send()
        for _ in range(min(flights, len(world.flying))):
            world.settle()
    world.run_dry()
    assert world.machine.buffered_bytes == 0
    for item in world.failed:
        assert item.maybe_appended or item.error_code in (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            *([ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] if delivery_timeout_ms < 1_000_000 else []),
        ), "given up because of an earlier failure"
    check_logs(world, sent)


def check_logs(world: World, sent: dict[TopicPartition, list[bytes]]) -> None:
    """Raise AssertionError unless each record is in the log once and in order, or known as given up."""
    for partition in PARTITIONS:
        lost = {r.value for fetched in world.failed if fetched.partition == partition for r in fetched.records}
        doubtful = {
            r.value
            for fetched in world.failed
            if fetched.partition == partition and fetched.maybe_appended
            for r in fetched.records
        }
        values = world.leaders[partition].values
        assert len(values) == len(set(values)), "twice in the log"
        positions = [sent[partition].index(value) for value in values]
        assert positions == sorted(positions), "out of order"
        assert set(sent[partition]) - lost <= set(values), "delivered and not in the log"
        assert set(values) & lost <= doubtful, "given up for certain and yet in the log"


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(PARTITIONS), st.integers(0, 3), st.sampled_from(["", "", "", "x" * 200, "bad", "ages"])
        ),
        min_size=1,
        max_size=60,
    ),
    st.lists(st.sampled_from([fate for fate in FATES if fate != "refused for good"]), max_size=40),
    st.sampled_from([1, 150, 200]),
    st.booleans(),
    st.booleans(),
)
def test_only_the_records_that_a_broker_refuses_are_given_up(
    plan: list[tuple[TopicPartition, int, str]],
    fates: list[str],
    max_batch_bytes: int,
    names_records: bool,
    lowered_late: bool,
) -> None:
    world = World(fates)
    world.machine.settings = ProducerSettings(batch_bytes=600, linger_ms=0)
    max_batch_bytes = max(max_batch_bytes, 61 + 7 + len("ages59"))
    for leader in world.leaders.values():
        leader.names_records = names_records
        leader.max_batch_bytes = 1 << 20 if lowered_late else max_batch_bytes
    sent: dict[TopicPartition, list[bytes]] = {partition: [] for partition in PARTITIONS}
    for number, (partition, flights, kind) in enumerate(plan):
        value = b"%s%d" % (kind.encode(), number)
        sent[partition].append(value)
        world.machine.add(partition, Record(-1, 0, None, value), world.now_ms)
        if number % 5 == 4:
            world.send()
            for leader in world.leaders.values():
                leader.max_batch_bytes = max_batch_bytes
        for _ in range(min(flights, len(world.flying))):
            world.settle()
    world.run_dry()
    check_logs(world, sent)
    if not lowered_late:
        refused = {value for values in sent.values() for value in values if len(value) > 100 or b"bad" in value}
        given_up = {r.value for failed in world.failed for r in failed.records}
        doubtful = {r.value for failed in world.failed if failed.maybe_appended for r in failed.records}
        assert refused <= given_up
        assert given_up - doubtful <= refused


def test_records_that_may_be_in_the_log_are_not_sent_again_beside_a_named_one() -> None:
    world = World(["response lost"])
    world.machine.settings = ProducerSettings(batch_bytes=600, linger_ms=0)
    values = [b"ages0", b"1", b"2"]
    for value in values:
        world.machine.add(PARTITIONS[0], Record(-1, 0, None, value), 0)
    world.run_dry()
    assert world.leaders[PARTITIONS[0]].values == values
    assert [record.value for failed in world.failed for record in failed.records] == values
    assert all(failed.maybe_appended for failed in world.failed)
    assert not world.delivered
    assert world.machine.buffered_bytes == 0


def test_sequences_wrap_to_zero() -> None:
    machine = ProducerMachine(ProducerSettings(batch_bytes=1, linger_ms=0))
    machine.identify(7, 0)
    partition = PARTITIONS[0]
    machine.add(partition, Record(-1, 0, None, b"a"), 0)
    first = machine.drain(partition)
    machine.answered(first, 0, 0, None, 0)
    machine._partitions[partition].next_sequence = 2**31 - 1
    for value in (b"b", b"c"):
        machine.add(partition, Record(-1, 0, None, value), 0)
    numbers = [read_header(machine.drain(partition).encoded or b"").base_sequence for _ in range(2)]
    assert numbers == [2**31 - 1, 0]
