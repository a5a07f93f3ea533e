"""The consumer groups of a shard (KIP-848): carries out the decisions of ``consumer``.

A decision about a consumer group changes nothing. Its records are appended and applied; then its follow-up sets timers,
starts the resolution of expressions, and completes a downgrade.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, TopicName
from oncelog.base.invariant import invariant
from oncelog.core.groups.any_group import AnyGroup
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.classic.membership import MemberDecisions
from oncelog.core.groups.classic.rebalance import Rebalance, TimerKey, TimerKind, Timers
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.classic_members import (
    decide_classic_heartbeat,
    decide_classic_leave,
    decide_join,
    decide_sync,
)
from oncelog.core.groups.consumer.decision import (
    ConsumerDecision,
    Downgrade,
    HeartbeatAnswer,
    MemberTimer,
    TimerChange,
    timers_after_load,
)
from oncelog.core.groups.consumer.group import ConsumerGroup, ResolvedRegex
from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat, decide_heartbeat, decide_leave, not_consumer
from oncelog.core.groups.consumer.regular_expressions import RESOLUTION_TIMEOUT_MS, decide_resolution
from oncelog.core.groups.consumer.removal import decide_expiry
from oncelog.core.groups.consumer.settings import GroupLimits
from oncelog.core.groups.member_quota import MemberQuota
from oncelog.core.groups.model import (
    CONSUMER_PROTOCOL,
    GroupDecision,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeavingMember,
    SyncReply,
    SyncRequest,
    UndoExpiry,
    UndoReplacedGroup,
)
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.topics import Topics
from oncelog.core.groups.share.group import ShareGroup
from oncelog.records.internal.consumer_group_records import ConsumerGroupKey, Key, MemberKey, Value

EXPIRY_RETRY_MS: Final = 500
"""Pause before a member is removed again whose removal could not be appended; as in Apache Kafka."""
_TIMERS: Final = {
    MemberTimer.SESSION: TimerKind.MEMBER_SESSION,
    MemberTimer.REBALANCE: TimerKind.MEMBER_REBALANCE,
    MemberTimer.JOIN: TimerKind.MEMBER_JOIN,
    MemberTimer.SYNC: TimerKind.MEMBER_SYNC,
}


class HeartbeatReply(NamedTuple):
    """The reply to ConsumerGroupHeartbeat: an error, or an answer."""

    error_code: ErrorCode
    message: str | None = None
    answer: HeartbeatAnswer | None = None
    heartbeat_interval_ms: int = 0
    to_resolve: frozenset[str] = frozenset()
    """Expressions for ``GroupShard.regexes_resolved``."""
    metadata_version: int = 0


class ConsumerGroups:
    """The consumer groups among the ``groups`` of a shard."""

    def __init__(
        self,
        groups: dict[GroupId, AnyGroup],
        timers: Timers,
        rebalance: Rebalance,
        membership: MemberDecisions,
        quota: MemberQuota,
        limits_of: Callable[[GroupId], GroupLimits],
        topics: Topics,
        rebalances: Counter[str],
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._rebalance = rebalance
        self._membership = membership
        self._quota = quota
        self._limits_of = limits_of
        self._topics = topics
        self._rebalances = rebalances
        self._version = topics.version

    def heartbeat(self, request: ConsumerHeartbeat, now_ms: int) -> GroupDecision:
        """Replies HeartbeatReply."""
        topics, limits = self.newest_topics(), self._limits_of(request.group_id)
        decide = decide_leave if request.epoch < 0 else decide_heartbeat
        group = self._groups.get(request.group_id)
        try:
            if isinstance(group, ShareGroup):
                raise not_consumer(request)
            decision = decide(group, request, topics, limits, now_ms)
        except Refused as refused:
            return GroupDecision(reply=HeartbeatReply(refused.code, str(refused)), waits_for_pending=True)
        interval_ms = 0 if request.epoch < 0 else limits.heartbeat_interval_ms
        reply = HeartbeatReply(ErrorCode.NONE, None, decision.answer, interval_ms, decision.to_resolve, topics.version)
        return self._group_decision(request.group_id, decision, reply)

    def regexes_resolved(
        self, group_id: GroupId, topics: Mapping[str, Collection[TopicName]], version: int, now_ms: int
    ) -> GroupDecision:
        """Take over the topics that expressions match."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return GroupDecision(reply=ErrorCode.GROUP_ID_NOT_FOUND)
        resolved = {regex: ResolvedRegex(frozenset(names), version, now_ms) for regex, names in topics.items()}
        decided = decide_resolution(group, resolved, self.newest_topics())

        epoch = group.epoch

        def finish(_now_ms: int) -> None:
            # Topics that could not be appended are not matched again at every heartbeat.
            group.resolving_until_ms = 0
            self._count_rebalance(group, epoch)

        return GroupDecision([records.encode(record) for record in decided], ErrorCode.NONE, follow_up=finish)

    def join(self, request: JoinRequest, token: int, now_ms: int) -> GroupDecision:
        """Replies JoinReply. An empty group becomes classic."""
        group = self._consumer_group(request.group_id)
        if not group.members:
            return self._join_empty(group, request, token, now_ms)
        try:
            decision = decide_join(group, request, self.newest_topics(), self._limits_of(group.group_id), now_ms)
        except Refused as refused:
            return GroupDecision(reply=JoinReply(refused.code), waits_for_pending=True)
        return self._group_decision(group.group_id, decision, decision.answer)

    def _join_empty(self, group: ConsumerGroup, request: JoinRequest, token: int, now_ms: int) -> GroupDecision:
        del self._groups[group.group_id]
        decision = self._membership.join(request, token, now_ms)
        if group.group_id not in self._groups:
            # Refused: the group stays, other than in Apache Kafka 4.3.
            self._groups[group.group_id] = group
            return decision
        decision.records[:0] = [records.encode(record) for record in records.group_tombstones(group)]
        decision.undo = UndoReplacedGroup(group.group_id, group)
        return decision

    def restore(self, undo: UndoReplacedGroup) -> None:
        """Take back an empty group that the append of its tombstones failed to remove."""
        classic = self._groups.get(undo.group_id)
        if isinstance(classic, ClassicGroup):
            self._rebalance.forget(classic)
        invariant(isinstance(undo.group, ConsumerGroup), "no consumer group to restore", group=undo.group_id)
        if isinstance(undo.group, ConsumerGroup):
            self._groups[undo.group_id] = undo.group

    def sync(self, request: SyncRequest) -> GroupDecision:
        """Replies SyncReply."""
        try:
            decision = decide_sync(self._consumer_group(request.group_id), request, self.newest_topics())
        except Refused as refused:
            return GroupDecision(reply=SyncReply(refused.code), waits_for_pending=True)
        return self._group_decision(request.group_id, decision, decision.answer)

    def classic_heartbeat(self, request: HeartbeatRequest) -> GroupDecision:
        """Replies an ErrorCode."""
        try:
            decision = decide_classic_heartbeat(self._consumer_group(request.group_id), request)
        except Refused as refused:
            return GroupDecision(reply=refused.code)
        return self._group_decision(request.group_id, decision, decision.answer)

    def leave(self, group_id: GroupId, leaving: Sequence[LeavingMember], now_ms: int) -> GroupDecision:
        """Replies LeaveReply."""
        group, topics = self._consumer_group(group_id), self.newest_topics()
        decision = decide_classic_leave(group, leaving, topics, self._limits_of(group_id), now_ms)
        return self._group_decision(group_id, decision, decision.answer)

    def expired(self, group: ConsumerGroup, key: TimerKey, now_ms: int) -> GroupDecision:
        """A deadline has passed; one that a classic group left behind is none of this group's."""
        if key.kind <= TimerKind.EXPIRY:
            return GroupDecision()
        limits = self._limits_of(group.group_id)
        decision = decide_expiry(group, MemberId(key.member_id), self.newest_topics(), limits, now_ms)
        out = self._group_decision(group.group_id, decision, None)
        out.undo = UndoExpiry(group.group_id, MemberId(key.member_id), key.kind)
        return out

    def expire_again(self, undo: UndoExpiry, now_ms: int) -> None:
        """Repeat an expiry soon: the records that remove the member could not be appended."""
        key = TimerKey(TimerKind(undo.kind), undo.group_id, undo.member_id)
        self._timers.schedule(key, now_ms + EXPIRY_RETRY_MS)

    def apply(self, key: Key, value: Value | None) -> None:
        """Apply one record, in any order: a value makes a consumer group of whatever the group was before."""
        group_id = GroupId(key.group)
        group = self._groups.get(group_id)
        if value is not None and not isinstance(group, ConsumerGroup):
            if isinstance(group, ClassicGroup):
                self._rebalance.forget(group)
            group = self._groups[group_id] = ConsumerGroup(group_id)
        if not isinstance(group, ConsumerGroup):
            return
        group.apply(key, value)
        if value is None and isinstance(key, MemberKey):
            self._set_timers(group_id, (TimerChange(MemberId(key.member), timer) for timer in MemberTimer), 0)
        elif value is None and isinstance(key, ConsumerGroupKey):
            self.forget(group)
            del self._groups[group_id]

    def forget(self, group: ConsumerGroup) -> None:
        """Cancel the timers of a group that ends."""
        changes = (TimerChange(member_id, timer) for member_id in group.members for timer in MemberTimer)
        self._set_timers(group.group_id, changes, 0)

    def start_timers(self, group: ConsumerGroup, now_ms: int) -> None:
        self._set_timers(group.group_id, timers_after_load(group, self._limits_of(group.group_id)), now_ms)

    def _consumer_group(self, group_id: GroupId) -> ConsumerGroup:
        group = self._groups[group_id]
        if not isinstance(group, ConsumerGroup):
            raise TypeError(f"group {group_id} is not a consumer group")
        return group

    def newest_topics(self) -> Topics:
        """The topics; after a change every group compares the hash of its own at its next heartbeat."""
        version = self._topics.version
        if version != self._version:
            self._version = version
            for group in self._groups.values():
                if not isinstance(group, ClassicGroup):
                    group.metadata_refresh_epoch = None
        return self._topics

    def _group_decision(self, group_id: GroupId, decision: ConsumerDecision[Any], reply: object) -> GroupDecision:
        before = self._groups.get(group_id)
        epoch = before.epoch if isinstance(before, ConsumerGroup) else 0

        def follow_up(now_ms: int) -> None:
            group = self._groups.get(group_id)
            self._count_rebalance(group, epoch)
            if decision.to_resolve and isinstance(group, ConsumerGroup):
                group.resolving_until_ms = now_ms + RESOLUTION_TIMEOUT_MS
            if decision.downgrade is None:
                self._set_timers(group_id, decision.timers, now_ms)
            else:
                self._complete_downgrade(decision.downgrade, now_ms)

        return GroupDecision(
            [records.encode(record) for record in decision.records],
            reply,
            list(decision.released),
            waits_for_pending=True,
            follow_up=follow_up,
        )

    def _count_rebalance(self, group: AnyGroup | None, epoch_before: int) -> None:
        """Count a rise of a group's epoch; a conversion is one at most."""
        if isinstance(group, ConsumerGroup) and group.epoch > epoch_before:
            self._rebalances[CONSUMER_PROTOCOL] += 1

    def _complete_downgrade(self, downgrade: Downgrade, now_ms: int) -> None:
        """Replace the applied classic group, which lacks the protocols that its members offer."""
        group, rebalances = downgrade
        self._groups[group.group_id] = group
        self._quota.changed(group.size_bytes())
        for member in group.members.values():
            self._rebalance.restart_session(group, member, now_ms)
        if rebalances:
            out = GroupDecision()
            self._rebalance.prepare(group, now_ms, out)
            is_silent = not (out.records or out.released)
            invariant(is_silent, "a new classic group had parked requests", group=group.group_id)

    def _set_timers(self, group_id: GroupId, changes: Iterable[TimerChange], now_ms: int) -> None:
        for member_id, timer, timeout_ms, keeps_running in changes:
            key = TimerKey(_TIMERS[timer], group_id, member_id)
            if timeout_ms is None:
                self._timers.cancel(key)
            elif not (keeps_running and self._timers.deadline_of(key) is not None):
                self._timers.schedule(key, now_ms + timeout_ms)
