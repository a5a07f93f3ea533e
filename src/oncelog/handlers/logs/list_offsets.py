"""ListOffsets, versions 1 to 11 (KIP-79, KIP-207, KIP-734, KIP-405, KIP-1005, KIP-1023): an offset by time.

A timestamp from 0 on selects the first record at or after it. Negative ones are names: latest, earliest, the record
with the largest timestamp, and three of tiered storage, which this broker lacks: the earliest local offset is the
earliest, nothing is tiered or waits to be. The answer −1 means that there is no such offset; it is no error.

Clients see what they can read: up to the high watermark, with read_committed the last stable offset. An answer that
depends on appended records on their way to the disk waits for them, for ``timeout_ms`` (from version 10 on) or
``request.timeout.ms``: with acks=1 their producer has its response.

An answer that depends on the log's end waits until the other replicas, or the tree, confirm that this broker still
leads: an unaware former leader would return an end that has been passed (R7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset, TopicName, TopicPartition
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.broker_clients import is_trusted_broker
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.ports import FollowerLog, LeaderLog
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.handlers.logs.log_end import end_unknown_error, until_confirmed, until_readable
from oncelog.handlers.logs.searches import searched
from oncelog.records.errors import RecordTooLarge
from oncelog.storage.log.read import search_max_timestamp, search_timestamp
from oncelog.wire.messages import list_offsets as wire

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.storage.log.read import TimestampOffset

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead the partition",
    ErrorCode.FENCED_LEADER_EPOCH: "the client's leader epoch is older",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the client's leader epoch is newer",
    ErrorCode.OFFSET_NOT_AVAILABLE: (
        "the leader was elected just now and does not know what can be read (KIP-207), or cannot tell if it leads still"
    ),
    ErrorCode.LEADER_NOT_AVAILABLE: "the same, before version 5",
    ErrorCode.INVALID_REQUEST: "the partition is named twice",
    ErrorCode.UNSUPPORTED_VERSION: "a negative timestamp that the version does not know",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe the topic",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log could not be read",
    ErrorCode.INVALID_RECORD: "the search met a compressed record larger than max.decompressed.message.bytes",
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
"""The replica id of clients."""
DEBUGGING: Final = -2
"""The replica id of tools that compare replicas: a broker answers for its own copy, led or not."""
SEARCHES_PER_SLICE: Final = 50
"""Each search may inspect some hundred records."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NOTHING: Final = (-1, -1, -1)

Position = tuple[int, int, int]
"""Timestamp, offset and leader epoch; −1 for a value that is unknown or was not requested."""


class _Awaited(NamedTuple):
    """The answer depends on records on their way to the disk; it is known once all before ``end`` is readable."""

    end: Offset
    record: TimestampOffset | None = None
    """The record that was searched for; None if the end was requested."""


_Answer = Position | _Awaited | ErrorCode


def _is_searched(query: wire.ListOffsetsPartition) -> bool:
    return query.timestamp >= 0 or query.timestamp == MAX_TIMESTAMP


def _depends_on_end(query: wire.ListOffsetsPartition, outcome: _Answer) -> bool:
    return query.timestamp in (LATEST, MAX_TIMESTAMP) or (query.timestamp >= 0 and outcome == NOTHING)


class _Late(NamedTuple):
    answer: wire.ListOffsetsPartitionResponse
    partition: TopicPartition
    query: wire.ListOffsetsPartition
    awaited: _Awaited


def handle(request: wire.ListOffsetsRequest, context: Context) -> Steps[wire.ListOffsetsResponse]:
    topics: dict[str, dict[int, list[wire.ListOffsetsPartition]]] = {}
    for topic in request.topics:
        queries = topics.setdefault(topic.name, {})
        for query in topic.partitions:
            queries.setdefault(query.partition_index, []).append(query)
    response, searches = wire.ListOffsetsResponse(), 0
    late: list[_Late] = []
    ends: dict[TopicPartition, wire.ListOffsetsPartitionResponse] = {}
    asked_ms = context.now_ms
    for name, queries in topics.items():
        answer = wire.ListOffsetsTopicResponse(name=name)
        allowed = is_trusted_broker(context) or context.allows_topic(Operation.DESCRIBE, name)
        for index, partition_queries in queries.items():
            partition = TopicPartition(TopicName(name), index)
            outcome: _Answer = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if allowed:
                outcome = yield from _look_up(partition, partition_queries, request, context)
            answered = wire.ListOffsetsPartitionResponse(partition_index=index)
            answer.partitions.append(answered)
            if isinstance(outcome, _Awaited):
                late.append(_Late(answered, partition, partition_queries[0], outcome))
            else:
                _set_outcome(answered, outcome)
            if request.replica_id == CLIENT and _depends_on_end(partition_queries[0], outcome):
                ends[partition] = answered
            searches += _is_searched(partition_queries[0])
            # Searches read records: other requests run in between.
            if searches == SEARCHES_PER_SLICE:
                searches = 0
                yield NextSlice()
        response.topics.append(answer)
    if late:
        yield from _answer_late(late, asked_ms, request, context)
    yield from until_confirmed(ends, asked_ms, context)
    return response


def _answer_late(late: list[_Late], asked_ms: int, request: wire.ListOffsetsRequest, context: Context) -> Steps[None]:
    """Wait for the ends as they were, and answer with what holds then."""
    timeout_ms = context.cluster.config.get("request.timeout.ms")
    if request.timeout_ms > 0:
        timeout_ms = min(timeout_ms, request.timeout_ms)
    ends = {entry.partition: entry.awaited.end for entry in late}
    yield from until_readable(ends, asked_ms + timeout_ms, context)
    for entry in late:
        leader = context.partitions.leader_log(entry.partition, entry.query.current_leader_epoch)
        if isinstance(leader, ErrorCode):
            _set_outcome(entry.answer, leader)
            continue
        readable_end, record = _readable_end(leader.log, request), entry.awaited.record
        if record is None:
            _set_outcome(entry.answer, (-1, readable_end, leader.leader_epoch))
        elif record.offset < readable_end:
            _set_outcome(entry.answer, record)


def _set_outcome(answer: wire.ListOffsetsPartitionResponse, outcome: Position | ErrorCode) -> None:
    if isinstance(outcome, ErrorCode):
        answer.error_code = outcome
    else:
        answer.timestamp, answer.offset, answer.leader_epoch = outcome


def _look_up(
    partition: TopicPartition,
    queries: list[wire.ListOffsetsPartition],
    request: wire.ListOffsetsRequest,
    context: Context,
) -> Steps[_Answer]:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if len(queries) > 1:
        return ErrorCode.INVALID_REQUEST
    timestamp = queries[0].timestamp
    if timestamp < 0 and context.version < KNOWN_SINCE.get(timestamp, context.version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    epoch = queries[0].current_leader_epoch
    replica: LeaderLog | FollowerLog | ErrorCode = context.partitions.leader_log(partition, epoch)
    if replica is ErrorCode.NOT_LEADER_OR_FOLLOWER and request.replica_id == DEBUGGING:
        replica = context.partitions.follower_log(partition, epoch)
    if isinstance(replica, ErrorCode):
        return replica
    try:
        outcome = yield from _find(replica, timestamp, request)
    except OSError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    except RecordTooLarge:
        return ErrorCode.INVALID_RECORD
    return end_unknown_error(context.version) if outcome is ErrorCode.OFFSET_NOT_AVAILABLE else outcome


def _readable_end(log: PartitionLog, request: wire.ListOffsetsRequest) -> Offset:
    if request.replica_id != CLIENT:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark


def _find(copy: LeaderLog | FollowerLog, timestamp: int, request: wire.ListOffsetsRequest) -> Steps[_Answer]:
    log, leader_epoch = copy.log, copy.leader_epoch
    is_client = request.replica_id == CLIENT
    end_is_known = not is_client or isinstance(copy, FollowerLog) or copy.has_reached_epoch_start()
    appended_end = copy.appended_end if is_client else None
    if timestamp == LATEST and not end_is_known:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    if timestamp == LATEST:
        return (-1, _readable_end(log, request), leader_epoch) if appended_end is None else _Awaited(appended_end)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        # An empty log has no batch to take the epoch from.
        return -1, start, leader_epoch if start == log.log_end_offset else log.epoch_of(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    readable_end = _readable_end(log, request)
    record = yield from searched(
        search_max_timestamp(log) if timestamp == MAX_TIMESTAMP else search_timestamp(log, timestamp)
    )
    if record is not None and record.offset < readable_end:
        return record
    if not end_is_known:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    if record is None:
        return NOTHING
    if is_client and log.high_watermark <= record.offset < log.log_end_offset:
        return _Awaited(Offset(record.offset + 1), record)
    return NOTHING
