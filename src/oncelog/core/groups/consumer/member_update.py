"""The steps that a changed member takes, in either protocol. Each may add records to the decision.

1. Subscribe: write the subscription, and find which expressions to resolve.
2. Raise the group's epoch if a subscription or the subscribed topics changed.
3. Compute a new target assignment when one is due.
4. Take the member one step closer to its target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, TopicId, TopicName
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.assignors.spec import GroupSpec, MemberSpec
from oncelog.core.groups.consumer.decision import AnswerT, ConsumerDecision, MemberTimer
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.consumer.reconciliation import Target, reconcile
from oncelog.core.groups.consumer.regular_expressions import change_regex, expressions_due
from oncelog.core.groups.consumer.settings import GroupLimits
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.members import MemberState, Partitions
from oncelog.core.groups.modern.topics import Topics, hash_of_topics


class SubscriptionChange(NamedTuple):
    names: bool
    regex: bool
    regex_resolved: bool
    """The new expression's topics are known, or the member has dropped its expression."""


class MemberUpdate(NamedTuple):
    """A member before and after a request, and what the steps need."""

    group: ConsumerGroup
    before: ConsumerMember
    after: ConsumerMember
    topics: Topics
    limits: GroupLimits
    now_ms: int


def subscribe(update: MemberUpdate, decision: ConsumerDecision[AnswerT]) -> SubscriptionChange:
    """Write the subscription if it changed. Raises Refused for an expression that RE2 refuses."""
    group, before, after = update.group, update.before, update.after
    if after != before:
        decision.records.append(records.subscription(group.group_id, after))
    regex_changed, regex_resolved, regex_records = change_regex(group, before, after)
    decision.records += regex_records
    decision.to_resolve = expressions_due(group, before, after, update.topics, update.limits, update.now_ms)
    names_changed = after.topics is not before.topics and after.topics != before.topics
    return SubscriptionChange(names_changed, regex_changed, regex_resolved)


def raise_epoch(update: MemberUpdate, decision: ConsumerDecision[AnswerT], *, bump: bool) -> int:
    """The group's epoch after the change; it rises with subscriptions and with the topics themselves."""
    group, before, after = update.group, update.before, update.after
    if not bump and group.is_compared():
        return group.epoch
    is_last = before.regex != after.regex and group.regex_subscribers(before.regex) == 1
    names = group.subscribed_topics([before], after, [before.regex] if before.regex and is_last else [])
    metadata_hash = hash_of_topics(names, update.topics)
    epoch = group.epoch
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        decision.records.append(records.epoch(group.group_id, epoch, metadata_hash))
    group.metadata_refresh_epoch = epoch
    return epoch


def choose_target(update: MemberUpdate, epoch: int, decision: ConsumerDecision[AnswerT]) -> Target:
    """The member's target: a new assignment when one is due, or the last one."""
    group, member, limits = update.group, update.after, update.limits
    if not group.is_target_due(epoch, limits.assignment_interval_ms, update.now_ms):
        return last_target(update)
    predecessor = group.static_members.get(member.instance_id) if member.instance_id is not None else None
    members = {name: other for name, other in group.members.items() if name != predecessor} | {member.member_id: member}
    spec = group_spec(group, members, update.topics)
    assign = limits.assignors[group.preferred_assignor(update.before, member, limits.assignors)]
    assignment = assign(spec)
    for member_id in members:
        share = assignment.get(member_id, {})
        if share != group.target.get(member_id):
            decision.records.append(records.target(group.group_id, member_id, share))
    decision.records.append(records.target_epoch(group.group_id, epoch, update.now_ms))
    return Target(epoch, assignment.get(member.member_id, {}))


def last_target(update: MemberUpdate) -> Target:
    """The member's share of the assignment that the group has."""
    group, member = update.group, update.after
    return Target(group.target_epoch, group.target_of(member.member_id, member.instance_id))


def group_spec(group: ConsumerGroup, members: Mapping[MemberId, ConsumerMember], topics: Topics) -> GroupSpec:
    """The input of an assignor."""
    # Members mostly subscribe alike: a thousand of them look up a hundred topics once, not each.
    ids: dict[tuple[frozenset[TopicName], str], frozenset[TopicId]] = {}
    specs = {}
    for member_id, member in members.items():
        subscription = member.topics, member.regex
        if subscription not in ids:
            ids[subscription] = group.topic_ids_of(member, topics)
        assigned = group.assigned_before(member_id, member.instance_id)
        specs[member_id] = MemberSpec(ids[subscription], assigned, member.instance_id)
    subscribed = frozenset().union(*ids.values())
    return GroupSpec(specs, {topic: topics.partitions_of(topic) for topic in subscribed})


def advance(
    update: MemberUpdate,
    target: Target,
    owned: Partitions | None,
    decision: ConsumerDecision[AnswerT],
    *,
    changed: bool,
) -> ConsumerMember:
    """The member one step closer to its target. ``changed``: its subscription did. Raises Refused."""
    group, member = update.group, update.after
    if not changed and member.is_reconciled_to(target.epoch):
        return member
    if member.state is MemberState.UNKNOWN and (owned is None or any(owned.values())):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    subscribed = group.subscribed_topics_of(member, update.topics)
    after = reconcile(member, target, owned, subscribed, group.owners_of, subscription_changed=changed)
    if after == member:
        return member
    decision.records.append(records.current_assignment(group.group_id, after))
    if after.classic is None and after.state is MemberState.UNREVOKED_PARTITIONS:
        decision.start(after.member_id, MemberTimer.REBALANCE, after.rebalance_timeout_ms)
    elif after.classic is None or after.epoch != member.epoch:
        decision.cancel(after.member_id, MemberTimer.REBALANCE)
    return after
