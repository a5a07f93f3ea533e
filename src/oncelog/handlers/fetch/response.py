"""The response to a Fetch: what its session has not been told yet, as the version says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.handlers.broker.leaders import add_endpoint, leader_hint
from oncelog.handlers.fetch.request import replica_of
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
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.fetch.reads import FetchReads

TOPIC_IDS_SINCE: Final = 13
_CURRENT_LEADER_SINCE: Final = 16
_STORAGE_ERROR_SINCE: Final = 6

Answers = list[tuple["FetchPartition", PartitionData]]
"""Partitions as they were asked for, each with its answer."""


def respond(request: FetchRequest, session: FetchContext, reads: FetchReads, context: Context) -> FetchResponse:
    """The response to a request, counted against the throttle or the quotas of whoever asks."""
    answers = reads.answers + reads.refused
    is_replica = replica_of(request) is not None
    if is_replica:
        _count_replicated(answers, context)
    elif context.cluster.quotas.enabled:
        return _within_quota(session, answers, context)
    response = _response(session.finish(answers, context.now_ms, reads.caught_up), context)
    if is_replica:
        response.node_endpoints.clear()  # a broker knows where the others are
    return response


def _count_replicated(answers: Answers, context: Context) -> None:
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


def _within_quota(session: FetchContext, answers: Answers, context: Context) -> FetchResponse:
    """The answer to a consumer while quotas are set: over them it is empty, its session stays as it was, and the client
    has to wait (KIP-219)."""
    preview = session.preview(answers)
    response = _response(preview, context)
    writer = response.writer(context.version)
    response.write(writer, context.version)
    throttle_ms = context.cluster.quotas.fetched(context, writer.size_bytes)
    if throttle_ms:
        return FetchResponse(throttle_time_ms=throttle_ms, error_code=preview.error_code, session_id=preview.session_id)
    return _response(session.finish(answers, context.now_ms), context)


def _response(finished: Finished[PartitionData], context: Context) -> FetchResponse:
    response = FetchResponse(error_code=finished.error_code, session_id=finished.session_id)
    by_id = context.version >= TOPIC_IDS_SINCE
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


def refusal_of(request: FetchRequest, context: Context, error_code: ErrorCode) -> FetchResponse:
    """The whole request is refused: up to version 12 for every partition too."""
    response = FetchResponse(error_code=error_code, session_id=request.session_id)
    if context.version < TOPIC_IDS_SINCE:
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
