"""What a Produce request does to one topic: each batch into its log, or refused. Not an API.

All of it happens in one turn of the loop: what is asked beforehand (the transaction coordinator, a look at the records)
comes with :class:`Appending`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import INTERNAL_TOPICS, NO_TOPIC_ID, Offset, TopicId, TopicName, TopicPartition
from oncelog.core.producers.verification import Guard
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.leadership import exists
from oncelog.records.batch import ATTRIBUTES_POSITION, CODEC_MASK
from oncelog.records.compression import Codec
from oncelog.storage.errors import AppendRefused
from oncelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.storage.log.record_validation import ValidatedRecords

ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id that Apache Kafka lets write to internal topics."""
_NOT_ADDED: Final = "Partition was not added to the transaction"
"""Apache Kafka's words for clients before version 11, whose error code says less."""
_KNOWS_ZSTD: Final = 7


class Waiting(NamedTuple):
    """What was appended, and the high watermark at which acks=all may be answered."""

    partition: TopicPartition
    end: Offset
    result: PartitionProduceResponse


@dataclass(slots=True)
class Appending:
    """One request on its way into the logs."""

    context: Context
    acks: int
    allowed: bool
    """False refuses everything: transactional records without an id, or with one that is not the requester's."""
    refused: Mapping[TopicPartition, ErrorCode]
    """What the transaction coordinator does not know as part of the transaction."""
    verified: bool
    validated: Mapping[int, ValidatedRecords]
    """What was found in batches of very many records, by the identity of their partition's data."""
    in_slices: bool
    """There are so many partitions that others have their turn in between. What a client has sent that leaves
    meanwhile is lost from there on; a producer's request has a thousandth of that."""
    guards: Mapping[TopicPartition, Guard] = field(default_factory=dict)
    """Under which partitions were verified."""
    transactional_id: str | None = None
    """Whose the transactional records are; only one whose requester may use it."""
    waiting: list[Waiting] = field(default_factory=list)


def append_topic(data: TopicProduceData, appending: Appending) -> TopicProduceResponse:
    by_id = data.topic_id != NO_TOPIC_ID
    name = TopicName(name_of(data.topic_id, appending.context) if by_id else data.name or "")
    answer = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
    refusal = _topic_refusal(name, by_id, appending)
    for partition in data.partition_data:
        result = PartitionProduceResponse(index=partition.index, base_offset=-1, log_append_time_ms=-1)
        if refusal != ErrorCode.NONE:
            refuse(result, refusal)
        else:
            _append_partition(TopicPartition(name, partition.index), partition, result, appending)
        answer.partition_responses.append(result)
    return answer


def _topic_refusal(name: TopicName, by_id: bool, appending: Appending) -> ErrorCode:
    if not appending.allowed:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if by_id and not name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not appending.context.allows(Operation.WRITE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if appending.acks not in (ACKS_ALL, ACKS_NONE, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    return ErrorCode.NONE


def _append_partition(
    partition: TopicPartition, data: PartitionProduceData, result: PartitionProduceResponse, appending: Appending
) -> None:
    context, broker = appending.context, appending.context.broker
    log = broker.log(partition)
    if log is None:
        led_elsewhere = exists(broker, partition)
        refuse(result, ErrorCode.NOT_LEADER_OR_FOLLOWER if led_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return
    records = records_of(data)
    refusal = _partition_refusal(partition, log, records, appending)
    if refusal != ErrorCode.NONE:
        refuse(result, refusal, _NOT_ADDED if refusal is ErrorCode.INVALID_TXN_STATE else None)
        return
    try:
        appended = log.append(
            records,
            now_ms=context.now_ms,
            leader_epoch=broker.leader_epoch(partition),
            verified=appending.verified,
            guard=appending.guards.get(partition),
            transactional_id=appending.transactional_id,
            validated=appending.validated.get(id(data)),
        )
    except AppendRefused as refused:
        _refuse_append(result, refused, log)
        return
    except OSError:
        refuse(result, ErrorCode.KAFKA_STORAGE_ERROR)
        return
    broker.appended(partition, appended.record_count, appended.size_bytes)
    result.base_offset = appended.base_offset
    result.log_append_time_ms = appended.log_append_time_ms
    result.log_start_offset = appended.log_start_offset
    appending.waiting.append(Waiting(partition, Offset(appended.last_offset + 1), result))


def _partition_refusal(
    partition: TopicPartition, log: PartitionLog, records: memoryview, appending: Appending
) -> ErrorCode:
    context, broker = appending.context, appending.context.broker
    if partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if appending.acks == ACKS_ALL and broker.in_sync_count(partition) < _least_in_sync(partition, log, context):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if context.version < _KNOWS_ZSTD and _codec(records) == Codec.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return appending.refused.get(partition, ErrorCode.NONE)


def _least_in_sync(partition: TopicPartition, log: PartitionLog, context: Context) -> int:
    """``min.insync.replicas``, but never more than there are replicas (KIP-966)."""
    topic = context.broker.image.topics[partition.topic]
    return min(log.config.min_insync_replicas, len(topic.partitions[partition.partition].replicas))


def _refuse_append(result: PartitionProduceResponse, refusal: AppendRefused, log: PartitionLog) -> None:
    """What the log refused; its start is named only where the log itself was asked, as Apache Kafka does."""
    refuse(result, refusal.error_code, refusal.message if refusal.spoken else None)
    if refusal.by_log:
        result.log_start_offset = log.log_start_offset
    result.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in refusal.record_errors
    ]


def refuse(result: PartitionProduceResponse, error_code: ErrorCode, message: str | None = None) -> None:
    result.error_code = error_code
    result.error_message = message
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.log_start_offset = -1


def name_of(topic_id: bytes, context: Context) -> str:
    topic = context.broker.image.topic_of_id(TopicId(topic_id))
    return "" if topic is None else topic.name


def records_of(data: PartitionProduceData) -> memoryview:
    records = data.records
    if isinstance(records, memoryview):
        return records
    return memoryview(bytearray(b"" if records is None else records))  # type: ignore[arg-type]  # decoded: bytes


def attributes_of(records: memoryview) -> int:
    """The low byte of a batch's attributes, 0 where there is none: the log will refuse what is that short."""
    return records[ATTRIBUTES_POSITION + 1] if len(records) > ATTRIBUTES_POSITION + 1 else 0


def _codec(records: memoryview) -> int:
    return attributes_of(records) & CODEC_MASK
