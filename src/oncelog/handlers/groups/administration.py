"""Requests about whole groups.

ListGroups, versions 0 to 5 (KIP-518, KIP-848): the groups coordinated here. Filters by state (4) and type (5) ignore
case; unknown names match nothing. A requester that may describe the cluster sees all groups, others those that they may
describe.

DeleteGroups, versions 0 to 2 (KIP-229): empty groups are deleted with their offsets, share groups with their state.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, GroupId
from oncelog.core.groups.model import GroupDecision
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from oncelog.core.groups.model import GroupListing
    from oncelog.core.groups.shard import GroupShard
    from oncelog.core.groups.share_groups import OffsetsReply

LIST_GROUPS_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "a part of the groups is still being read from the log; try again"
}


_GROUPS_PER_SLICE: Final = 5000


def list_groups(request: ListGroupsRequest, context: Context) -> Steps[ListGroupsResponse]:
    """The groups that pass filters and authoriser; none while some are still being loaded."""
    shards = list(context.groups.shards())
    offsets_topic = context.cluster.image.topics.get(CONSUMER_OFFSETS)
    if offsets_topic is not None:
        led = sum(partition.leader == context.cluster.broker_id for partition in offsets_topic.partitions)
        # An incomplete list would look like deleted groups.
        if len(shards) < led:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    groups = [group for shard in shards for group in shard.listings()]
    if len(groups) > _GROUPS_PER_SLICE:
        return (yield from _in_slices(groups, request, context))
    return ListGroupsResponse(groups=_listed(groups, request, context))


def _in_slices(groups: list[GroupListing], request: ListGroupsRequest, context: Context) -> Steps[ListGroupsResponse]:
    listed = []
    for start in range(0, len(groups), _GROUPS_PER_SLICE):
        yield NextSlice()
        listed += _listed(groups[start : start + _GROUPS_PER_SLICE], request, context)
    return ListGroupsResponse(groups=listed)


def _listed(groups: list[GroupListing], request: ListGroupsRequest, context: Context) -> list[ListedGroup]:
    states = {state.lower().strip() for state in request.states_filter}
    types = {group_type.lower().strip() for group_type in request.types_filter}
    sees_all = context.allows_cluster_silently(Operation.DESCRIBE)
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.group_type,
        )
        for group in groups
        if (not states or group.state.lower() in states)
        and (not types or group.group_type in types)
        and (sees_all or context.allows_silently(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
    ]


DELETE_GROUPS_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
}


def delete_groups(request: DeleteGroupsRequest, context: Context) -> Steps[DeleteGroupsResponse]:
    results, refused = [], []
    for group_id in dict.fromkeys(request.groups_names):
        if not context.allows_group(Operation.DELETE, group_id):
            refused.append(DeletableGroupResult(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        error = yield from _delete_group(GroupId(group_id))
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    # Denied groups come last, as in Apache Kafka.
    return DeleteGroupsResponse(results=[*results, *refused])


def _delete_group(group_id: GroupId) -> Steps[ErrorCode]:
    # The share state of a group goes first: it could not be found again without the group.
    reply: OffsetsReply | ErrorCode = yield from ask(
        group_id, lambda shard, token, now_ms: shard.share.begin_group_deletion(group_id, now_ms), ErrorCode
    )
    if isinstance(reply, ErrorCode):
        return reply
    if reply.error_code is not ErrorCode.NONE:
        return reply.error_code
    if reply.states:
        from oncelog.handlers.groups.share_states import delete

        errors = yield from delete(group_id, reply.states)
        failed = [error for error in errors.values() if error is not ErrorCode.NONE]
        if failed:
            return failed[0]
    return (yield from ask(group_id, partial(_delete, group_id), ErrorCode))


def _delete(group_id: GroupId, shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
    return shard.delete_group(group_id, token, now_ms)
