"""Produce (KIP-98, KIP-467, KIP-516, KIP-890): append what came, byte for byte, and answer when ``acks`` says so.

Records are never touched here: the log checks batch headers and checksums, sets offsets in place and writes the
received bytes. acks=1 is answered from the page cache, acks=all when the high watermark has passed the records, which
with ``log.sync.policy=commit`` means that they are on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import INTERNAL_TOPICS, NO_TOPIC_ID, Offset, TopicId, TopicName, TopicPartition
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.context import Context
from oncelog.handlers.waits import Steps, UntilDurable
from oncelog.records.batch import ATTRIBUTES_POSITION, CODEC_MASK, TRANSACTIONAL
from oncelog.records.compression import Codec
from oncelog.storage.errors import AppendRefused
from oncelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from oncelog.storage.log import PartitionLog

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CORRUPT_MESSAGE: "the checksum or the structure of the batch is wrong",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id (version 13)",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic is internal; its records are the broker's to write",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than segment.bytes",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks is not -1, 0 or 1",
    ErrorCode.NOT_ENOUGH_REPLICAS: "acks=all and fewer replicas in sync than min.insync.replicas",
    ErrorCode.REQUEST_TIMED_OUT: "acks=all and not durable within the request's time-out",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the topic was deleted while acks=all was waiting",
    ErrorCode.INVALID_TIMESTAMP: "a timestamp outside message.timestamp.before.max.ms or after.max.ms",
    ErrorCode.INVALID_RECORD: "old magic, not exactly one batch, a control batch, or no key on a compacted topic",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a gap in an idempotent producer's sequence",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional records without a transactional id, or another's",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "zstd before version 7",
    ErrorCode.INVALID_PRODUCER_EPOCH: "an older epoch than the partition has seen",
    ErrorCode.INVALID_TXN_STATE: "a transactional batch outside a transaction",
    ErrorCode.TRANSACTION_ABORTABLE: "the same, told to clients that know the error (version 11)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to write to the topic",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log could not be written",
}

ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id that Apache Kafka lets write to internal topics."""
_KNOWS_ZSTD: Final = 7
_KNOWS_TRANSACTION_ABORTABLE: Final = 11


class _Waiting(NamedTuple):
    """What was appended, and the high watermark at which acks=all may be answered."""

    partition: TopicPartition
    end: Offset
    result: PartitionProduceResponse


def handle(request: ProduceRequest, context: Context) -> ProduceResponse | Steps[ProduceResponse | None] | None:
    """Append every partition's records; None (no response) for acks=0."""
    response = ProduceResponse()
    waiting: list[_Waiting] = []
    allowed = _may_be_transactional(request, context)
    for topic in request.topic_data:
        response.responses.append(_append_topic(topic, request.acks, context, waiting, allowed=allowed))
    if request.acks == ACKS_NONE:
        _close_on_error(response)
        return None
    if request.acks == ACKS_ALL and waiting:
        return _when_durable(response, waiting, context.now_ms + max(0, request.timeout_ms), context)
    return response


def _may_be_transactional(request: ProduceRequest, context: Context) -> bool:
    """False refuses the whole request: transactional records without an id, or with one that is not the requester's."""
    if not _has_transactional(request):
        return True
    name = request.transactional_id
    return name is not None and context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)


def _close_on_error(response: ProduceResponse) -> None:
    """acks=0 has no response; an error is told as Apache Kafka does, by closing the connection."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                raise PeerError(f"produce with acks=0 failed: {ErrorCode(partition.error_code).name}")


def _when_durable(
    response: ProduceResponse, waiting: Sequence[_Waiting], deadline_ms: int, context: Context
) -> Steps[ProduceResponse]:
    ends: dict[TopicPartition, Offset] = {}
    for each in waiting:  # the same partition twice: a duplicate that comes last must not end the wait early
        ends[each.partition] = max(each.end, ends.get(each.partition, each.end))
    late: set[TopicPartition] = yield UntilDurable(ends, deadline_ms)
    for each in waiting:
        if each.partition in late:
            gone = context.broker.log(each.partition) is None
            _refuse(each.result, ErrorCode.NOT_LEADER_OR_FOLLOWER if gone else ErrorCode.REQUEST_TIMED_OUT)
    return response


def _name_of(topic_id: bytes, context: Context) -> str:
    topic = context.broker.image.topic_of_id(TopicId(topic_id))
    return "" if topic is None else topic.name


def _append_topic(
    data: TopicProduceData, acks: int, context: Context, waiting: list[_Waiting], *, allowed: bool
) -> TopicProduceResponse:
    by_id = data.topic_id != NO_TOPIC_ID
    name = TopicName(_name_of(data.topic_id, context) if by_id else data.name or "")
    answer = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
    refusal = _topic_refusal(name, by_id, acks, context)
    if not allowed:
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for partition in data.partition_data:
        result = PartitionProduceResponse(index=partition.index, base_offset=-1, log_append_time_ms=-1)
        if refusal != ErrorCode.NONE:
            _refuse(result, refusal)
        else:
            _append_partition(TopicPartition(name, partition.index), partition, result, acks, context, waiting)
        answer.partition_responses.append(result)
    return answer


def _topic_refusal(name: TopicName, by_id: bool, acks: int, context: Context) -> ErrorCode:
    if by_id and not name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not context.allows(Operation.WRITE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if acks not in (ACKS_ALL, ACKS_NONE, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    return ErrorCode.NONE


def _append_partition(
    partition: TopicPartition,
    data: PartitionProduceData,
    result: PartitionProduceResponse,
    acks: int,
    context: Context,
    waiting: list[_Waiting],
) -> None:
    broker = context.broker
    log = broker.log(partition)
    if log is None:
        _refuse(result, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return
    if partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        _refuse(result, ErrorCode.INVALID_TOPIC_EXCEPTION)
        return
    if acks == ACKS_ALL and broker.in_sync_count(partition) < _least_in_sync(partition, log, context):
        _refuse(result, ErrorCode.NOT_ENOUGH_REPLICAS)
        return
    records = _records(data)
    if context.version < _KNOWS_ZSTD and _codec(records) == Codec.ZSTD:
        _refuse(result, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return
    try:
        appended = log.append(records, now_ms=context.now_ms, leader_epoch=broker.leader_epoch(partition))
    except AppendRefused as refusal:
        _refuse_append(result, refusal, log, context.version)
        return
    except OSError:
        _refuse(result, ErrorCode.KAFKA_STORAGE_ERROR)
        return
    broker.appended(partition, appended.record_count, appended.size_bytes)
    result.base_offset = appended.base_offset
    result.log_append_time_ms = appended.log_append_time_ms
    result.log_start_offset = appended.log_start_offset
    waiting.append(_Waiting(partition, Offset(appended.last_offset + 1), result))


def _least_in_sync(partition: TopicPartition, log: PartitionLog, context: Context) -> int:
    """``min.insync.replicas``, but never more than there are replicas (KIP-966)."""
    topic = context.broker.image.topics[partition.topic]
    return min(log.config.min_insync_replicas, len(topic.partitions[partition.partition].replicas))


def _records(data: PartitionProduceData) -> memoryview:
    records = data.records
    if isinstance(records, memoryview):
        return records
    return memoryview(bytearray(b"" if records is None else records))  # type: ignore[arg-type]  # decoded: bytes


def _attributes(records: memoryview) -> int:
    """The low byte of a batch's attributes, 0 where there is none: the log will refuse what is that short."""
    return records[ATTRIBUTES_POSITION + 1] if len(records) > ATTRIBUTES_POSITION + 1 else 0


def _codec(records: memoryview) -> int:
    return _attributes(records) & CODEC_MASK


def _has_transactional(request: ProduceRequest) -> bool:
    return any(
        _attributes(_records(partition)) & TRANSACTIONAL
        for topic in request.topic_data
        for partition in topic.partition_data
    )


def _refuse_append(result: PartitionProduceResponse, refusal: AppendRefused, log: PartitionLog, version: int) -> None:
    """What the log refused; its start is named only where the log itself was asked, as Apache Kafka does."""
    error_code = refusal.error_code
    if error_code is ErrorCode.INVALID_TXN_STATE and version >= _KNOWS_TRANSACTION_ABORTABLE:
        error_code = ErrorCode.TRANSACTION_ABORTABLE
    _refuse(result, error_code, refusal.message if refusal.spoken else None)
    if refusal.by_log:
        result.log_start_offset = log.log_start_offset
    result.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in refusal.record_errors
    ]


def _refuse(result: PartitionProduceResponse, error_code: ErrorCode, message: str | None = None) -> None:
    result.error_code = error_code
    result.error_message = message
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.log_start_offset = -1
