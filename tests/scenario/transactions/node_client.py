"""A transactional client in front of a node: generators that yield (request, version) and are sent the response.

The generator knows the protocol, whoever runs it knows when an answer comes; so the same client runs straight through,
interleaved with others, or until the power goes. What a client was told is kept in its attempts, for the checks.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.node.kernel.events import Continue
from oncelog.records.batch import iter_headers
from oncelog.records.builder import build_batch
from oncelog.records.control import end_transaction_marker_of
from oncelog.records.record import Record, read_records
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.scenario.node.driver import Driver, Peer

TOPIC = "t"
SOURCE = "source"
GROUP = "g"
SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
"""Small internal topics: a node that starts in no time."""


class StepwiseDriver(Driver):
    """Finishes held effects one at a time; what follows from one is held again."""

    hold_turns = False
    """True while the node has left work for its next turn."""

    def _event_of(self, effect):
        if isinstance(effect, Continue) and self.hold_turns:
            self.held.append(effect)
            return None
        return super()._event_of(effect)

    def finish(self, effect) -> None:
        """Carry out one effect that was held."""
        hold = self.hold_syncs, self.hold_metadata
        self.hold_syncs = self.hold_metadata = False
        event = self._event_of(effect)
        self.hold_syncs, self.hold_metadata = hold
        self.dispatch(event)

    def finish_held(self) -> None:
        """Carry out what is held now, and no more."""
        held, self.held = self.held, []
        for effect in held:
            self.finish(effect)


Steps = Generator[tuple[Any, int], Any, Any]
_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


@dataclass
class Attempt:
    """One transaction as its client knows it."""

    sent: dict[int, list[bytes]] = field(default_factory=dict)
    """Partition → values."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Partition → offset of its first record."""
    offset: int | None = None
    """The offset of the source that it commits."""
    asked: bool | None = None
    """The outcome that was asked for."""
    answered: bool = False
    """True if the broker has agreed."""


@dataclass
class Client:
    """One transactional id. ``v2``: Transactions V2, with partitions added by producing to them."""

    transactional_id: str
    v2: bool = True
    timeout_ms: int = 10_000
    group: str = GROUP
    producer_id: int = -1
    epoch: int = -1
    attempts: list[Attempt] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)

    @property
    def attempt(self) -> Attempt:
        """The transaction under way, or the last one."""
        return self.attempts[-1]

    def initialise(self) -> Steps:
        """InitProducerId; error code."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)
        response = yield from _until_final(request, 5, lambda answer: answer.error_code)
        if response.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return response.error_code

    def begin(self) -> None:
        """Nothing goes over the wire."""
        self.attempts.append(Attempt())

    def add(self, *partitions: int) -> Steps:
        """AddPartitionsToTxn (V1)."""

        def error_code(answer) -> int:
            return max(
                p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition
            )

        response = yield from _until_final(self.add_request(*partitions), 3, error_code)
        return error_code(response)

    def add_request(self, *partitions: int) -> AddPartitionsToTxnRequest:
        """AddPartitionsToTxn as clients of version 3 say it."""
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(partitions))],
        )

    def produce_request(self, partition: int, *values: bytes, topic: str = TOPIC) -> tuple[ProduceRequest, int]:
        """A transactional Produce of one batch with the client's identity and next sequence."""
        records = build_batch(
            [Record(index, 1_700_000_000_000, None, value, ()) for index, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(partition, 0),
            transactional=True,
        )
        data = [PartitionProduceData(index=partition, records=bytes(records))]
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        return request, 12 if self.v2 else 11

    def produce(self, partition: int, *values: bytes) -> Steps:
        """Produce one batch; (error code, base offset)."""
        request, version = self.produce_request(partition, *values)
        self.attempt.sent.setdefault(partition, []).extend(values)
        response = yield from _until_final(
            request, version, lambda answer: answer.responses[0].partition_responses[0].error_code
        )
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            self.sequences[partition] = self.sequences.get(partition, 0) + len(values)
            self.attempt.acknowledged.setdefault(partition, answer.base_offset)
        return answer.error_code, answer.base_offset

    def commit_offset(self, offset: int) -> Steps:
        """The consumer's offset inside the transaction; error code."""
        self.attempt.offset = offset
        yield FindCoordinatorRequest(coordinator_keys=[self.group]), 4
        if not self.v2:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=self.group,
            )
            added = yield from _until_final(add, 3, lambda answer: answer.error_code)
            if added.error_code != ErrorCode.NONE:
                return added.error_code
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=SOURCE, partitions=[partition])],
        )
        response = yield from _until_final(
            request, 5 if self.v2 else 3, lambda answer: answer.topics[0].partitions[0].error_code
        )
        return response.topics[0].partitions[0].error_code

    def end_request(self, committed: bool) -> tuple[EndTxnRequest, int]:
        """EndTxn with the client's identity."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        return request, 5 if self.v2 else 3

    def end(self, committed: bool) -> Steps:
        """EndTxn; error code."""
        self.attempt.asked = committed
        request, version = self.end_request(committed)
        response = yield from _until_final(request, version, lambda answer: answer.error_code)
        if response.error_code == ErrorCode.NONE:
            self.attempt.answered = True
            if self.v2:
                self.producer_id, self.epoch = response.producer_id, response.producer_epoch
                self.sequences.clear()
        return response.error_code

    def transaction(self, label: str, partitions: Sequence[int], committed: bool | None, offset: int | None) -> Steps:
        """A whole transaction of two records a partition; ``committed`` None leaves it open."""
        self.begin()
        if not self.v2:
            assert (yield from self.add(*partitions)) == ErrorCode.NONE
        for partition in partitions:
            values = [f"{self.transactional_id}/{label}/{partition}/{number}".encode() for number in range(2)]
            error_code, _ = yield from self.produce(partition, *values)
            assert error_code == ErrorCode.NONE
        if offset is not None:
            assert (yield from self.commit_offset(offset)) == ErrorCode.NONE
        if committed is not None:
            assert (yield from self.end(committed)) == ErrorCode.NONE
        return None


def _until_final(request, version: int, error_of) -> Steps:
    for _ in range(100):
        response = yield request, version
        if error_of(response) not in _RETRIABLE:
            return response
    raise AssertionError(f"never answered: {request}")


def run(peer: Peer, steps: Steps) -> Any:
    """Run straight through: every answer comes at once."""
    response = None
    try:
        while True:
            response = peer.ask(*steps.send(response))
    except StopIteration as stop:
        return stop.value


def read(driver: Driver, partition: int, *, committed: bool = True, topic: str = TOPIC):
    """(values a consumer would see, last stable offset, high watermark) of a partition, from its beginning."""
    values: list[bytes] = []
    offset = 0
    peer = driver.connect()
    while True:
        expected = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 24,
            isolation_level=int(committed),
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[expected])],
        )
        answer = peer.ask(request, 11).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE, answer
        following = _visible(answer, values, offset)
        if following == offset:
            driver.disconnect(peer)
            return values, answer.last_stable_offset, answer.high_watermark
        offset = following


def _visible(answer, values: list[bytes], offset: int) -> int:
    """Append what a consumer passes on, as the Java client filters; the next offset to fetch."""
    records = bytes(answer.records or b"")
    starting = sorted((entry.first_offset, entry.producer_id) for entry in answer.aborted_transactions or ())
    aborted: set[int] = set()
    for position, header in iter_headers(records):
        while starting and starting[0][0] <= header.last_offset:
            aborted.add(starting.pop(0)[1])
        content = list(read_records(records, position, header, 1 << 20))
        if header.is_control:
            marker = end_transaction_marker_of(content[0])
            if marker is not None and not marker.committed:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            values += [record.value for record in content if record.offset >= offset]
        offset = header.next_offset
    return offset


def committed_offset(driver: Driver, group: str = GROUP, *, require_stable: bool = False) -> int | ErrorCode:
    """The offset that the group has committed of the source, −1: none; or the error for the partition."""
    request = OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=SOURCE, partition_indexes=[0])],
        require_stable=require_stable,
    )
    answer = driver.connect().ask(request, 7)
    if answer.error_code == ErrorCode.NOT_COORDINATOR:
        return -1
    assert answer.error_code == ErrorCode.NONE, answer
    partition = answer.topics[0].partitions[0]
    return ErrorCode(partition.error_code) if partition.error_code else partition.committed_offset


def state_of(driver: Driver, transactional_id: str) -> str:
    """The state in DescribeTransactions, or the name of the error."""
    answer = driver.connect().ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
    (result,) = answer.transaction_states
    return result.transaction_state if result.error_code == 0 else ErrorCode(result.error_code).name


def open_producers(driver: Driver, partition: int, topic: str = TOPIC) -> dict[int, int]:
    """Producer id → first offset of its open transaction."""
    log = driver.node.partitions.leader_log(TopicPartition(topic, partition)).log
    return {
        producer_id: entry.transaction_first_offset
        for producer_id, entry in log.producers.entries.items()
        if entry.transaction_first_offset is not None
    }
