"""DescribeGroups, versions 0 to 6 (KIP-345, KIP-430, KIP-1043): state and members of classic groups.

A group that does not exist is described as Dead without an error up to version 5, and is GROUP_ID_NOT_FOUND from 6 on.
What the members said of themselves is shown when the group is Stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId
from oncelog.core.groups.model import GroupDecision, GroupDescription
from oncelog.core.groups.states import GroupState
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from oncelog.core.groups.shard import GroupShard

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group (version 6)",
}

_NOT_FOUND_SINCE: Final = 6
_OPERATIONS_SINCE: Final = 3


def handle(request: DescribeGroupsRequest, context: Context) -> Steps[DescribeGroupsResponse]:
    """Ask each group's coordinator; groups that may not be seen come first, as in Apache Kafka. One that is named
    thirty thousand times is answered once: a group can be large."""
    visible = {group_id: context.allows_group(Operation.DESCRIBE, group_id) for group_id in request.groups}
    described = [
        DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for group_id in visible
        if not visible[group_id]
    ]
    with_operations = request.include_authorized_operations and context.version >= _OPERATIONS_SINCE
    for group_id in (group_id for group_id, may_see in visible.items() if may_see):
        found = yield from ask(group_id, partial(_describe, GroupId(group_id)))
        group = _described(group_id, found, context)
        if with_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.allowed_operations(ResourceType.GROUP, group_id)
        described.append(group)
    return DescribeGroupsResponse(groups=described)


def _describe(group_id: GroupId, shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
    found = shard.describe(group_id)
    return GroupDecision(reply=ErrorCode.GROUP_ID_NOT_FOUND if found is None else found, waits_for_pending=True)


def _described(group_id: str, found: GroupDescription | ErrorCode, context: Context) -> DescribedGroup:
    if found is ErrorCode.GROUP_ID_NOT_FOUND:
        dead = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if context.version >= _NOT_FOUND_SINCE:
            dead.error_code, dead.error_message = found, f"Group {group_id} not found."
        return dead
    if isinstance(found, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=found)
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in found.members
        ],
    )
