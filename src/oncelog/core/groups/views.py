"""Groups of both kinds as DescribeGroups, ConsumerGroupDescribe and ListGroups show them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from oncelog.base.ids import GroupId, MemberId
from oncelog.core.groups.any_group import AnyGroup
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.consumer.settings import GroupLimits
from oncelog.core.groups.model import CONSUMER_PROTOCOL, SHARE_PROTOCOL, GroupDescription, GroupListing, PendingMember
from oncelog.core.groups.modern.members import Partitions
from oncelog.core.groups.share.assignor import NAME as SHARE_ASSIGNOR
from oncelog.core.groups.share.group import ShareGroup
from oncelog.core.groups.share.member import ShareMember

MOST_PENDING: Final = 100


def description(
    group_id: GroupId, group: AnyGroup | None, session_end_ms: Callable[[MemberId], int | None]
) -> GroupDescription:
    """A classic group; any other, or none, is shown as Dead, with the reason."""
    if not isinstance(group, ClassicGroup):
        reason = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        return GroupDescription(group_id, GroupState.DEAD.value, not_found=reason)
    protocol_name = (group.protocol_name or "") if group.state is GroupState.STABLE else ""
    pending = [
        PendingMember(member_id, session_end_ms(member_id) or 0, host)
        for member_id, host in islice(group.pending_joins.items(), MOST_PENDING)
    ]
    awaited = group.not_rejoined() if group.state is GroupState.PREPARING_REBALANCE else ()
    return GroupDescription(
        group_id,
        group.state.value,
        group.protocol_type or "",
        protocol_name,
        group.described_members(),
        pending,
        [member.member_id for member in awaited],
    )


def listing(group: AnyGroup) -> GroupListing:
    if isinstance(group, ClassicGroup):
        return GroupListing(group.group_id, group.protocol_type or "", group.state.value)
    if isinstance(group, ShareGroup):
        return GroupListing(group.group_id, SHARE_PROTOCOL, group.state.value, SHARE_PROTOCOL)
    return GroupListing(group.group_id, CONSUMER_PROTOCOL, group.state.value, "consumer")


class ConsumerGroupDescription(NamedTuple):
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: Sequence[tuple[ConsumerMember, Partitions]]


def consumer_description(
    group_id: GroupId, group: AnyGroup | None, limits: GroupLimits
) -> ConsumerGroupDescription | str:
    """A consumer group, or the reason why the id names no such group."""
    if group is None:
        return f"Group {group_id} not found."
    if not isinstance(group, ConsumerGroup):
        return f"Group {group_id} is not a consumer group."
    assignor = group.preferred_assignor(None, None, limits.assignors)
    members = [(member, group.target.get(member_id, {})) for member_id, member in group.members.items()]
    # An empty group has nothing to assign: Apache Kafka 4.4 shows its target as computed.
    target_epoch = group.target_epoch if members else group.epoch
    return ConsumerGroupDescription(group.state.value, group.epoch, target_epoch, assignor, members)


class ShareGroupDescription(NamedTuple):
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: Sequence[ShareMember]


def share_description(group_id: GroupId, group: AnyGroup | None) -> ShareGroupDescription | str:
    """A share group, or the reason why the id names no such group."""
    if group is None:
        return f"Group {group_id} not found."
    if not isinstance(group, ShareGroup):
        return f"Group {group_id} is not a share group."
    return ShareGroupDescription(
        group.state.value, group.epoch, group.target_epoch, SHARE_ASSIGNOR, list(group.members.values())
    )
