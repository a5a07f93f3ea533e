"""JoinGroup, versions 0 to 9 (KIP-62, KIP-134, KIP-345, KIP-394, KIP-559, KIP-800, KIP-814).

Parked until the join phase of the rebalance ends. Version 0 has one time-out for session and rebalance; from version
4 on a new dynamic member is first sent back with the id it is to use; from 5 on members may be static; from 9 on a
static leader that was restarted is told not to assign again. The reason (8) is for logs and not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId
from oncelog.core.groups.model import JoinReply, JoinRequest, Protocol
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask, fits_record
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.INVALID_SESSION_TIMEOUT: "outside group.min.session.timeout.ms to group.max.session.timeout.ms",
    ErrorCode.MEMBER_ID_REQUIRED: "a new dynamic member: join again with the id in this answer (version 4)",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such member, or it was removed while it waited: join anew",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "no protocol, another type, or none that all members support",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has group.max.size members",
    ErrorCode.REBALANCE_IN_PROGRESS: "a later JoinGroup of the same member took the place of this one",
    ErrorCode.UNKNOWN_SERVER_ERROR: "an id too long to be stored, or an instance id beside an id just given out",
}

_MEMBER_ID_REQUIRED_SINCE: Final = 4
_NULL_PROTOCOL_SINCE: Final = 7
_SKIP_ASSIGNMENT_SINCE: Final = 9


def handle(request: JoinGroupRequest, context: Context) -> Steps[JoinGroupResponse]:
    """Let the coordinator decide; answer when it does."""
    if not context.allows_group(Operation.READ, request.group_id):
        return _response(JoinReply(ErrorCode.GROUP_AUTHORIZATION_FAILED), context)
    if not request.group_id:
        return _response(JoinReply(ErrorCode.INVALID_GROUP_ID, MemberId(request.member_id)), context)
    joining = _join_request(request, context)
    if not fits_record(joining.new_member_id):
        return _response(JoinReply(ErrorCode.UNKNOWN_SERVER_ERROR), context)
    reply = yield from ask(
        request.group_id, lambda shard, token, now_ms: shard.join(joining, token, now_ms), ends_with_client=True
    )
    return _response(JoinReply(reply) if isinstance(reply, ErrorCode) else reply, context)


def _join_request(request: JoinGroupRequest, context: Context) -> JoinRequest:
    client_id = context.client_id or ""
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
