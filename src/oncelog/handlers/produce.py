"""Produce (KIP-98, KIP-467, KIP-516, KIP-890): append what came, byte for byte, and answer when ``acks`` says so.

Records are never touched here: the log checks batch headers and checksums, sets offsets in place and writes the
received bytes. acks=1 is answered from the page cache, acks=all when the high watermark has passed the records, which
with ``log.sync.policy=commit`` means that they are on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import NO_TOPIC_ID, Offset, TopicId, TopicName, TopicPartition
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.context import Context
from oncelog.handlers.waits import Steps, UntilDurable
from oncelog.records.batch import ATTRIBUTES_POSITION, TRANSACTIONAL
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

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CORRUPT_MESSAGE: "the checksum or the structure of the batch is wrong",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id (version 13)",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than segment.bytes",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks is not -1, 0 or 1",
    ErrorCode.NOT_ENOUGH_REPLICAS: "acks=all and fewer replicas in sync than min.insync.replicas",
    ErrorCode.REQUEST_TIMED_OUT: "acks=all and not durable within the request's time-out",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the topic was deleted while acks=all was waiting",
    ErrorCode.INVALID_TIMESTAMP: "a timestamp outside message.timestamp.before.max.ms or after.max.ms",
    ErrorCode.INVALID_RECORD: "old magic, not exactly one batch, a control batch, or no key on a compacted topic",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a gap in an idempotent producer's sequence",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the producer's state is gone and the sequence does not begin at 0",
    ErrorCode.INVALID_PRODUCER_EPOCH: "an older epoch than the partition has seen",
    ErrorCode.INVALID_TXN_STATE: "a transactional batch outside a transaction",
    ErrorCode.TRANSACTION_ABORTABLE: "the same, told to clients that know the error (version 11)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to write to the topic",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log could not be written",
}

ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
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
    for topic in request.topic_data:
        response.responses.append(_append_topic(topic, request.acks, context, waiting))
    if request.acks == ACKS_NONE:
        _close_on_error(response)
        return None
    if request.acks == ACKS_ALL and waiting:
        return _when_durable(response, waiting, context.now_ms + max(0, request.timeout_ms), context)
    return response


def _close_on_error(response: ProduceResponse) -> None:
    """acks=0 has no response; an error is told as Apache Kafka does, by closing the connection."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                raise PeerError(f"produce with acks=0 failed: {ErrorCode(partition.error_code).name}")


def _when_durable(
    response: ProduceResponse, waiting: Sequence[_Waiting], deadline_ms: int, context: Context
) -> Steps[ProduceResponse]:
    late: set[TopicPartition] = yield UntilDurable({each.partition: each.end for each in waiting}, deadline_ms)
    for each in waiting:
        if each.partition in late:
            gone = context.broker.log(each.partition) is None
            _refuse(each.result, ErrorCode.NOT_LEADER_OR_FOLLOWER if gone else ErrorCode.REQUEST_TIMED_OUT)
    return response


def _name_of(topic_id: bytes, context: Context) -> str:
    topic = context.broker.image.topic_of_id(TopicId(topic_id))
    return "" if topic is None else topic.name


def _append_topic(data: TopicProduceData, acks: int, context: Context, waiting: list[_Waiting]) -> TopicProduceResponse:
    by_id = data.topic_id != NO_TOPIC_ID
    name = TopicName(_name_of(data.topic_id, context) if by_id else data.name or "")
    answer = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
    refusal = _topic_refusal(name, by_id, acks, context)
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
    if acks == ACKS_ALL and log.config.min_insync_replicas > broker.in_sync_count(partition):
        _refuse(result, ErrorCode.NOT_ENOUGH_REPLICAS)
        return
    records = data.records
    if not isinstance(records, memoryview):
        records = memoryview(bytearray(b"" if records is None else records))  # type: ignore[arg-type]  # decoded: bytes
    if _is_transactional(records):
        knows = context.version >= _KNOWS_TRANSACTION_ABORTABLE
        _refuse(result, ErrorCode.TRANSACTION_ABORTABLE if knows else ErrorCode.INVALID_TXN_STATE)
        return
    try:
        appended = log.append(records, now_ms=context.now_ms, leader_epoch=broker.leader_epoch(partition))
    except AppendRefused as refusal:
        _refuse(result, refusal.error_code, refusal.message)
        result.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in refusal.record_errors
        ]
        return
    except OSError as error:
        _refuse(result, ErrorCode.KAFKA_STORAGE_ERROR, f"could not write {partition}: {error.strerror}")
        return
    broker.appended(partition, appended.record_count, appended.size_bytes)
    result.base_offset = appended.base_offset
    result.log_append_time_ms = appended.log_append_time_ms
    result.log_start_offset = appended.log_start_offset
    waiting.append(_Waiting(partition, Offset(appended.last_offset + 1), result))


def _is_transactional(records: memoryview) -> bool:
    """No transaction can be open before there is a transaction coordinator, so such a batch is always a stray one."""
    return len(records) > ATTRIBUTES_POSITION + 1 and bool(records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL)


def _refuse(result: PartitionProduceResponse, error_code: ErrorCode, message: str | None = None) -> None:
    result.error_code = error_code
    result.error_message = message
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.log_start_offset = -1
