"""LeaveGroup, versions 0 to 5 (KIP-62, KIP-345, KIP-800): one member leaves, or (from 3 on) several are removed.

Up to version 2 the member's outcome is the answer's own error code. An administrator removes a static member by its
instance id with an empty member id. The reason (5) is for logs and not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId
from oncelog.core.groups.model import LeaveReply, LeavingMember
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such group or member (said per member from version 3 on)",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id",
}

_MEMBERS_SINCE: Final = 3


def handle(request: LeaveGroupRequest, context: Context) -> Steps[LeaveGroupResponse]:
    """Let the coordinator decide."""
    if not context.allows_group(Operation.READ, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if context.version < _MEMBERS_SINCE:
        leaving = [LeavingMember(MemberId(request.member_id))]
    else:
        leaving = [LeavingMember(MemberId(each.member_id), each.group_instance_id) for each in request.members]
    group_id = GroupId(request.group_id)
    reply = yield from ask(group_id, lambda shard, token, now_ms: shard.leave(group_id, leaving, token, now_ms))
    left = LeaveReply(reply) if isinstance(reply, ErrorCode) else reply
    if context.version < _MEMBERS_SINCE:
        errors = [left.error_code, *(error for _, error in left.members)]
        return LeaveGroupResponse(error_code=next((error for error in errors if error), ErrorCode.NONE))
    members = [
        MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error)
        for each, error in left.members
    ]
    return LeaveGroupResponse(error_code=left.error_code, members=members)
