"""Fetch, versions 4 to 18 (KIP-74, KIP-227, KIP-320, KIP-392, KIP-516, KIP-951): record batches as the log has them.

The response is sent when ``min_bytes`` are available, when a partition has an error, or after ``max_wait_ms``.
Consumers read up to the high watermark, or with read_committed up to the last stable offset and with the list of
aborted transactions. A follower reads up to the log end offset; its fetch offset acknowledges everything before.

Nothing is read from disk here: records are ranges of files, sent when the socket has room.

Requests with ``replica_id`` ≥ 0 need the right of a broker. From version 11 on a follower serves consumers up to its
high watermark (KIP-392): a leader directs a consumer with a rack to an in-sync follower there, if
``replica.selector.class`` says so (``core.replicas.selector``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.leaders import add_endpoint, leader_hint
from oncelog.handlers.broker.time_slices import needs_slices, run_in_slices
from oncelog.handlers.broker.waits import NextSlice, Steps, UntilReadable
from oncelog.handlers.fetch.follower import read_pending
from oncelog.handlers.fetch.reads import FetchReads
from oncelog.handlers.fetch.request import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    SortedPartitions,
    forgotten_of,
    params_of,
    partitions_of,
    replica_of,
    requester_of,
)
from oncelog.handlers.logs.log_end import MIN_WAIT_MS, until_readable
from oncelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from oncelog.core.sessions.fetch import FetchContext, Finished
    from oncelog.core.sessions.fetch_cache import FetchPartition

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is below the log start offset or beyond the log end offset",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id (version 13)",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the topic of the session was deleted and another created under its name",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker does not lead the partition, or the asking broker has no replica",
    ErrorCode.FENCED_LEADER_EPOCH: "the client's leader epoch is older",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the client's leader epoch is newer",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to read the topic",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "the session is not cached: ask in full",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "not the next request of the session",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "the session was opened with names and goes on with ids, or the reverse",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log could not be read",
    ErrorCode.UNKNOWN_SERVER_ERROR: "a negative size, or an isolation level that does not exist",
}

_TOPIC_IDS_SINCE: Final = 13
_CURRENT_LEADER_SINCE: Final = 16
_STORAGE_ERROR_SINCE: Final = 6

_Answers = list[tuple["FetchPartition", PartitionData]]
"""Partitions as the client fetches them, each with its answer."""


def handle(request: FetchRequest, context: Context) -> Steps[FetchResponse]:
    by_id = context.version >= _TOPIC_IDS_SINCE
    replica = replica_of(request)
    session = context.partitions.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        partitions_of(request, context, by_id=by_id),
        forgotten_of(request, by_id=by_id),
        uses_topic_ids=by_id,
        requester=requester_of(request, context, replica, by_id=by_id),
        now_ms=context.now_ms,
    )
    if session.error_code != ErrorCode.NONE:
        return FetchResponse(error_code=session.error_code)
    if session.session is not None and session.session.pending is not None and request.min_bytes <= 1:
        reads = yield from read_pending(request, context, session.session, session.session.pending)
        return _respond(request, session, reads, context)
    partitions = SortedPartitions(context, replica)
    yield from run_in_slices(session.partitions, partitions.sort_out, context.partitions)
    # A bad isolation level refuses only requests with something to read.
    if partitions.readable and request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refusal_of(request, context, ErrorCode.UNKNOWN_SERVER_ERROR)
    reads = FetchReads(context, partitions, params_of(request, context, replica))
    yield from reads.read_all()
    waits = not reads.urgent() and request.max_wait_ms > 0
    if waits or reads.appended_ends():
        yield from _wait(request, context, reads, waits=waits)
    elif needs_slices(len(session.partitions)):
        yield NextSlice()
    return _respond(request, session, reads, context)


def _wait(request: FetchRequest, context: Context, reads: FetchReads, *, waits: bool) -> Steps[None]:
    """Wait for ``min_bytes`` up to ``max_wait_ms``, if the request ``waits``. If there is still nothing, wait for
    records that were on their way to the disk when the request came."""
    asked_ms, appended_ends = context.now_ms, reads.appended_ends()
    if waits:
        has_new_data = needs_slices(len(reads.partitions)) and reads.ready()  # arrived after their partition was read
        if not has_new_data:
            partitions = [partition for partition, _ in reads.partitions]
            gives_way = replica_of(request) is not None
            yield UntilReadable(partitions, reads.ready, asked_ms + request.max_wait_ms, gives_way)
        yield from reads.read_all()
    # With acks=1 their producer has its response already, so this wait applies to max_wait_ms=0 as well.
    if appended_ends and reads.appended_ends():
        yield from until_readable(appended_ends, asked_ms + max(request.max_wait_ms, MIN_WAIT_MS), context)
        yield from reads.read_all()


def _respond(request: FetchRequest, session: FetchContext, reads: FetchReads, context: Context) -> FetchResponse:
    answers = reads.answers + reads.refused
    is_replica = replica_of(request) is not None
    if is_replica:
        _count_replicated(answers, context)
    elif context.cluster.quotas.enabled:
        return _within_quota(session, answers, context)
    response = _response(session.finish(answers, context.now_ms, reads.caught_up), context)
    if is_replica:
        response.node_endpoints.clear()  # brokers know each other's addresses
    return response


def _count_replicated(answers: _Answers, context: Context) -> None:
    throttle = context.cluster.leader_throttle
    for fetch, answer in answers:
        if answer.records and fetch.topic is not None:
            chunks = answer.records if isinstance(answer.records, list) else [answer.records]
            size = sum(
                len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size_bytes
                for chunk in chunks
            )
            throttle.record(TopicPartition(fetch.topic, fetch.partition), size, context.now_ms)


def _within_quota(session: FetchContext, answers: _Answers, context: Context) -> FetchResponse:
    preview = session.preview(answers)
    response = _response(preview, context)
    writer = response.writer(context.version)
    response.write(writer, context.version)
    throttle_ms = context.cluster.quotas.fetched(context, writer.size_bytes)
    # Over the quota: an empty response, an unchanged session, and a client that has to wait (KIP-219).
    if throttle_ms:
        return FetchResponse(throttle_time_ms=throttle_ms, error_code=preview.error_code, session_id=preview.session_id)
    return _response(session.finish(answers, context.now_ms), context)


def _response(finished: Finished[PartitionData], context: Context) -> FetchResponse:
    response = FetchResponse(error_code=finished.error_code, session_id=finished.session_id)
    by_id = context.version >= _TOPIC_IDS_SINCE
    current: FetchableTopicResponse | None = None
    current_key: TopicId | TopicName | None = None
    for fetch, answer in finished.answers:
        _adapt_to_version(fetch, answer, response, context)
        key = fetch.topic_id if by_id else fetch.topic
        if current is None or key != current_key:
            current = FetchableTopicResponse(topic=fetch.topic or "", topic_id=fetch.topic_id)
            current_key = key
            response.responses.append(current)
        current.partitions.append(answer)
    return response


def _adapt_to_version(fetch: FetchPartition, answer: PartitionData, response: FetchResponse, context: Context) -> None:
    if answer.error_code == ErrorCode.NONE:
        return
    if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and context.version < _STORAGE_ERROR_SINCE:
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if context.version < _CURRENT_LEADER_SINCE or fetch.topic is None:
        return
    hint = leader_hint(TopicPartition(fetch.topic, fetch.partition), answer.error_code, context)
    if hint is not None:
        answer.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
        add_endpoint(response.node_endpoints, NodeEndpoint, hint.leader_id, context)


def _refusal_of(request: FetchRequest, context: Context, error_code: ErrorCode) -> FetchResponse:
    response = FetchResponse(error_code=error_code, session_id=request.session_id)
    # These versions have to find the error beside every partition.
    if context.version < _TOPIC_IDS_SINCE:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition, error_code=error_code, high_watermark=-1, records=b""
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response
