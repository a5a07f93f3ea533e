"""ConsumerGroupHeartbeat, versions 0 and 1 (KIP-848): members of consumer groups join, go on and leave.

Version 1 adds regular expressions, and members make their own ids. A worker matches expressions after the answer,
against the topics that the member may describe; a later heartbeat brings their partitions.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, TopicId, TopicName
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.time_slices import ITEMS
from oncelog.handlers.broker.waits import Answer, Lane, NextSlice, Offload, Steps
from oncelog.handlers.groups.requests import (
    COORDINATOR_ERRORS,
    ask,
    assigned_topics,
    blank_field,
    describes_topics,
    fits_record,
    is_blank,
    serves_consumer_protocol,
)
from oncelog.records.patterns import Pattern, PatternRefused
from oncelog.wire.messages import consumer_group_heartbeat as wire

if TYPE_CHECKING:
    from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat
    from oncelog.core.groups.consumer_groups import HeartbeatReply

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.UNSUPPORTED_VERSION: "the feature group.version or group.coordinator.rebalance.protocols forbids it",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe a topic that is named",
    ErrorCode.INVALID_REQUEST: "a field is missing, empty or out of place: the message names it",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the assignor is none of group.consumer.assignors",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "RE2 cannot compile the expression, or it is too large",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such consumer group, or the classic group cannot be upgraded",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has group.consumer.max.size members",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such member: join again with epoch 0",
    ErrorCode.FENCED_MEMBER_EPOCH: "not the member's epoch: give up all partitions and join again",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member has the instance id and has not left",
    ErrorCode.FENCED_INSTANCE_ID: "another member has taken over the instance id",
    ErrorCode.UNKNOWN_SERVER_ERROR: "an id too long to be stored, or records beyond the log's max.message.bytes",
}

_OWN_MEMBER_ID_SINCE: Final = 1
_LEAVING_EPOCH: Final = -1
_LEAVING_STATIC_EPOCH: Final = -2
_NOT_SENT: Final = -1
MAX_MATCHES: Final = 100_000
"""Topics that the expressions of a group match together: a record and the group hold them for each expression, and
their coordinator takes 7 µs for each. An expression that would exceed it matches none."""


def handle(
    request: wire.ConsumerGroupHeartbeatRequest, context: Context
) -> Steps[wire.ConsumerGroupHeartbeatResponse | None]:
    refusal = yield from _refusal(request, context)
    if refusal is not ErrorCode.NONE:
        return wire.ConsumerGroupHeartbeatResponse(error_code=refusal)
    complaint = _complaint(request, context.version)
    if complaint is not None:
        return wire.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=complaint)
    if message := _unsupported_assignor(request, context):
        return wire.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_ASSIGNOR, error_message=message)
    beat = _heartbeat(request, context)
    if not all(fits_record(text) for text in (beat.group_id, beat.member_id, beat.regex or "")):
        return wire.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    reply: HeartbeatReply | ErrorCode = yield from ask(
        beat.group_id, lambda shard, token, now_ms: shard.consumer_heartbeat(beat, token, now_ms), ErrorCode
    )
    if isinstance(reply, ErrorCode):
        return wire.ConsumerGroupHeartbeatResponse(error_code=reply)
    response = yield from _response(reply)
    if not reply.to_resolve:
        return response
    yield Answer(response)
    yield from _resolve(beat.group_id, reply, context)
    return None


def _refusal(request: wire.ConsumerGroupHeartbeatRequest, context: Context) -> Steps[ErrorCode]:
    if not serves_consumer_protocol(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.allows_group(Operation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return (yield from describes_topics(request.subscribed_topic_names, context))


def _complaint(request: wire.ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """The reason why the request is invalid, in Apache Kafka's words."""
    epoch = request.member_epoch
    needs_id = version >= _OWN_MEMBER_ID_SINCE or epoch > 0 or epoch == _LEAVING_EPOCH
    if needs_id and is_blank(request.member_id):
        return "MemberId can't be empty."
    if complaint := blank_field(GroupId=request.group_id, InstanceId=request.instance_id, RackId=request.rack_id):
        return complaint
    if epoch == 0 and (complaint := _join_complaint(request)):
        return complaint
    if epoch == _LEAVING_STATIC_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if epoch < _LEAVING_STATIC_EPOCH else None


def _join_complaint(request: wire.ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == _NOT_SENT:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _unsupported_assignor(request: wire.ConsumerGroupHeartbeatRequest, context: Context) -> str | None:
    if request.server_assignor is None:
        return None
    from oncelog.core.configs.keys import ASSIGNOR_CLASSES

    configured = context.cluster.config.get("group.consumer.assignors")
    names = [ASSIGNOR_CLASSES.get(name, name) for name in configured]
    if request.server_assignor in names:
        return None
    return f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(names)}."


def _heartbeat(request: wire.ConsumerGroupHeartbeatRequest, context: Context) -> ConsumerHeartbeat:
    from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat

    names, owned = request.subscribed_topic_names, request.topic_partitions
    partitions: dict[TopicId, frozenset[int]] | None = None
    if owned is not None:
        partitions = {}
        for topic in owned:
            topic_id = TopicId(topic.topic_id)
            partitions[topic_id] = partitions.get(topic_id, frozenset()).union(topic.partitions)
    return ConsumerHeartbeat(
        GroupId(request.group_id),
        MemberId(request.member_id or _new_member_id(context)),
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else frozenset(TopicName(name) for name in names),
        request.subscribed_topic_regex,
        request.server_assignor,
        partitions,
        context.client_id or "",
        context.client_host,
    )


def _new_member_id(context: Context) -> str:
    text = urlsafe_b64encode(context.cluster.random_bytes(16)).decode().rstrip("=")
    # Command-line tools would take a leading hyphen for an option.
    return "A" + text[1:] if text.startswith("-") else text


def _resolve(group_id: GroupId, reply: HeartbeatReply, context: Context) -> Steps[None]:
    """Match the group's expressions, and hand the topics to its coordinator."""
    topics = context.cluster.image.topics
    matches, names = yield Offload(_matching(reply.to_resolve, topics), Lane.PATTERNS)
    hidden: set[TopicName] = set()
    for start in range(0, len(names), ITEMS):
        hidden.update(name for name in names[start : start + ITEMS] if not _may_describe(context, name))
        yield NextSlice()
    for regex in matches if hidden else ():
        matches[regex] = [name for name in matches[regex] if name not in hidden]
        yield NextSlice()
    version = reply.metadata_version
    yield from ask(
        group_id,
        lambda shard, token, now_ms: shard.regexes_resolved(group_id, matches, version, token, now_ms),
        ErrorCode,
    )


def _may_describe(context: Context, name: TopicName) -> bool:
    return context.allows_silently(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _matching(
    expressions: Collection[str], topics: Iterable[TopicName]
) -> Generator[None, None, tuple[dict[str, list[TopicName]], list[TopicName]]]:
    """The topics that each expression matches, and all of them; none for an expression that another broker accepted and
    this one cannot.
    """
    names, room = list(topics), MAX_MATCHES
    matches: dict[str, list[TopicName]] = {}
    for regex in sorted(expressions):
        matched = matches[regex] = []
        try:
            pattern = Pattern(regex)
        except PatternRefused:
            continue
        for start in range(0, len(names), ITEMS):
            matched += filter(pattern.matches, names[start : start + ITEMS])
            yield
        if len(matched) > room:
            matched.clear()
        room -= len(matched)
    return matches, list(set().union(*matches.values()))


def _response(reply: HeartbeatReply) -> Steps[wire.ConsumerGroupHeartbeatResponse]:
    answer = reply.answer
    if answer is None:
        return wire.ConsumerGroupHeartbeatResponse(error_code=reply.error_code, error_message=reply.message)
    assignment = None
    if answer.assignment is not None:
        parts = yield from assigned_topics(answer.assignment, wire.TopicPartitions)
        assignment = wire.Assignment(topic_partitions=parts)
    return wire.ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )
