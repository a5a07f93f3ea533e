"""ListOffsets, versions 1 to 11 (KIP-79, KIP-207, KIP-734, KIP-405, KIP-1005, KIP-1023): an offset by time.

A timestamp of 0 or more asks for the first record at that time or later. Negative ones are names, each known since a
version: latest, earliest, the record with the largest timestamp, and three about tiered storage, which this broker
does not have: its earliest local offset is the earliest, nothing is tiered, nothing waits to be. The answer −1 means
that there is no such offset; it is not an error.

Clients see what they can read: up to the high watermark, with read_committed up to the last stable offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.leadership import LeaderLog
from oncelog.handlers.support.waits import NextSlice, Offload, Steps
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from oncelog.storage.log.read import Search, TimestampOffset

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead the partition",
    ErrorCode.FENCED_LEADER_EPOCH: "the client's leader epoch is older",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the client's leader epoch is newer",
    ErrorCode.INVALID_REQUEST: "the partition is named twice",
    ErrorCode.UNSUPPORTED_VERSION: "a negative timestamp that the version does not know",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe the topic",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log could not be read",
    ErrorCode.UNKNOWN_SERVER_ERROR: "an isolation level that does not exist",
}

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
KNOWN_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""First version of each special timestamp."""

CLIENT: Final = -1
"""The replica id of everybody who is no broker."""
SEARCHES_PER_SLICE: Final = 50
"""Each may look at some hundred records."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NOTHING: Final = (-1, -1, -1)

Found = tuple[int, int, int]
"""Timestamp, offset and leader epoch; −1 for what is not known or not asked."""


def _is_searched(asked: ListOffsetsPartition) -> bool:
    return asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP


def handle(request: ListOffsetsRequest, context: Context) -> Steps[ListOffsetsResponse]:
    """Answer every partition once, in the order of the request. Where a record has to be searched for, others have
    their turn meanwhile."""
    asked: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
    for topic in request.topics:
        of_topic = asked.setdefault(topic.name, {})
        for partition in topic.partitions:
            of_topic.setdefault(partition.partition_index, []).append(partition)
    response, searches = ListOffsetsResponse(), 0
    for name, of_topic in asked.items():
        answer = ListOffsetsTopicResponse(name=name)
        allowed = context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
        for index, partitions in of_topic.items():
            if allowed:
                outcome = yield from _look_up(TopicPartition(TopicName(name), index), partitions, request, context)
            else:
                outcome = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer.partitions.append(_answer(index, outcome))
            searches += _is_searched(partitions[0])
            if searches == SEARCHES_PER_SLICE:
                searches = 0
                yield NextSlice()
        response.topics.append(answer)
    return response


def _answer(index: int, outcome: Found | ErrorCode) -> ListOffsetsPartitionResponse:
    if isinstance(outcome, ErrorCode):
        return ListOffsetsPartitionResponse(partition_index=index, error_code=outcome)
    timestamp, offset, leader_epoch = outcome
    return ListOffsetsPartitionResponse(
        partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
    )


def _look_up(
    partition: TopicPartition, asked: list[ListOffsetsPartition], request: ListOffsetsRequest, context: Context
) -> Steps[Found | ErrorCode]:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if len(asked) > 1:
        return ErrorCode.INVALID_REQUEST
    timestamp = asked[0].timestamp
    if timestamp < 0 and context.version < KNOWN_SINCE.get(timestamp, context.version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    leader = context.partitions.leader_log(partition, asked[0].current_leader_epoch)
    if isinstance(leader, ErrorCode):
        return leader
    log = leader.log
    if request.replica_id != CLIENT:
        readable_end = log.log_end_offset
    elif request.isolation_level == READ_COMMITTED:
        readable_end = log.last_stable_offset
    else:
        readable_end = log.high_watermark
    try:
        return (yield from _find(leader, timestamp, readable_end))
    except OSError:
        return ErrorCode.KAFKA_STORAGE_ERROR


def _find(leader: LeaderLog, timestamp: int, readable_end: int) -> Steps[Found]:
    log, leader_epoch = leader.log, leader.leader_epoch
    if timestamp == LATEST:
        return -1, readable_end, leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return -1, start, leader_epoch if start == log.log_end_offset else log.epoch_of(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    found = yield from _searched(
        log.search_max_timestamp() if timestamp == MAX_TIMESTAMP else log.search_timestamp(timestamp)
    )
    if found is None or found.offset >= readable_end:
        return NOTHING
    return found.timestamp, found.offset, found.leader_epoch


def _searched(search: Search) -> Steps[TimestampOffset | None]:
    """What is found; batches of very many records are looked through aside."""
    found: TimestampOffset | None = None
    try:
        scan = next(search)
        while True:
            scan = search.send((yield Offload(scan)))
    except StopIteration as end:
        found = end.value
    return found
