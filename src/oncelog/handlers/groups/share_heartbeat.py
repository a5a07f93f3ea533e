"""ShareGroupHeartbeat, version 1 (KIP-932): members of share groups join, go on and leave.

Share state of newly subscribed partitions is made after the answer; a later heartbeat brings them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, TopicName
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Answer, Steps
from oncelog.handlers.groups.requests import (
    COORDINATOR_ERRORS,
    ask,
    assigned_topics,
    blank_field,
    describes_topics,
    fits_record,
    serves_share_groups,
)
from oncelog.handlers.groups.share_states import initialize
from oncelog.wire.messages import share_group_heartbeat as wire

if TYPE_CHECKING:
    from oncelog.core.groups.share.heartbeat import ShareHeartbeat
    from oncelog.core.groups.share_groups import ShareHeartbeatReply

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.UNSUPPORTED_VERSION: "the feature share.version forbids it",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe a topic that is named",
    ErrorCode.INVALID_REQUEST: "a field is missing, empty or out of place: the message names it; or the member id has "
    "more than 36 characters",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such share group",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has group.share.max.size members",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such member: join again with epoch 0",
    ErrorCode.FENCED_MEMBER_EPOCH: "not the member's epoch: give up all partitions and join again",
    ErrorCode.UNKNOWN_SERVER_ERROR: "an id too long to be stored, or records beyond the log's max.message.bytes",
}
MAX_MEMBER_ID: Final = 36
"""Characters of a member id: those of a UUID. ShareFetch has the same limit."""
_LEAVING_EPOCH: Final = -1


def handle(
    request: wire.ShareGroupHeartbeatRequest, context: Context
) -> Steps[wire.ShareGroupHeartbeatResponse | None]:
    refusal = yield from _refusal(request, context)
    if refusal is not ErrorCode.NONE:
        return wire.ShareGroupHeartbeatResponse(error_code=refusal)
    complaint = _complaint(request)
    if complaint is not None:
        return wire.ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=complaint)
    beat = _heartbeat(request, context)
    if not all(fits_record(text) for text in (beat.group_id, beat.member_id)):
        return wire.ShareGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    reply: ShareHeartbeatReply | ErrorCode = yield from ask(
        beat.group_id, lambda shard, token, now_ms: shard.share.heartbeat(beat, now_ms), ErrorCode
    )
    if isinstance(reply, ErrorCode):
        return wire.ShareGroupHeartbeatResponse(error_code=reply)
    response = yield from _response(reply)
    if not reply.to_initialize:
        return response
    yield Answer(response)
    yield from initialize(beat.group_id, reply.to_initialize)
    return None


def _refusal(request: wire.ShareGroupHeartbeatRequest, context: Context) -> Steps[ErrorCode]:
    if not serves_share_groups(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.allows_group(Operation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not 0 < len(request.member_id) <= MAX_MEMBER_ID:
        return ErrorCode.INVALID_REQUEST
    return (yield from describes_topics(request.subscribed_topic_names, context))


def _complaint(request: wire.ShareGroupHeartbeatRequest) -> str | None:
    """The reason why the request is invalid, in Apache Kafka's words."""
    if complaint := blank_field(MemberId=request.member_id, GroupId=request.group_id, RackId=request.rack_id):
        return complaint
    if request.member_epoch == 0 and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    return "MemberEpoch is invalid." if request.member_epoch < _LEAVING_EPOCH else None


def _heartbeat(request: wire.ShareGroupHeartbeatRequest, context: Context) -> ShareHeartbeat:
    from oncelog.core.groups.share.heartbeat import ShareHeartbeat

    names = request.subscribed_topic_names
    return ShareHeartbeat(
        GroupId(request.group_id),
        MemberId(request.member_id),
        request.member_epoch,
        request.rack_id,
        None if names is None else frozenset(TopicName(name) for name in names),
        context.client_id or "",
        context.client_host,
    )


def _response(reply: ShareHeartbeatReply) -> Steps[wire.ShareGroupHeartbeatResponse]:
    answer = reply.answer
    if answer is None:
        return wire.ShareGroupHeartbeatResponse(error_code=reply.error_code, error_message=reply.message)
    assignment = None
    if answer.assignment is not None:
        parts = yield from assigned_topics(answer.assignment, wire.TopicPartitions)
        assignment = wire.Assignment(topic_partitions=parts)
    return wire.ShareGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )
