"""Decisions about heartbeats of the new protocol (KIP-848): join, go on, and leave.

A group that a heartbeat joins may be of the other kind. An empty classic group is replaced; one with members is
upgraded (``conversion``). ``member_update`` has the steps of a heartbeat that joins or goes on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, TopicName
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.conversion import upgrade
from oncelog.core.groups.consumer.decision import ConsumerDecision, HeartbeatAnswer, MemberTimer
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.identity import known_static_member, replace_static
from oncelog.core.groups.consumer.member import LEAVING_STATIC_EPOCH, NOTHING, ConsumerMember, Epochs
from oncelog.core.groups.consumer.member_update import MemberUpdate, advance, choose_target, raise_epoch, subscribe
from oncelog.core.groups.consumer.removal import remove_members
from oncelog.core.groups.consumer.settings import GroupLimits
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.members import JOINING_EPOCH, Partitions
from oncelog.core.groups.modern.topics import Topics

NOT_SENT: Final = -1
AnyGroup = ConsumerGroup | ClassicGroup


class ConsumerHeartbeat(NamedTuple):
    """ConsumerGroupHeartbeat; None where the request leaves a field as it was."""

    group_id: GroupId
    member_id: MemberId
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SENT
    topics: frozenset[TopicName] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """True if the request says everything, so that its answer does, too."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != NOT_SENT and has_subscription and self.owned is not None


HeartbeatDecision = ConsumerDecision[HeartbeatAnswer]


def decide_heartbeat(
    group: AnyGroup | None, request: ConsumerHeartbeat, topics: Topics, limits: GroupLimits, now_ms: int
) -> HeartbeatDecision:
    """Decide a heartbeat of a member that joins or goes on; ``group`` is None if it does not exist. Raises Refused."""
    decision = HeartbeatDecision(HeartbeatAnswer(request.member_id, request.epoch))
    group = _consumer_group(group, request, topics, limits, decision)
    group.check_not_full(request.member_id, limits.max_size)
    before = _static_member(group, request, decision) if request.instance_id else _dynamic_member(group, request)
    update = MemberUpdate(group, before, _updated(before, request), topics, limits, now_ms)
    if before.classic is not None:
        decision.cancel(request.member_id, MemberTimer.JOIN, MemberTimer.SYNC)
    change = subscribe(update, decision)
    epoch = raise_epoch(update, decision, bump=change.names or change.regex_resolved)
    target = choose_target(update, epoch, decision)
    member = advance(update, target, request.owned, decision, changed=change.names or change.regex)
    decision.start(member.member_id, MemberTimer.SESSION, limits.session_timeout_ms)
    # Compared by identity first: a steady member may have 100,000 partitions.
    is_changed = member.assigned is not before.assigned and member.assigned != before.assigned
    is_told = request.epoch == JOINING_EPOCH or request.is_full or is_changed
    decision.answer = HeartbeatAnswer(member.member_id, member.epoch, member.assigned if is_told else None)
    return decision


def decide_leave(
    group: AnyGroup | None, request: ConsumerHeartbeat, topics: Topics, limits: GroupLimits, now_ms: int
) -> HeartbeatDecision:
    """Decide the last heartbeat of a member, epoch −1, or −2 for a static member that comes back. Raises Refused."""
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    if not isinstance(group, ConsumerGroup):
        raise not_consumer(request)
    decision = HeartbeatDecision(HeartbeatAnswer(request.member_id, request.epoch))
    if request.instance_id is None:
        member = group.known_member(request.member_id)
    else:
        member = known_static_member(group, request.member_id, request.instance_id)
        if request.epoch == LEAVING_STATIC_EPOCH:
            leaving = member._replace(epoch=LEAVING_STATIC_EPOCH, pending_revocation=NOTHING)
            record = records.current_assignment(group.group_id, leaving.with_assignment_epochs_reset())
            decision.records.append(record)
            decision.cancel(member.member_id, MemberTimer.REBALANCE)
            return decision
    remove_members(group, [member], topics, limits, now_ms, decision)
    return decision


def _consumer_group(
    group: AnyGroup | None,
    request: ConsumerHeartbeat,
    topics: Topics,
    limits: GroupLimits,
    decision: HeartbeatDecision,
) -> ConsumerGroup:
    """The consumer group that the request is for: a joining member creates or upgrades one. Raises Refused."""
    if isinstance(group, ConsumerGroup):
        return group
    if request.epoch != JOINING_EPOCH:
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        raise not_consumer(request)
    if group is None:
        return ConsumerGroup(request.group_id)
    if group.state is GroupState.EMPTY:
        decision.records.append(records.classic_tombstone(request.group_id))
        return ConsumerGroup(request.group_id)
    return upgrade(group, topics, limits, decision)


def not_consumer(request: ConsumerHeartbeat) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")


def _dynamic_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
    if request.epoch == JOINING_EPOCH and request.member_id not in group.members:
        return ConsumerMember(request.member_id)
    member = group.known_member(request.member_id)
    _check_epoch(member, request)
    return member


def _static_member(group: ConsumerGroup, request: ConsumerHeartbeat, decision: HeartbeatDecision) -> ConsumerMember:
    """The member with an instance id. A new member id takes over from a member that has left for a while, and from a
    classic one.
    """
    instance_id = request.instance_id or ""
    if request.epoch != JOINING_EPOCH:
        member = known_static_member(group, request.member_id, instance_id)
        _check_epoch(member, request)
        return member
    predecessor = group.static_member(instance_id)
    if predecessor is None:
        return group.members.get(request.member_id) or ConsumerMember(request.member_id)
    if predecessor.classic is None and predecessor.epoch != LEAVING_STATIC_EPOCH:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {instance_id} cannot join the group because "
            f"the instance id is owned by {predecessor.member_id} member.",
        )
    return replace_static(group, predecessor, request.member_id, decision)


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Raises Refused unless the member has the epoch that it names, or can have missed the last answer only."""
    if request.epoch in (JOINING_EPOCH, member.epoch):
        return
    is_behind = request.epoch < member.epoch
    if is_behind and request.epoch == member.previous_epoch and _has_at_most(request.owned, member.assigned):
        return
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'smaller' if is_behind else 'greater'} member epoch ({request.epoch}) than "
        f"the one known by the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _has_at_most(owned: Partitions | None, assigned: Epochs) -> bool:
    return owned is not None and all(
        partitions <= assigned.get(topic, {}).keys() for topic, partitions in owned.items()
    )


def _updated(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """The member with the fields that the request names."""
    timeout_ms = (
        member.rebalance_timeout_ms if request.rebalance_timeout_ms == NOT_SENT else request.rebalance_timeout_ms
    )
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=timeout_ms,
        assignor=member.assignor if request.assignor is None else request.assignor,
        topics=member.topics if request.topics is None else request.topics,
        regex=member.regex if request.regex is None else request.regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )
