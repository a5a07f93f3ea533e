"""ListGroups, versions 0 to 5 (KIP-518, KIP-848): the groups this broker coordinates.

Filters by state (4) and type (5) do not mind case; names that do not exist match nothing. One who may describe the
cluster sees all groups, others those they may describe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from oncelog.core.groups.model import GroupListing

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "a part of the groups is still being read from the log; try again",
}


_GROUPS_A_TURN: Final = 5000


def handle(request: ListGroupsRequest, context: Context) -> Steps[ListGroupsResponse]:
    """All groups that the filters and the authoriser let through; none while some are still being loaded."""
    shards = list(context.groups.shards())
    offsets_topic = context.cluster.image.topics.get(CONSUMER_OFFSETS)
    if offsets_topic is not None:
        led = sum(partition.leader == context.cluster.broker_id for partition in offsets_topic.partitions)
        if len(shards) < led:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    groups = [group for shard in shards for group in shard.listings()]
    if len(groups) > _GROUPS_A_TURN:
        return (yield from _in_slices(groups, request, context))
    return ListGroupsResponse(groups=_listed(groups, request, context))


def _in_slices(groups: list[GroupListing], request: ListGroupsRequest, context: Context) -> Steps[ListGroupsResponse]:
    """The groups as they were when they were asked for."""
    listed = []
    for start in range(0, len(groups), _GROUPS_A_TURN):
        yield NextSlice()
        listed += _listed(groups[start : start + _GROUPS_A_TURN], request, context)
    return ListGroupsResponse(groups=listed)


def _listed(groups: list[GroupListing], request: ListGroupsRequest, context: Context) -> list[ListedGroup]:
    states = {state.lower().strip() for state in request.states_filter}
    types = {group_type.lower().strip() for group_type in request.types_filter}
    sees_all = context.would_allow_cluster(Operation.DESCRIBE)
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
        and (sees_all or context.would_allow(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
    ]
