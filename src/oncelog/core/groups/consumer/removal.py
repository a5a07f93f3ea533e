"""Removal of members: they leave, an administrator removes them, or a timer expires.

Without its last member of the new protocol, a group with classic members becomes a classic group (``conversion``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from oncelog.base.ids import MemberId
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.conversion import downgrade, may_downgrade
from oncelog.core.groups.consumer.decision import AnswerT, ConsumerDecision
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.consumer.settings import GroupLimits
from oncelog.core.groups.modern.topics import Topics, hash_of_topics


def remove_members(
    group: ConsumerGroup,
    leaving: Collection[ConsumerMember],
    topics: Topics,
    limits: GroupLimits,
    now_ms: int,
    decision: ConsumerDecision[AnswerT],
) -> None:
    """Remove members and raise the group's epoch, or downgrade the group. ``leaving`` has no member twice."""
    if not leaving:
        return
    remaining = len(group.members) - len(leaving)
    if group.is_classic_without(leaving) and remaining and may_downgrade(remaining, limits):
        downgrade(group, topics, now_ms, decision, leaving=leaving, rebalances=True)
        return
    for member in leaving:
        decision.records += records.member_tombstones(group.group_id, member.member_id)
        decision.cancel(member.member_id)
    subscribers = Counter(member.regex for member in leaving if member.regex)
    dropped = [regex for regex, count in subscribers.items() if group.regex_subscribers(regex) == count]
    decision.records += (records.regex_tombstone(group.group_id, regex) for regex in dropped)
    names = group.subscribed_topics(leaving, dropped_regexes=dropped)
    decision.records.append(records.epoch(group.group_id, group.epoch + 1, hash_of_topics(names, topics)))


def decide_expiry(
    group: ConsumerGroup, member_id: MemberId, topics: Topics, limits: GroupLimits, now_ms: int
) -> ConsumerDecision[None]:
    """Decide what happens when any timer of a member expires."""
    decision: ConsumerDecision[None] = ConsumerDecision(None)
    member = group.members.get(member_id)
    if member is not None:
        remove_members(group, [member], topics, limits, now_ms, decision)
    return decision
