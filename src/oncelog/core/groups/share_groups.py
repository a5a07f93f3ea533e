"""The share groups of a shard (KIP-932): carries out the decisions of ``share``.

As with consumer groups, a decision changes nothing: its records are appended and applied, then its follow-up restarts
the session. What the share coordinator has to do comes with the reply; its outcome is another decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, Offset, TopicId, TopicName
from oncelog.core.groups.any_group import AnyGroup
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.classic.rebalance import Rebalance, TimerKey, TimerKind, Timers
from oncelog.core.groups.member_quota import MemberQuota
from oncelog.core.groups.model import SHARE_PROTOCOL, GroupDecision, UndoExpiry
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.members import NO_PARTITIONS, Partitions
from oncelog.core.groups.modern.topics import Topics
from oncelog.core.groups.share import offsets, records
from oncelog.core.groups.share.decision import UNINITIALIZED_OFFSET, PartitionState, ShareDecision, ShareHeartbeatAnswer
from oncelog.core.groups.share.group import ShareGroup, state_topics_of
from oncelog.core.groups.share.heartbeat import ShareHeartbeat, decide_heartbeat, decide_leave, remove_member
from oncelog.core.groups.share.settings import ShareGroupSettings
from oncelog.core.groups.share.state_topics import StateTopics
from oncelog.core.groups.views import ShareGroupDescription, share_description
from oncelog.records.internal.share_group_records import (
    ShareGroupKey,
    ShareKey,
    ShareMemberKey,
    ShareStateTopicsKey,
    ShareStateTopicsValue,
    ShareValue,
)

DELETION_MS: Final = 300_000
"""Longer than a persister tries to delete state: a deletion whose end nobody told is given up."""
_TOO_MANY_PARTITIONS: Final = (
    "No more partitions can get share state: share groups of this coordinator have oncelog.group.share.partitions.max "
    "of them. Delete share groups, or their offsets, that are not needed any more."
)


class ShareHeartbeatReply(NamedTuple):
    """The reply to ShareGroupHeartbeat: an error, or an answer."""

    error_code: ErrorCode
    message: str | None = None
    answer: ShareHeartbeatAnswer | None = None
    heartbeat_interval_ms: int = 0
    to_initialize: Sequence[PartitionState] = ()


class OffsetsReply(NamedTuple):
    """The reply to the first part of a change of offsets: an error for all, or what the share coordinator has to do."""

    error_code: ErrorCode
    message: str | None = None
    states: Sequence[PartitionState] = ()
    topics: Sequence[offsets.TopicResult] = ()


class ShareGroups:
    """The share groups among the ``groups`` of a shard."""

    def __init__(
        self,
        groups: dict[GroupId, AnyGroup],
        timers: Timers,
        rebalance: Rebalance,
        quota: MemberQuota,
        settings_of: Callable[[GroupId], ShareGroupSettings],
        newest_topics: Callable[[], Topics],
        rebalances: Counter[str],
    ) -> None:
        """``newest_topics`` returns the topics, and lets each group compare its own after a change."""
        self._groups = groups
        self._timers = timers
        self._rebalance = rebalance
        self._quota = quota
        self._settings_of = settings_of
        self._newest_topics = newest_topics
        self._rebalances = rebalances

    def heartbeat(self, request: ShareHeartbeat, now_ms: int) -> GroupDecision:
        """Replies ShareHeartbeatReply."""
        if not self._quota.admits_heartbeat(request, now_ms):
            return GroupDecision(reply=ShareHeartbeatReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        group, topics = self._groups.get(request.group_id), self._newest_topics()
        settings = self._settings_of(request.group_id)
        try:
            if request.epoch < 0:
                decision = decide_leave(group, request, topics)
            else:
                room = self._quota.room_for_share_partitions
                decision = decide_heartbeat(group, request, topics, settings, room, now_ms)
        except Refused as refused:
            return GroupDecision(reply=ShareHeartbeatReply(refused.code, str(refused)), waits_for_pending=True)
        if decision.lacks_room and not self._quota.is_steady(request):
            return GroupDecision(reply=ShareHeartbeatReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, _TOO_MANY_PARTITIONS))
        interval_ms = 0 if request.epoch < 0 else settings.heartbeat_interval_ms
        reply = ShareHeartbeatReply(ErrorCode.NONE, None, decision.answer, interval_ms, decision.to_initialize)
        out = self._group_decision(decision, reply)
        if decision.lacks_room:
            out.warning = f"share group {request.group_id!r} does not get all of its topics. {_TOO_MANY_PARTITIONS}"
        return out

    def alter_offsets(self, group_id: GroupId, starts: Mapping[TopicName, Mapping[int, Offset]]) -> GroupDecision:
        """Replies OffsetsReply; ``initialized`` takes what the share coordinator has done."""

        def decide() -> offsets.OffsetsDecision:
            decision = offsets.decide_alter(self._groups.get(group_id), group_id, starts, self._newest_topics())
            if not self._admits_states(decision):
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, _TOO_MANY_PARTITIONS)
            return decision

        return self._offsets_decision(decide)

    def delete_offsets(self, group_id: GroupId, names: Iterable[TopicName], now_ms: int) -> GroupDecision:
        """Replies OffsetsReply; ``deletion_ended`` and ``deleted`` take what the share coordinator has done."""
        return self._offsets_decision(
            lambda: offsets.decide_delete(self._groups.get(group_id), group_id, names, self._newest_topics()),
            now_ms + DELETION_MS,
        )

    def begin_group_deletion(self, group_id: GroupId, now_ms: int) -> GroupDecision:
        """Replies OffsetsReply. The group itself is deleted once its states are."""
        return self._offsets_decision(
            lambda: offsets.decide_group_deletion(self._groups.get(group_id), group_id, self._newest_topics()),
            now_ms + DELETION_MS,
        )

    def deletion_ended(self, group_id: GroupId, topics: Iterable[TopicId]) -> GroupDecision:
        """No request that deletes state of the topics is under way any more. Replies an ErrorCode."""
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            group.end_deletions(topics)
            group.forget_comparisons()
        return GroupDecision(reply=ErrorCode.NONE)

    def describe(self, group_id: GroupId) -> ShareGroupDescription | str:
        """The group, or the reason why there is no share group with the id."""
        return share_description(group_id, self._groups.get(group_id))

    def partitions(self, group_id: GroupId) -> Partitions:
        """The partitions of a share group that have share state; none if there is no such group."""
        group = self._groups.get(group_id)
        state = group.state_topics if isinstance(group, ShareGroup) else None
        return {} if state is None else state.partitions()

    def initialized(
        self,
        group_id: GroupId,
        done: Partitions,
        failed: Partitions,
        uncertain: Partitions = NO_PARTITIONS,
        fenced_by: int = 0,
    ) -> GroupDecision:
        """Replies an ErrorCode. The state of ``uncertain`` partitions may have been made; ``fenced_by`` is the highest
        state epoch for which a share coordinator refused the group's.
        """
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            group.uncertain |= uncertain
            group.forget_comparisons()
        decided = offsets.decide_initialized(group, group_id, done, failed, self._newest_topics(), fenced_by)
        return self._group_decision(ShareDecision(group_id, records=decided), ErrorCode.NONE)

    def deleted(self, group_id: GroupId, topics: Sequence[TopicId]) -> GroupDecision:
        """Replies an ErrorCode."""
        decided = offsets.decide_deleted(self._groups.get(group_id), group_id, topics, self._newest_topics())
        return self._group_decision(ShareDecision(group_id, records=decided), ErrorCode.NONE)

    def topics_deleted(self, now_ms: int) -> None:
        """Topics were deleted: each group that knows one drops it in a decision of its own."""
        for group in self._groups.values():
            if isinstance(group, ShareGroup):
                self._drop_topics_gone(group, now_ms)

    def _drop_topics_gone(self, group: ShareGroup, now_ms: int) -> None:
        if offsets.topics_gone(group, self._newest_topics()):
            self._timers.schedule(TimerKey(TimerKind.GONE_TOPICS, group.group_id), now_ms)

    def expired(self, group: ShareGroup, key: TimerKey) -> GroupDecision:
        """A member's session has ended, or topics are gone; a deadline that a classic group left behind is none of this
        group's.
        """
        if key.kind is TimerKind.GONE_TOPICS:
            drop = ShareDecision(group.group_id, records=offsets.decide_topics_gone(group, self._newest_topics()))
            out = self._group_decision(drop, None)
            out.undo = UndoExpiry(group.group_id, MemberId(""), key.kind)
            return out
        member = group.members.get(MemberId(key.member_id))
        if key.kind is not TimerKind.MEMBER_SESSION or member is None:
            return GroupDecision()
        out = self._group_decision(remove_member(group, member, self._newest_topics()), None)
        out.undo = UndoExpiry(group.group_id, member.member_id, key.kind)
        return out

    def apply(self, key: ShareKey, value: ShareValue | None) -> None:
        """Apply one record, in any order: a value makes a share group of whatever the group was before."""
        group_id = GroupId(key.group)
        group = self._groups.get(group_id)
        if value is not None and not isinstance(group, ShareGroup):
            if isinstance(group, ClassicGroup):
                self._rebalance.forget(group)
            group = self._groups[group_id] = ShareGroup(group_id)
        if not isinstance(group, ShareGroup):
            return
        group.apply(key, value)
        if value is None and isinstance(key, ShareMemberKey):
            self._timers.cancel(_session(group_id, MemberId(key.member)))
        elif value is None and isinstance(key, ShareGroupKey):
            self.forget(group)
            del self._groups[group_id]

    def forget(self, group: ShareGroup) -> None:
        """Cancel the timers of a group that ends."""
        for member_id in group.members:
            self._timers.cancel(_session(group.group_id, member_id))

    def start_timers(self, group: ShareGroup, now_ms: int) -> None:
        """Start what a loaded group waits for."""
        timeout_ms = self._settings_of(group.group_id).session_timeout_ms
        for member_id in group.members:
            self._timers.schedule(_session(group.group_id, member_id), now_ms + timeout_ms)
        _restart_initialization(group, now_ms)
        self._drop_topics_gone(group, now_ms)

    def _offsets_decision(
        self, decide: Callable[[], offsets.OffsetsDecision], deletes_until_ms: int = 0
    ) -> GroupDecision:
        try:
            decision = decide()
        except Refused as refused:
            return GroupDecision(reply=OffsetsReply(refused.code, str(refused)), waits_for_pending=True)
        reply = OffsetsReply(ErrorCode.NONE, None, decision.states, decision.topics)
        out = self._group_decision(ShareDecision(decision.group_id, records=decision.records), reply)
        if not deletes_until_ms:
            return out
        follow_up, topics = out.follow_up, dict.fromkeys(state.topic for state in decision.states)

        def begin(now_ms: int) -> None:
            group = self._groups.get(decision.group_id)
            if isinstance(group, ShareGroup):
                group.begin_deletions(topics, deletes_until_ms)
            if follow_up is not None:
                follow_up(now_ms)

        out.follow_up = begin
        return out

    def _admits_states(self, decision: offsets.OffsetsDecision) -> bool:
        """True unless the decision gives share state to more partitions than may have it."""
        group = self._groups.get(decision.group_id)
        before = group.state_count() if isinstance(group, ShareGroup) else 0
        values = [value for _, value in decision.records if isinstance(value, ShareStateTopicsValue)]
        return all(
            self._quota.admits_share_partitions(state_topics_of(value).partition_count() - before) for value in values
        )

    def _group_decision(self, decision: ShareDecision, reply: object) -> GroupDecision:
        group_id = decision.group_id
        before = self._groups.get(group_id)
        epoch = before.epoch if isinstance(before, ShareGroup) else 0
        has_state_record = any(isinstance(key, ShareStateTopicsKey) for key, _ in decision.records)

        def follow_up(now_ms: int) -> None:
            group = self._groups.get(group_id)
            if not isinstance(group, ShareGroup):
                return
            if group.epoch > epoch:
                self._rebalances[SHARE_PROTOCOL] += 1
            if has_state_record:
                _restart_initialization(group, now_ms)
            for state in decision.to_initialize:
                group.uncertain.pop(state.topic, None)
                if state.start_offset == UNINITIALIZED_OFFSET:
                    count = group.first_counts.get(state.topic, 0)
                    group.first_counts[state.topic] = max(count, state.partition + 1)
            if decision.session_of is not None:
                timeout_ms = self._settings_of(group_id).session_timeout_ms
                self._timers.schedule(_session(group_id, decision.session_of), now_ms + timeout_ms)

        return GroupDecision(
            [records.encode(record) for record in decision.records], reply, waits_for_pending=True, follow_up=follow_up
        )


def _session(group_id: GroupId, member_id: MemberId) -> TimerKey:
    return TimerKey(TimerKind.MEMBER_SESSION, group_id, member_id)


def _restart_initialization(group: ShareGroup, now_ms: int) -> None:
    """Give the share coordinator the full time for every topic, as Apache Kafka does with each record."""
    state = group.state_topics or StateTopics()
    group.initializing_since_ms = dict.fromkeys(state.initializing, now_ms)
    group.complete_until_ms = None
    known = state.known()
    group.first_counts = {topic: count for topic, count in group.first_counts.items() if topic in known}
    group.uncertain = {topic: group.uncertain[topic] for topic in group.uncertain if topic in state.initializing}
