"""Groups of both kinds as DescribeGroups and ListGroups show them."""

from __future__ import annotations

from oncelog.base.ids import GroupId
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.model import CONSUMER_PROTOCOL, GroupDescription, GroupListing


def description(group_id: GroupId, group: ClassicGroup | ConsumerGroup | None) -> GroupDescription:
    """A classic group; any other, or none, is shown as Dead, with the reason."""
    if not isinstance(group, ClassicGroup):
        reason = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        return GroupDescription(group_id, GroupState.DEAD.value, not_found=reason)
    protocol_name = (group.protocol_name or "") if group.state is GroupState.STABLE else ""
    return GroupDescription(
        group_id, group.state.value, group.protocol_type or "", protocol_name, group.described_members()
    )


def listing(group: ClassicGroup | ConsumerGroup) -> GroupListing:
    if isinstance(group, ClassicGroup):
        return GroupListing(group.group_id, group.protocol_type or "", group.state.value)
    return GroupListing(group.group_id, CONSUMER_PROTOCOL, group.state.value, "consumer")
