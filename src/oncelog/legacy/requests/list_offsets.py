"""ListOffsets, version 0: where the files of a log begin, and where it ends, newest first.

Asked for a time, it answers the beginnings of the files that were last written at that time or before; as many as
``max_num_offsets`` says. Consumers are told of nothing beyond the high watermark, which stands for what is. The time
is that of the newest record of a file, or of the file where its records have none: later versions of a file's life
(copying, restoring) do not change it.
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
    """Answer every partition once."""
    response = wire.ListOffsetsResponse()
    budget = SliceBudget(context.partitions)
    answered: dict[TopicPartition, wire.ListOffsetsPartitionResponse] = {}
    from_end: dict[TopicPartition, wire.ListOffsetsPartitionResponse] = {}
    asked_ms = context.now_ms
    for topic in request.topics:
        answer = wire.ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answer)
        allowed = context.allows_topic(Operation.DESCRIBE, topic.name)
        for asked in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), asked.partition_index)
            if partition in answered:
                continue
            found: Sequence[int] | ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if allowed:
                found = _offsets(partition, asked, request, context)
            result = answered[partition] = wire.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            if asked.timestamp != EARLIEST:
                from_end[partition] = result
            if isinstance(found, ErrorCode):
                result.error_code = found
            else:
                result.old_style_offsets = list(found)
            answer.partitions.append(result)
            if budget.spent(1 + len(result.old_style_offsets)):
                yield NextSlice()
    if request.replica_id == CLIENT:
        yield from until_confirmed(from_end, asked_ms, context)
    return response


def _offsets(
    partition: TopicPartition, asked: wire.ListOffsetsPartition, request: wire.ListOffsetsRequest, context: Context
) -> Sequence[int] | ErrorCode:
    if asked.max_num_offsets < 0:
        return ErrorCode.INVALID_REQUEST
    leader = context.partitions.leader_log(partition)
    if isinstance(leader, ErrorCode):
        return leader
    try:
        found = offsets_before(leader.log, asked.timestamp, asked.max_num_offsets, context.now_ms)
    except OSError:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    end = leader.log.high_watermark
    if request.replica_id != CLIENT or not found or found[0] <= end:
        return found
    return [end, *(offset for offset in found if offset <= end)]


def offsets_before(log: PartitionLog, timestamp: int, count: int, now_ms: int) -> list[int]:
    """The offsets at which files begin that were written at ``timestamp`` or before, and the log end offset, whose time
    is now; the last ``count`` of them, newest first. Raises OSError."""
    segments = list(log.segments)
    starts: list[int] = [max(segment.base_offset, log.log_start_offset) for segment in segments]
    ends: list[int] = [log.log_end_offset] if segments[-1].size_bytes else []
    if timestamp == EARLIEST:
        found = starts[:1]
    elif timestamp == LATEST:
        found = starts + ends
    else:
        found = [start for start, each in zip(starts, segments, strict=True) if each.largest_timestamp() <= timestamp]
        found += ends if now_ms <= timestamp else []
    return sorted(found[-count:] if count else [], reverse=True)
