"""Fetch, versions 4 to 18 (KIP-74, KIP-227, KIP-320, KIP-392, KIP-516, KIP-951): records as they lie in the log.

The answer comes when ``min_bytes`` are there, when a partition has an error, or after ``max_wait_ms``. Consumers read
up to the high watermark, or with read_committed up to the last stable offset and with the list of what was aborted.
Where nothing else is there, appended records on their way to the disk are waited for, also with ``max_wait_ms=0``.
Nothing is read from disk here: records are ranges of files that are sent when the socket has room.

Requests of other brokers (``replica_id`` ≥ 0) need the right of a broker. A follower reads up to the log end offset,
and says by the offset it fetches from that it has all before.

A follower serves consumers up to its high watermark from version 11 on (KIP-392). A leader sends a consumer that names
its rack to a follower in sync there, if ``replica.selector.class`` says so (``core.replicas.selector``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, Offset, TopicId, TopicName, TopicPartition
from oncelog.base.units import INT64_MAX
from oncelog.core.configs.server_keys import RACK_AWARE_SELECTOR
from oncelog.core.replicas.selector import preferred_read_replica
from oncelog.core.sessions.fetch import FetchContext, Finished
from oncelog.core.sessions.fetch_cache import FetchPartition, PartitionKey
from oncelog.handlers.api import CLUSTER_NAME, Operation, ResourceType
from oncelog.handlers.fetch.follower import read_pending
from oncelog.handlers.fetch.reads import UNKNOWN, FetchReads, Preferred, Replica, failed, topic_name
from oncelog.handlers.support.appended_records import LEAST_WAIT_MS, until_readable
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.leader_hints import add_endpoint, leader_hint
from oncelog.handlers.support.leadership import LeaderLog
from oncelog.handlers.support.waits import NextSlice, Steps, UntilReadable
from oncelog.handlers.support.yielding import items_per_slice
from oncelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

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

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_MANY: Final = 1000
T = TypeVar("T")
_TOPIC_IDS_SINCE: Final = 13
_CURRENT_LEADER_SINCE: Final = 16
_FROM_FOLLOWERS_SINCE: Final = 11
_STORAGE_ERROR_SINCE: Final = 6


def handle(request: FetchRequest, context: Context) -> Steps[FetchResponse]:
    """Read what was asked for, or wait for it."""
    by_id = context.version >= _TOPIC_IDS_SINCE
    replica = _replica(request)
    session = context.partitions.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        _asked(request, context, by_id=by_id),
        _forgotten(request, by_id=by_id),
        uses_topic_ids=by_id,
        privileged=replica is not None,
        now_ms=context.now_ms,
    )
    if session.error_code != ErrorCode.NONE:
        return FetchResponse(error_code=session.error_code)
    sorting = _Sorting(context, replica)
    if session.session is not None and session.session.pending is not None and request.min_bytes <= 1:
        return (yield from _follow(request, context, session, replica))
    if len(session.partitions) > _MANY:
        return (yield from _in_slices(request, context, session, sorting))
    sorting.sort_out(session.partitions)
    reads = _reads(request, context, sorting)
    if reads is None:
        return _refused(request, context, ErrorCode.UNKNOWN_SERVER_ERROR)
    reads.read(reads.partitions)
    if (reads.urgent() or request.max_wait_ms <= 0) and not reads.on_their_way():
        return _answer(request, session, reads.answers + sorting.refused, context)
    return (yield from _wait(request, context, session, reads, sorting.refused))


def _follow(
    request: FetchRequest, context: Context, session: FetchContext, replica: Replica | None
) -> Steps[FetchResponse]:
    """Answer a follower within its session."""

    def begin(partitions: Sequence[FetchPartition]) -> tuple[FetchReads, list[tuple[FetchPartition, PartitionData]]]:
        sorting = _Sorting(context, replica)
        sorting.sort_out(partitions)
        return _limited(request, context, sorting), sorting.refused

    read = yield from read_pending(request, context, session, begin)
    _count_replicated(read.answers, context)
    return _respond(session, read.answers, context, read.level)


def _replica(request: FetchRequest) -> Replica | None:
    """The broker that asks, None for consumers."""
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return Replica(BrokerId(state.replica_id), state.replica_epoch)
    return Replica(BrokerId(request.replica_id), UNKNOWN) if request.replica_id >= 0 else None


def _reads(request: FetchRequest, context: Context, sorting: _Sorting) -> FetchReads | None:
    """The reads of the request, None where the isolation level does not exist."""
    if sorting.readable and request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return None
    return _limited(request, context, sorting)


def _limited(request: FetchRequest, context: Context, sorting: _Sorting) -> FetchReads:
    """The reads of the request, with its limits."""
    return FetchReads(
        context.partitions,
        sorting.readable,
        min_bytes=request.min_bytes,
        max_bytes=_max_bytes(request, context, sorting),
        read_committed=request.isolation_level == READ_COMMITTED and sorting.replica is None,
        replica=sorting.replica,
        anew=request.session_epoch <= 0,
        from_followers=sorting.replica is None and context.version >= _FROM_FOLLOWERS_SINCE,
        preferred=_preferred(request, context) if request.rack_id and sorting.replica is None else None,
        holds_back=partial(_holds_back, context) if sorting.replica is not None else None,
    )


def _holds_back(context: Context, partition: TopicPartition) -> bool:
    """By the time of the step: a request that waits goes on later."""
    return context.cluster.leader_throttle.holds_back(partition, context.now_ms)


def _max_bytes(request: FetchRequest, context: Context, sorting: _Sorting) -> int:
    most: int = min(request.max_bytes, context.cluster.config.get("fetch.max.bytes"))
    quotas = context.cluster.quotas
    if quotas.enabled and sorting.replica is None:
        within = quotas.most_fetched(context)
        most = most if within is None else min(most, within)
    return most


def _preferred(request: FetchRequest, context: Context) -> Preferred | None:
    """The choice of a replica for a consumer that names its rack; None: it reads where it asks."""
    if context.cluster.config.get("replica.selector.class") != RACK_AWARE_SELECTOR:
        return None
    racks = {broker_id: each.rack for broker_id, each in context.cluster.image.brokers.items() if not each.fenced}

    def preferred(leader: LeaderLog, offset: Offset) -> BrokerId | None:
        followers = leader.replicas.read_replicas(offset, context.now_ms)
        return preferred_read_replica(request.rack_id, context.cluster.broker_id, followers, racks)

    return preferred


def _in_slices(
    request: FetchRequest, context: Context, session: FetchContext, sorting: _Sorting
) -> Steps[FetchResponse]:
    """Sort and read in slices: others have their turn after a thousand partitions each time."""
    for some in _slices(session.partitions, context):
        yield NextSlice()
        sorting.sort_out(some)
    reads = _reads(request, context, sorting)
    if reads is None:
        return _refused(request, context, ErrorCode.UNKNOWN_SERVER_ERROR)
    yield from _read_in_slices(reads, context)
    waits = not reads.urgent() and request.max_wait_ms > 0
    if waits or reads.on_their_way():
        missed = waits and reads.ready()  # something came after its partition was read
        return (yield from _wait(request, context, session, reads, sorting.refused, missed=missed))
    yield NextSlice()
    return _answer(request, session, reads.answers + sorting.refused, context)


def _read_in_slices(reads: FetchReads, context: Context) -> Steps[None]:
    for some in _slices(reads.partitions, context):
        yield NextSlice()
        reads.read(some)


def _slices(items: Sequence[T], context: Context) -> Iterator[Sequence[T]]:
    start = 0
    while start < len(items):
        size = items_per_slice(context.partitions)
        yield items[start : start + size]
        start += size


def _wait(
    request: FetchRequest,
    context: Context,
    session: FetchContext,
    reads: FetchReads,
    refused: list[tuple[FetchPartition, PartitionData]],
    *,
    missed: bool = False,
) -> Steps[FetchResponse]:
    """Wait for ``min_bytes`` for ``max_wait_ms``; if there is nothing at all then, for records that were on their way
    to the disk when they were asked for: their producer may have been told of them."""
    asked_ms, on_their_way = context.now_ms, reads.on_their_way()
    if missed:
        yield from _read_again(reads, context)
    elif request.max_wait_ms > 0 and not reads.urgent():
        partitions = [name for name, _ in reads.partitions]
        gives_way = _replica(request) is not None
        yield UntilReadable(partitions, reads.ready, asked_ms + request.max_wait_ms, gives_way)
        yield from _read_again(reads, context)
    if on_their_way and reads.on_their_way():
        yield from until_readable(on_their_way, asked_ms + max(request.max_wait_ms, LEAST_WAIT_MS), context)
        yield from _read_again(reads, context)
    return _answer(request, session, reads.answers + refused, context)


def _read_again(reads: FetchReads, context: Context) -> Steps[None]:
    reads.begin()
    if len(reads.partitions) > _MANY:
        yield from _read_in_slices(reads, context)
    else:
        reads.read(reads.partitions)


def _asked(request: FetchRequest, context: Context, *, by_id: bool) -> Iterator[FetchPartition]:
    for topic in request.topics:
        topic_id = TopicId(topic.topic_id)
        name = topic_name(context.cluster, topic_id) if by_id else TopicName(topic.topic)
        for partition in topic.partitions:
            asked = FetchPartition(
                topic_id,
                name,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
            )
            asked.log_start_offset = partition.log_start_offset
            if partition.high_watermark != INT64_MAX:  # a follower's own (KIP-1166)
                asked.told_high_watermark = partition.high_watermark
            yield asked


def _forgotten(request: FetchRequest, *, by_id: bool) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key: TopicId | TopicName = TopicId(topic.topic_id) if by_id else TopicName(topic.topic)
        for partition in topic.partitions:
            yield key, partition


class _Sorting:
    """Sorts partitions into those to read and the answers for the others."""

    __slots__ = ("_allowed", "_context", "_is_broker", "readable", "refused", "replica")

    def __init__(self, context: Context, replica: Replica | None) -> None:
        self._context = context
        self.replica = replica
        self._is_broker = replica is not None and context.allows(
            Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )
        self._allowed: dict[TopicName, bool] = {}
        self.readable: list[tuple[TopicPartition, FetchPartition]] = []
        self.refused: list[tuple[FetchPartition, PartitionData]] = []

    def sort_out(self, partitions: Iterable[FetchPartition]) -> None:
        """Put each where it belongs."""
        cluster = self._context.cluster
        for asked in partitions:
            topic = asked.topic
            if topic is None:
                topic = asked.topic = topic_name(cluster, asked.topic_id)
            if topic is None and (self._is_broker or self.replica is None):
                self.refused.append((asked, failed(asked, ErrorCode.UNKNOWN_TOPIC_ID, read=False)))
                continue
            topic = topic or TopicName("")
            name = TopicPartition(topic, asked.partition)
            if not self._allows(topic):
                self.refused.append((asked, failed(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED, read=False)))
            elif not cluster.image.has_partition(name):
                self.refused.append((asked, failed(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, read=False)))
            else:
                self.readable.append((name, asked))

    def _allows(self, topic: TopicName) -> bool:
        allowed = self._allowed.get(topic)
        if allowed is None:
            allowed = self._is_broker
            if self.replica is None:
                allowed = self._context.allows(Operation.READ, ResourceType.TOPIC, topic)
            self._allowed[topic] = allowed
        return allowed


def _answer(
    request: FetchRequest,
    session: FetchContext,
    answers: list[tuple[FetchPartition, PartitionData]],
    context: Context,
) -> FetchResponse:
    if _replica(request) is not None:
        _count_replicated(answers, context)
    elif context.cluster.quotas.enabled:
        return _within_quota(session, answers, context)
    return _respond(session, answers, context)


def _respond(
    session: FetchContext,
    answers: list[tuple[FetchPartition, PartitionData]],
    context: Context,
    level: Sequence[FetchPartition] = (),
) -> FetchResponse:
    finished = session.finish(answers, context.now_ms, level)
    return _response(finished, context)


def _count_replicated(answers: Sequence[tuple[FetchPartition, PartitionData]], context: Context) -> None:
    """Count what a follower is given, for the throttle of this side (KIP-73)."""
    throttle = context.cluster.leader_throttle
    for asked, answer in answers:
        if answer.records and asked.topic is not None:
            chunks = answer.records if isinstance(answer.records, list) else [answer.records]
            size = sum(
                len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size_bytes
                for chunk in chunks
            )
            throttle.record(TopicPartition(asked.topic, asked.partition), size, context.now_ms)


def _within_quota(
    session: FetchContext, answers: list[tuple[FetchPartition, PartitionData]], context: Context
) -> FetchResponse:
    """The answer to a consumer while quotas are set: over them it is empty, its session stays as it was, and the client
    has to wait (KIP-219)."""
    preview = session.preview(answers)
    response = _response(preview, context)
    writer = response.writer(context.version)
    response.write(writer, context.version)
    throttle_ms = context.cluster.quotas.fetched(context, writer.size_bytes)
    if throttle_ms:
        return FetchResponse(throttle_time_ms=throttle_ms, error_code=preview.error_code, session_id=preview.session_id)
    return _respond(session, answers, context)


def _response(finished: Finished[PartitionData], context: Context) -> FetchResponse:
    response = FetchResponse(error_code=finished.error_code, session_id=finished.session_id)
    by_id = context.version >= _TOPIC_IDS_SINCE
    current: FetchableTopicResponse | None = None
    current_key: TopicId | TopicName | None = None
    for asked, answer in finished.answers:
        _suit_version(asked, answer, response, context)
        key = asked.topic_id if by_id else asked.topic
        if current is None or key != current_key:
            current = FetchableTopicResponse(topic=asked.topic or "", topic_id=asked.topic_id)
            current_key = key
            response.responses.append(current)
        current.partitions.append(answer)
    return response


def _suit_version(asked: FetchPartition, answer: PartitionData, response: FetchResponse, context: Context) -> None:
    """Say what the version has more, or knows less, than others."""
    if answer.error_code == ErrorCode.NONE:
        return
    if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and context.version < _STORAGE_ERROR_SINCE:
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if context.version < _CURRENT_LEADER_SINCE or asked.topic is None:
        return
    hint = leader_hint(TopicPartition(asked.topic, asked.partition), answer.error_code, context)
    if hint is not None:
        answer.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
        add_endpoint(response.node_endpoints, NodeEndpoint, hint.leader_id, context)


def _refused(request: FetchRequest, context: Context, error_code: ErrorCode) -> FetchResponse:
    """The whole request is refused: up to version 12 for every partition too."""
    response = FetchResponse(error_code=error_code, session_id=request.session_id)
    if context.version < _TOPIC_IDS_SINCE:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition,
                        error_code=error_code,
                        high_watermark=-1,
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response
