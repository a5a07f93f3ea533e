"""The requests of members of a classic group.

JoinGroup, versions 0 to 9 (KIP-62, KIP-134, KIP-345, KIP-394, KIP-559, KIP-800, KIP-814), is parked until the
rebalance's join phase ends. From version 4 on a new dynamic member is first sent back with the id to use; from 5 on
members may be static; from 9 on a restarted static leader skips the assignment.

SyncGroup, versions 0 to 5 (KIP-62, KIP-345, KIP-559), is parked until the leader's assignment is in the log. From
version 5 on protocol type and name are required and must be the generation's.

Heartbeat, versions 0 to 4 (KIP-62, KIP-345), returns whether the member has to join again.

LeaveGroup, versions 0 to 5 (KIP-62, KIP-345, KIP-800): a member leaves, or (from 3 on) several are removed, a static
one by its instance id with an empty member id.

The reasons of JoinGroup (8) and LeaveGroup (5) are for logs and are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId
from oncelog.core.groups import model
from oncelog.core.groups.model import (
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    Protocol,
    SyncReply,
    SyncRequest,
)
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask, fits_record
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

JOIN_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.INVALID_SESSION_TIMEOUT: "outside group.min.session.timeout.ms to group.max.session.timeout.ms",
    ErrorCode.MEMBER_ID_REQUIRED: "a new dynamic member: join again with the id in this answer (version 4)",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such member, or it was removed while it waited: join again",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "no protocol, another type, or none that all members support",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has group.max.size members",
    ErrorCode.REBALANCE_IN_PROGRESS: "a later JoinGroup of the same member took the place of this one",
    ErrorCode.UNKNOWN_SERVER_ERROR: "an id too long to be stored, or an instance id beside an id just given out",
}

_MEMBER_ID_REQUIRED_SINCE: Final = 4
_NULL_PROTOCOL_SINCE: Final = 7
_SKIP_ASSIGNMENT_SINCE: Final = 9


def join(request: JoinGroupRequest, context: Context) -> Steps[JoinGroupResponse]:
    if not context.allows_group(Operation.READ, request.group_id):
        return _response(JoinReply(ErrorCode.GROUP_AUTHORIZATION_FAILED), context)
    if not request.group_id:
        return _response(JoinReply(ErrorCode.INVALID_GROUP_ID, MemberId(request.member_id)), context)
    joining = _join_request(request, context)
    if not fits_record(joining.new_member_id):
        return _response(JoinReply(ErrorCode.UNKNOWN_SERVER_ERROR), context)
    reply = yield from ask(
        request.group_id,
        lambda shard, token, now_ms: shard.join(joining, token, now_ms),
        JoinReply,
        ends_with_client=True,
    )
    return _response(reply, context)


def _refusal(group_id: str, context: Context) -> ErrorCode:
    if not context.allows_group(Operation.READ, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID


def _join_request(request: JoinGroupRequest, context: Context) -> JoinRequest:
    client_id = context.client_id or ""
    # As in Apache Kafka: logs and tools recognise the client by its member id.
    named_after = client_id if request.group_instance_id is None else request.group_instance_id
    new_id = UUID(bytes=context.cluster.random_bytes(16), version=4)
    return JoinRequest(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        new_member_id=MemberId(f"{named_after}-{new_id}"),
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=context.client_host,
        session_timeout_ms=request.session_timeout_ms,
        # Version 0 has one timeout for session and rebalance.
        rebalance_timeout_ms=request.session_timeout_ms if context.version == 0 else request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        requires_known_member_id=context.version >= _MEMBER_ID_REQUIRED_SINCE,
        supports_skipping_assignment=context.version >= _SKIP_ASSIGNMENT_SINCE,
    )


def _response(reply: JoinReply, context: Context) -> JoinGroupResponse:
    nameless = None if context.version >= _NULL_PROTOCOL_SINCE else ""
    return JoinGroupResponse(
        error_code=reply.error_code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=nameless if reply.protocol_name is None else reply.protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )


SYNC_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such group or member, or the group is empty",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id",
    ErrorCode.ILLEGAL_GENERATION: "not the current generation",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "not the protocol of the generation, or none said (version 5)",
    ErrorCode.REBALANCE_IN_PROGRESS: "the members have to join again",
}

_PROTOCOL_SINCE: Final = 5


def sync(request: SyncGroupRequest, context: Context) -> Steps[SyncGroupResponse]:
    if context.version >= _PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if refusal := _refusal(request.group_id, context):
        return SyncGroupResponse(error_code=refusal)
    syncing = SyncRequest(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=[(MemberId(part.member_id), bytes(part.assignment)) for part in request.assignments],
    )
    synced = yield from ask(
        request.group_id,
        lambda shard, token, now_ms: shard.sync(syncing, token, now_ms),
        SyncReply,
        ends_with_client=True,
    )
    return SyncGroupResponse(
        error_code=synced.error_code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


HEARTBEAT_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **{code: when for code, when in COORDINATOR_ERRORS.items() if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS},
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such group or member",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id",
    ErrorCode.ILLEGAL_GENERATION: "not the current generation",
    ErrorCode.REBALANCE_IN_PROGRESS: "the members have to join again",
}


def heartbeat(request: HeartbeatRequest, context: Context) -> Steps[HeartbeatResponse]:
    """While the coordinator loads, members count as alive."""
    if refusal := _refusal(request.group_id, context):
        return HeartbeatResponse(error_code=refusal)
    beat = model.HeartbeatRequest(
        GroupId(request.group_id), MemberId(request.member_id), request.generation_id, request.group_instance_id
    )
    error = yield from ask(
        request.group_id, lambda shard, token, now_ms: shard.heartbeat(beat, token, now_ms), ErrorCode
    )
    return HeartbeatResponse(error_code=ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error)


LEAVE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such group or member (said per member from version 3 on)",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id",
}

_MEMBERS_SINCE: Final = 3


def leave(request: LeaveGroupRequest, context: Context) -> Steps[LeaveGroupResponse]:
    if refusal := _refusal(request.group_id, context):
        return LeaveGroupResponse(error_code=refusal)
    if context.version < _MEMBERS_SINCE:
        leaving = [LeavingMember(MemberId(request.member_id))]
    else:
        leaving = [LeavingMember(MemberId(member.member_id), member.group_instance_id) for member in request.members]
    group_id = GroupId(request.group_id)
    left = yield from ask(
        group_id, lambda shard, token, now_ms: shard.leave(group_id, leaving, token, now_ms), LeaveReply
    )
    if context.version < _MEMBERS_SINCE:
        # Up to version 2 the member's outcome is the response's own error code.
        errors = [left.error_code, *(error for _, error in left.members)]
        return LeaveGroupResponse(error_code=next((error for error in errors if error), ErrorCode.NONE))
    members = [
        MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error)
        for member, error in left.members
    ]
    return LeaveGroupResponse(error_code=left.error_code, members=members)
