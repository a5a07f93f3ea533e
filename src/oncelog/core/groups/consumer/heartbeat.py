"""Decisions about heartbeats of the new protocol (KIP-848): join, go on, leave, and be fenced.

A decision changes nothing: it answers, and lists the records whose ``apply`` makes the change. Steps of a heartbeat,
each of which may add records: subscribe the member; raise the group's epoch if a subscription or the subscribed topics
changed; compute a new target assignment when one is due; take the member one step further.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, TopicName
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.assignors.spec import GroupSpec, MemberSpec
from oncelog.core.groups.consumer.group import ConsumerGroup, Topics
from oncelog.core.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NOTHING,
    ConsumerMember,
    Epochs,
    MemberState,
    Partitions,
)
from oncelog.core.groups.consumer.metadata_hash import hash_of_topics
from oncelog.core.groups.consumer.reconciliation import Target, reconcile
from oncelog.core.groups.consumer.records import GroupRecord
from oncelog.core.groups.consumer.regular_expressions import change_regex, expressions_due
from oncelog.core.groups.consumer.settings import GroupLimits, Refused

NOT_SENT: Final = -1


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


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat; ``assignment`` is None where it is as the member knows it."""

    member_id: MemberId
    epoch: int
    assignment: Epochs | None = None


@dataclass(slots=True)
class ConsumerDecision:
    """The outcome of a heartbeat: the answer, the records, and the member whose timers change."""

    answer: HeartbeatAnswer
    records: list[GroupRecord] = field(default_factory=list)
    member: ConsumerMember | None = None
    """The member after the records, whose timers are to run; None: it has left."""
    to_resolve: frozenset[str] = frozenset()
    """Expressions to resolve off the loop; ``decide_resolution`` takes the result."""


def decide_heartbeat(
    group: ConsumerGroup, request: ConsumerHeartbeat, topics: Topics, limits: GroupLimits, now_ms: int
) -> ConsumerDecision:
    """Decide a heartbeat of a member that joins or goes on. Raises Refused."""
    is_joining = request.epoch == JOINING_EPOCH
    if len(group.members) >= limits.max_size and request.member_id not in group.members:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limits.max_size} members.",
        )
    decision = ConsumerDecision(HeartbeatAnswer(request.member_id, request.epoch))
    before = _static_member(group, request, decision) if request.instance_id else _dynamic_member(group, request)
    member = _updated(before, request)
    names_changed = member.topics != before.topics
    if member != before:
        decision.records.append(records.subscription(group.group_id, member))
    regex_changed, regex_resolved = change_regex(group, before, member, decision.records)
    decision.to_resolve = expressions_due(group, before, member, topics, limits, now_ms)
    epoch = _group_epoch(group, before, member, topics, decision, bump=names_changed or regex_resolved)
    target = _target(group, epoch, before, member, topics, limits, decision, now_ms)
    member = _step(group, member, target, request.owned, topics, decision, changed=names_changed or regex_changed)
    changed = is_joining or request.is_full or member.assigned != before.assigned
    decision.answer = HeartbeatAnswer(member.member_id, member.epoch, member.assigned if changed else None)
    decision.member = member
    return decision


def decide_leave(group: ConsumerGroup, request: ConsumerHeartbeat, topics: Topics) -> ConsumerDecision:
    """Decide the last heartbeat of a member, epoch −1, or −2 for a static member that comes back. Raises Refused."""
    answer = HeartbeatAnswer(request.member_id, request.epoch)
    if request.instance_id is None:
        _known_member(group, request.member_id)
    else:
        member = _known_static_member(group, request)
        if request.epoch == LEAVING_STATIC_EPOCH:
            leaving = member._replace(epoch=LEAVING_STATIC_EPOCH, pending_revocation=NOTHING)
            record = records.current_assignment(group.group_id, leaving.with_assignment_epochs_reset())
            return ConsumerDecision(answer, [record], leaving)
    return ConsumerDecision(answer, fence(group, [request.member_id], topics))


def fence(group: ConsumerGroup, member_ids: Iterable[MemberId], topics: Topics) -> list[GroupRecord]:
    """The records that remove members and raise the group's epoch."""
    gone = [group.members[member_id] for member_id in member_ids]
    result = [record for member in gone for record in records.member_tombstones(group.group_id, member.member_id)]
    leaving = {
        regex: sum(member.regex == regex for member in gone) for regex in {member.regex for member in gone} if regex
    }
    dropped = [regex for regex, count in leaving.items() if group.regex_subscribers(regex) == count]
    result += [records.regex_tombstone(group.group_id, regex) for regex in dropped]
    names = group.subscribed_topics(gone, dropped_regexes=dropped)
    result.append(records.epoch(group.group_id, group.epoch + 1, hash_of_topics(names, topics)))
    return result


def _known_member(group: ConsumerGroup, member_id: MemberId) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def _known_static_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
    member = group.static_member(request.instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if member.member_id != request.member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def _dynamic_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
    if request.epoch == JOINING_EPOCH and request.member_id not in group.members:
        return ConsumerMember(request.member_id)
    member = _known_member(group, request.member_id)
    _check_epoch(member, request)
    return member


def _static_member(group: ConsumerGroup, request: ConsumerHeartbeat, decision: ConsumerDecision) -> ConsumerMember:
    """The member with an instance id; a new member id takes over from one that has left for a while."""
    if request.epoch != JOINING_EPOCH:
        member = _known_static_member(group, request)
        _check_epoch(member, request)
        return member
    predecessor = group.static_member(request.instance_id)
    if predecessor is None:
        return group.members.get(request.member_id) or ConsumerMember(request.member_id)
    if predecessor.classic is None and predecessor.epoch != LEAVING_STATIC_EPOCH:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group because "
            f"the instance id is owned by {predecessor.member_id} member.",
        )
    successor = predecessor._replace(member_id=request.member_id, epoch=JOINING_EPOCH, previous_epoch=0)
    decision.records += [
        *records.member_tombstones(group.group_id, predecessor.member_id),
        records.subscription(group.group_id, successor),
        records.target(group.group_id, successor.member_id, group.target.get(predecessor.member_id, {})),
        records.current_assignment(group.group_id, successor),
    ]
    return successor


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


def _group_epoch(
    group: ConsumerGroup,
    before: ConsumerMember,
    after: ConsumerMember,
    topics: Topics,
    decision: ConsumerDecision,
    *,
    bump: bool,
) -> int:
    """The group's epoch after the change; it rises with subscriptions and with the topics themselves."""
    if not bump and group.metadata_refresh_epoch is not None and group.metadata_refresh_epoch <= group.epoch:
        # Compared since the last metadata change, and the records of that comparison were appended.
        return group.epoch
    is_last = before.regex != after.regex and group.regex_subscribers(before.regex) == 1
    names = group.subscribed_topics([before], after, [before.regex] if before.regex and is_last else [])
    metadata_hash = hash_of_topics(names, topics)
    epoch = group.epoch
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        decision.records.append(records.epoch(group.group_id, epoch, metadata_hash))
    group.metadata_refresh_epoch = epoch
    return epoch


def _target(
    group: ConsumerGroup,
    epoch: int,
    before: ConsumerMember,
    member: ConsumerMember,
    topics: Topics,
    limits: GroupLimits,
    decision: ConsumerDecision,
    now_ms: int,
) -> Target:
    """The member's target: a new assignment when one is due, or the last one."""
    due_ms = group.target_timestamp_ms + limits.assignment_interval_ms if group.target_timestamp_ms else 0
    if group.target_epoch >= epoch or now_ms < due_ms:
        return Target(group.target_epoch, group.target_of(member.member_id, member.instance_id))
    predecessor = group.static_members.get(member.instance_id) if member.instance_id is not None else None
    members = {name: other for name, other in group.members.items() if name != predecessor} | {member.member_id: member}
    spec = group_spec(group, members, topics)
    assign = limits.assignors[group.preferred_assignor(before, member) or next(iter(limits.assignors))]
    assignment = assign(spec)
    for member_id in members:
        share = assignment.get(member_id, {})
        if share != group.target.get(member_id):
            decision.records.append(records.target(group.group_id, member_id, share))
    decision.records.append(records.target_epoch(group.group_id, epoch, now_ms))
    return Target(epoch, assignment.get(member.member_id, {}))


def group_spec(group: ConsumerGroup, members: Mapping[MemberId, ConsumerMember], topics: Topics) -> GroupSpec:
    """The input of an assignor."""
    specs = {
        member_id: MemberSpec(
            group.topic_ids_of(member, topics), group.assigned_before(member_id, member.instance_id), member.instance_id
        )
        for member_id, member in members.items()
    }
    subscribed = frozenset().union(*(spec.topics for spec in specs.values()))
    return GroupSpec(specs, {topic: topics.partitions_of(topic) for topic in subscribed})


def _step(
    group: ConsumerGroup,
    member: ConsumerMember,
    target: Target,
    owned: Partitions | None,
    topics: Topics,
    decision: ConsumerDecision,
    *,
    changed: bool,
) -> ConsumerMember:
    """The member one step closer to its target."""
    if not changed and member.is_reconciled_to(target.epoch):
        return member
    if member.state is MemberState.UNKNOWN and (owned is None or any(owned.values())):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    subscribed = group.topic_ids_of(member, topics)
    after = reconcile(member, target, owned, subscribed, group.owner_epoch, subscription_changed=changed)
    if after != member:
        decision.records.append(records.current_assignment(group.group_id, after))
    return after
