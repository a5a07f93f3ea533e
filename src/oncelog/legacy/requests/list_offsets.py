"""ListOffsets, version 0: the offsets at which the files of a log begin, and its end, newest first.

For a timestamp it returns the start of each file last written at or before that time, at most ``max_num_offsets``; to
consumers nothing beyond the high watermark, which stands for the end. A file's time is that of its newest record, or
its modification time if records have none, so that copying or restoring a file does not change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.time_slices import SliceBudget
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.handlers.logs.list_offsets import CLIENT, EARLIEST, LATEST
from oncelog.handlers.logs.log_end import until_confirmed
from oncelog.wire.messages import list_offsets as wire

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog

ERRORS: Final[Mapping[ErrorCode, str]] = {ErrorCode.INVALID_REQUEST: "a negative number of offsets"}


def handle(request: wire.ListOffsetsRequest, context: Context) -> Steps[wire.ListOffsetsResponse]:
    response = wire.ListOffsetsResponse()
    budget = SliceBudget(context.partitions)
    answered: dict[TopicPartition, wire.ListOffsetsPartitionResponse] = {}
    from_end: dict[TopicPartition, wire.ListOffsetsPartitionResponse] = {}
    started_ms = context.now_ms
    for topic in request.topics:
        answer = wire.ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answer)
        allowed = context.allows_topic(Operation.DESCRIBE, topic.name)
        for requested in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), requested.partition_index)
            if partition in answered:
                continue
            offsets: Sequence[int] | ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if allowed:
                offsets = _offsets(partition, requested, request, context)
            result = answered[partition] = wire.ListOffsetsPartitionResponse(partition_index=requested.partition_index)
            if requested.timestamp != EARLIEST:
                from_end[partition] = result
            if isinstance(offsets, ErrorCode):
                result.error_code = offsets
            else:
                result.old_style_offsets = list(offsets)
            answer.partitions.append(result)
            if budget.spent(1 + len(result.old_style_offsets)):
                yield NextSlice()
    if request.replica_id == CLIENT:
        yield from until_confirmed(from_end, started_ms, context)
    return response


def _offsets(
    partition: TopicPartition, requested: wire.ListOffsetsPartition, request: wire.ListOffsetsRequest, context: Context
) -> Sequence[int] | ErrorCode:
    if requested.max_num_offsets < 0:
        return ErrorCode.INVALID_REQUEST
    leader = context.partitions.leader_log(partition)
    if isinstance(leader, ErrorCode):
        return leader
    try:
        offsets = offsets_before(leader.log, requested.timestamp, requested.max_num_offsets, context.now_ms)
    except OSError:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    end = leader.log.high_watermark
    if request.replica_id != CLIENT or not offsets or offsets[0] <= end:
        return offsets
    return [end, *(offset for offset in offsets if offset <= end)]


def offsets_before(log: PartitionLog, timestamp: int, count: int, now_ms: int) -> list[int]:
    """The start offsets of files written at or before ``timestamp``, and the log end offset, whose time is now; the
    last ``count``, newest first. Raises OSError.
    """
    segments = list(log.segments)
    starts: list[int] = [max(segment.base_offset, log.log_start_offset) for segment in segments]
    ends: list[int] = [log.log_end_offset] if segments[-1].size_bytes else []
    if timestamp == EARLIEST:
        offsets = starts[:1]
    elif timestamp == LATEST:
        offsets = starts + ends
    else:
        offsets = [
            start for start, segment in zip(starts, segments, strict=True) if segment.largest_timestamp() <= timestamp
        ]
        offsets += ends if now_ms <= timestamp else []
    return sorted(offsets[-count:] if count else [], reverse=True)
