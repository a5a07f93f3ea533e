"""A transactional producer of Transactions V1 that is scripted request by request, right or wrong.

Its epoch stays the same after a transaction, which made KAFKA-9144 possible. Any error raises ClientError: the
transaction ends by its timeout or in the producer's next life. Injectors of hangs use each transactional id once, so
that a late request cannot meet the id's next transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import TRANSACTION_KEY, AsyncClient
from oncelog.client.aio.link import AsyncLink
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.requests import produce_request
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.sim.checkers.history import RecordedOutcome, Transaction, Write
from oncelog.sim.virtual.world import CLIENT_CONFIG, ClientHost
from oncelog.sim.workloads.kit.workload import WorkloadContext
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import PartitionProduceResponse, ProduceRequest
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

INIT_VERSION: Final = 4
ADD_VERSION: Final = 3
PRODUCE_VERSION: Final = 11
END_VERSION: Final = 4
DAY_MS: Final = 86_400_000
_COMPLETE: Final = frozenset({"CompleteCommit", "CompleteAbort"})


class SentRecord(NamedTuple):
    """A sent record; its offset is −1 until it is known."""

    offset: int
    timestamp_ms: int


class ScriptedProducer:
    """``producer_id`` and ``epoch`` are given, or set by ``initialise``."""

    def __init__(
        self,
        context: WorkloadContext,
        host: ClientHost,
        client: AsyncClient,
        name: str,
        *,
        timeout_ms: int,
        age_ms: int = 0,
        producer_id: int = -1,
        epoch: int = 0,
    ) -> None:
        # Prefix of the producer's values and of its entries in the history.
        self.label = name if producer_id < 0 else f"{name}!{producer_id}"
        self.context = context
        self.host = host
        self.client = client
        self.name = name
        self.timeout_ms = timeout_ms
        # Subtracted from the timestamps of its records.
        self.age_ms = age_ms
        self.producer_id = producer_id
        self.epoch = epoch
        self.writes: list[Write] = []
        self.outcome = RecordedOutcome.ABORTED
        self.ending_at: int | None = None
        # The last record sent to each partition.
        self.last: dict[TopicPartition, SentRecord] = {}
        self._count = 0
        self._sequences: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        """Begin another transaction. The caller must have recorded the previous one."""
        self.writes, self.outcome, self.ending_at = [], RecordedOutcome.ABORTED, None

    async def initialise(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self.timeout_ms)
        response = await (await self.coordinator()).call(request, INIT_VERSION)
        _check(response.error_code, "InitProducerId")
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    async def add(self, partitions: Sequence[TopicPartition]) -> None:
        topics = [
            AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition]) for partition in partitions
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        response = await (await self.coordinator()).call(request, ADD_VERSION)
        for topic in response.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                _check(result.partition_error_code, "AddPartitionsToTxn")

    async def add_offsets(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        _check((await (await self.coordinator()).call(request, ADD_VERSION)).error_code, "AddOffsetsToTxn")

    async def commit_offset(self, group: str, place: TopicPartition, offset: int, version: int) -> int:
        """Send a group's offset by TxnOffsetCommit. Returns the error code."""
        partition = TxnOffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=place.topic, partitions=[partition])],
        )
        link = await self.client.link(await self.client.coordinator(group))
        return (await link.call(request, version)).topics[0].partitions[0].error_code

    async def write(self, partition: TopicPartition, value: str | None = None) -> None:
        """Write a record within the transaction, by default with a unique value."""
        value = self.new_value() if value is None else value
        self.writes.append(Write(partition, value, sent_at=self.context.world.kernel.now_us))
        response = await self.send(await self.leader(partition), self.request(partition, value))
        _check(response.error_code, "Produce")
        self.last[partition] = self.last[partition]._replace(offset=response.base_offset)

    def new_value(self) -> str:
        self._count += 1
        return f"{self.label}/{self._count}"

    def request(self, partition: TopicPartition, value: str) -> ProduceRequest:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        self.last[partition] = SentRecord(-1, self.client.now_ms() - self.age_ms)
        batch = build_batch(
            [Record(-1, self.last[partition].timestamp_ms, None, value.encode(), ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        message = produce_request(self.client.view, {partition: batch}, -1, CLIENT_CONFIG.request_timeout_ms)
        message.transactional_id = self.name
        return message

    async def send(
        self, link: AsyncLink, message: ProduceRequest, timeout_ms: int | None = None
    ) -> PartitionProduceResponse:
        """Returns the response for the only partition of a Produce request."""
        response = await link.call(message, PRODUCE_VERSION, timeout_ms)
        return response.responses[0].partition_responses[0]

    async def leader(self, partition: TopicPartition) -> AsyncLink:
        return await self.client.link(await self.client.leader(partition))

    async def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        if commit:
            self.ending_at, self.outcome = self.context.world.kernel.now_us, RecordedOutcome.UNKNOWN
        response = await (await self.coordinator()).call(request, END_VERSION)
        _check(response.error_code, "EndTxn")
        self.outcome = RecordedOutcome.COMMITTED if commit else RecordedOutcome.ABORTED

    async def completed(self) -> None:
        """Wait until all markers are written. Raises ClientError after a while."""
        for _ in range(20):
            link = await self.coordinator()
            response = await link.call(DescribeTransactionsRequest(transactional_ids=[self.name]))
            if response.transaction_states[0].transaction_state in _COMPLETE:
                return
            await self.host.sleep(300)
        raise ClientError(f"{self.name} does not complete")

    def record(self) -> None:
        name = f"{self.label}@{self.host.name}"
        ended = Transaction(name, self.label, list(self.writes), self.outcome, self.ending_at)
        self.context.recorder.transactions.append(ended)

    def record_hung(self, partition: TopicPartition, value: str, *, is_late: bool = True) -> None:
        """Record a hanging write, which is never committed. Unless it ``is_late``, it may be part of the
        transaction.
        """
        write = Write(partition, value, sent_at=self.context.world.kernel.now_us)
        name = f"{self.label}@{self.host.name} late {value}"
        ending_at = None if is_late else self.ending_at
        outcome = RecordedOutcome.ABORTED if ending_at is None else RecordedOutcome.UNKNOWN
        hung = Transaction(name, f"{self.label} late", [write], outcome, ending_at)
        self.context.recorder.transactions.append(hung)

    async def coordinator(self) -> AsyncLink:
        return await self.client.link(await self.client.coordinator(self.name, TRANSACTION_KEY))


def _check(code: int, operation: str) -> None:
    if code != ErrorCode.NONE:
        raise BrokerRefused(code, operation)
