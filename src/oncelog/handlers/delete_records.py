"""DeleteRecords, versions 0 to 2 (KIP-107): raise a partition's log start offset, so that what is before it is gone.

The segments before it are deleted later, by retention; readers see the new start at once. Offset −1 means the high
watermark: everything that can be read. An offset below the log start changes nothing and is no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import INTERNAL_TOPICS, Offset, TopicName, TopicPartition
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.context import Context
from oncelog.handlers.leadership import led_log
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is beyond the high watermark, or negative and not -1",
    ErrorCode.POLICY_VIOLATION: "the topic's cleanup.policy does not contain delete",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic is internal",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead the partition",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to delete from the topic",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log could not be changed",
}

TO_HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1


def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    """A partition named twice counts once, as it was named last."""
    offsets: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        of_topic = offsets.setdefault(topic.name, {})
        for partition in topic.partitions:
            of_topic[partition.partition_index] = partition.offset
    response = DeleteRecordsResponse()
    for name, of_topic in offsets.items():
        allowed = context.allows(Operation.DELETE, ResourceType.TOPIC, name)
        result = DeleteRecordsTopicResult(name=name)
        for index, offset in of_topic.items():
            outcome: int | ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if allowed:
                outcome = _delete(TopicPartition(TopicName(name), index), offset, context)
            answer = DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_LOW_WATERMARK)
            if isinstance(outcome, ErrorCode):
                answer.error_code = outcome
            else:
                answer.low_watermark = outcome
            result.partitions.append(answer)
        response.topics.append(result)
    return response


def _delete(partition: TopicPartition, offset: int, context: Context) -> int | ErrorCode:
    """The log start offset afterwards, or why not."""
    log = led_log(context.broker, partition)
    if log is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if isinstance(log, ErrorCode):
        return log
    if not log.config.delete:
        return ErrorCode.POLICY_VIOLATION
    if offset == TO_HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0 or offset > log.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if offset > log.log_start_offset:
        try:
            log.delete_records_before(Offset(offset))
            context.broker.keep_log_starts()
        except OSError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        context.broker.readable_changed(partition)
    return log.log_start_offset
