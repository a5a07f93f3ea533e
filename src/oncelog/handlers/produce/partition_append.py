"""One partition of a Produce: its batch, its log, and its answer.

An append is one step of the loop. A worker first validates records that may take long: a batch of some kilobytes may
hold millions of them, or decompress to a hundred megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import (
    INTERNAL_TOPICS,
    NO_TOPIC_ID,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
)
from oncelog.core.transactions.identity import Identity
from oncelog.handlers.api import Operation, ResourceType
from oncelog.records.batch import ATTRIBUTES_POSITION, CODEC_MASK, CorruptBatch, read_header
from oncelog.records.compression import Codec
from oncelog.storage.errors import AppendRefused
from oncelog.storage.log.append import append_batch
from oncelog.storage.log_config import INLINE_VALIDATION_BYTES
from oncelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from oncelog.core.producers.verification import Guard
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.ports import LeaderLog
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.storage.log.record_validation import ValidatedRecords
    from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id that Apache Kafka lets write to internal topics."""
_NOT_ADDED: Final = "Partition was not added to the transaction"
"""Apache Kafka's message for clients before version 11, whose error code says less."""
_KNOWS_ZSTD: Final = 7
_IDS_SINCE: Final = 13
_NO_END: Final = Offset(-1)


class PartitionAppend:
    __slots__ = ("attributes", "end", "guard", "leader", "partition", "records", "result", "unverified", "validated")

    def __init__(self, partition: TopicPartition, records: memoryview, result: PartitionProduceResponse) -> None:
        self.partition = partition
        self.records = records
        self.result = result
        self.attributes = _attributes_of(records)
        self.leader: LeaderLog | None = None
        """The log to append to; resolved again after a wait, in which leadership may move."""
        self.guard: Guard | None = None
        """The guard of the partition's verification as part of the transaction (KIP-890)."""
        self.unverified = ErrorCode.NONE
        """The error for which the partition does not count as part of the transaction."""
        self.validated: ValidatedRecords | None = None
        """The outcome of a worker's validation."""
        self.end = _NO_END
        """The high watermark at which acks=all is answered, once the records are appended."""

    @property
    def is_refused(self) -> bool:
        return bool(self.result.error_code)

    @property
    def is_pending(self) -> bool:
        """True while acks=all waits for the records; with ``log.sync.policy=none`` and no followers never."""
        return self.leader is not None and self.leader.log.high_watermark < self.end

    @property
    def is_guarded(self) -> bool:
        """True while the transaction has not ended since its verification began."""
        if self.leader is None or self.guard is None:
            return False
        return self.leader.log.producers.verifications.is_current(self.guard)

    def replace_records(self, batch: bytearray) -> None:
        self.records = memoryview(batch)
        self.attributes = _attributes_of(self.records)

    def resolve(self, context: Context) -> None:
        leader = context.partitions.leader_log(self.partition)
        if isinstance(leader, ErrorCode):
            self.leader = None
            self.refuse(leader)
        else:
            self.leader = leader
            self.result.error_code = ErrorCode.NONE

    def identity(self) -> Identity | None:
        """The producer of a transactional batch; None for any other or unreadable batch."""
        try:
            header = read_header(self.records)
        except CorruptBatch:
            return None
        if not header.is_transactional or header.producer_id < 0:
            return None
        return Identity(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))

    def refuse(self, error_code: ErrorCode, message: str | None = None) -> None:
        """Answer with an error: nothing was appended."""
        self.end = _NO_END
        result = self.result
        result.error_code = error_code
        result.error_message = message
        result.base_offset = -1
        result.log_append_time_ms = -1
        result.log_start_offset = -1

    def write(
        self,
        acks: int,
        transactional_id: str | None,
        context: Context,
        *,
        verified: bool,
    ) -> int:
        """Append the batch to the log, resolved in this step of the loop, and fill in the answer. Returns the bytes of
        records inspected, at most. Raises TooMuchWork, without a change, if a worker has to validate the records first.

        ``verified``: the coordinator has the partition in the transaction of ``transactional_id``.
        """
        leader = self.leader
        if leader is None:
            return 0
        refusal = self._refusal(leader, acks, context)
        if refusal is not ErrorCode.NONE:
            self.refuse(refusal, _NOT_ADDED if refusal is ErrorCode.INVALID_TXN_STATE else None)
            if refusal is ErrorCode.NOT_ENOUGH_REPLICAS:
                self.result.log_start_offset = leader.log.log_start_offset
            return 0
        try:
            appended = append_batch(
                leader.log,
                self.records,
                now_ms=context.now_ms,
                leader_epoch=leader.leader_epoch,
                verified=verified,
                guard=self.guard,
                transactional_id=transactional_id,
                validated=self.validated,
                bounded=True,
            )
        except AppendRefused as refused:
            self._refuse_as_log(refused, leader)
            return INLINE_VALIDATION_BYTES
        except OSError:
            self.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            return INLINE_VALIDATION_BYTES
        # From here on the records are in the log, whatever happens to the request.
        context.partitions.appended(leader, appended.record_count, appended.size_bytes)
        result = self.result
        result.base_offset = appended.base_offset
        result.log_append_time_ms = appended.log_append_time_ms
        result.log_start_offset = appended.log_start_offset
        self.end = Offset(appended.last_offset + 1)
        return appended.inspected_bytes

    def _refusal(self, leader: LeaderLog, acks: int, context: Context) -> ErrorCode:
        if self.partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if acks == ACKS_ALL and not leader.replicas.has_enough_in_sync():
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if context.version < _KNOWS_ZSTD and self.attributes & CODEC_MASK == Codec.ZSTD:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return self.unverified

    def _refuse_as_log(self, refusal: AppendRefused, leader: LeaderLog) -> None:
        self.refuse(refusal.error_code, refusal.message if refusal.sent_to_client else None)
        # Apache Kafka returns the log start only if the log itself refused.
        if refusal.by_log:
            self.result.log_start_offset = leader.log.log_start_offset
        self.result.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in refusal.record_errors
        ]


def appends_of(request: ProduceRequest, response: ProduceResponse, context: Context) -> list[PartitionAppend]:
    """The partitions of a request, in order; refused if their topic is."""
    appends = []
    for topic in request.topic_data:
        name = _topic_name(topic, context)
        refusal = _topic_refusal(topic, name, request.acks, context)
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(answer)
        for data in topic.partition_data:
            result = PartitionProduceResponse()
            result.index, result.base_offset = data.index, -1
            answer.partition_responses.append(result)
            append = PartitionAppend(TopicPartition(name, data.index), _records_of(data), result)
            if refusal is not ErrorCode.NONE:
                append.refuse(refusal)
            appends.append(append)
    return appends


def _topic_refusal(topic: TopicProduceData, name: TopicName, acks: int, context: Context) -> ErrorCode:
    if not name and context.version >= _IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID  # no check of rights: there is no resource
    if not context.allows(Operation.WRITE, ResourceType.TOPIC, name, len(topic.partition_data)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if acks not in (ACKS_ALL, ACKS_NONE, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    return ErrorCode.NONE


def _topic_name(topic: TopicProduceData, context: Context) -> TopicName:
    if topic.topic_id == NO_TOPIC_ID:
        return TopicName(topic.name or "")
    image = context.cluster.image.topic_of_id(TopicId(topic.topic_id))
    return TopicName("") if image is None else image.name


def _records_of(data: PartitionProduceData) -> memoryview:
    """The received bytes, writable: the log sets offsets in them."""
    records = data.records
    if isinstance(records, memoryview):
        return records
    return memoryview(bytearray(b"" if records is None else records))  # type: ignore[arg-type]  # decoded: bytes


def _attributes_of(records: memoryview) -> int:
    """The low byte of a batch's attributes; 0 for a shorter buffer, which the log refuses."""
    return records[ATTRIBUTES_POSITION + 1] if len(records) > ATTRIBUTES_POSITION + 1 else 0


def unopened(appends: Sequence[PartitionAppend]) -> dict[TopicPartition, Identity]:
    """The partitions with transactional records whose log has no such transaction open."""
    producers: dict[TopicPartition, Identity] = {}
    for append in appends:
        identity = append.identity()
        if append.leader is not None and identity is not None and not _is_open(append.leader.log, identity):
            producers[append.partition] = identity
    return producers


def _is_open(log: PartitionLog, identity: Identity) -> bool:
    entry = log.producers.entries.get(identity.producer_id)
    return entry is not None and entry.transaction_first_offset is not None and entry.epoch == identity.producer_epoch
