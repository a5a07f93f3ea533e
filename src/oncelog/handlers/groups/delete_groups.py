"""DeleteGroups, versions 0 to 2 (KIP-229): empty groups go, with their offsets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from oncelog.core.groups.model import GroupDecision
    from oncelog.core.groups.shard import GroupShard

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
}


def handle(request: DeleteGroupsRequest, context: Context) -> Steps[DeleteGroupsResponse]:
    """Delete each group named, once; those that may not be deleted come last, as in Apache Kafka."""
    results, refused = [], []
    for group_id in dict.fromkeys(request.groups_names):
        if not context.allows_group(Operation.DELETE, group_id):
            refused.append(DeletableGroupResult(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        error = yield from ask(group_id, partial(_delete, GroupId(group_id)))
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    return DeleteGroupsResponse(results=[*results, *refused])


def _delete(group_id: GroupId, shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
    return shard.delete_group(group_id, token, now_ms)
