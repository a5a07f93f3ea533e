"""GroupShard: a deterministic state machine for all groups that one ``__consumer_offsets`` partition coordinates.

The node calls a decide method with a token and the time, appends the decision's records as one batch, calls ``apply``
for each, and once they are durable delivers ``reply`` to the token and ``released`` to the others. Nothing else may
interleave with decide, append and apply. After a failed append it calls ``append_failed``; at ``deadline_ms()`` it
calls ``tick`` and treats its decision alike. Loading: ``apply`` for every record of the log in order, then ``loaded``;
no decisions before.

The rule: only ``apply`` (``applied_records``) changes persisted state, and the same ``apply`` rebuilds it from the
log. Decide methods may change soft state (docs/internals/groups.md). The shard reads no clock and generates no ids.

A group's kind is its class: ``classic`` has the decisions about one, ``consumer_groups`` and ``share_groups`` those
about the others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import cast

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_PRODUCER_ID, GroupId, MemberId, ProducerId, TopicId, TopicName, TopicPartition
from oncelog.base.invariant import invariant
from oncelog.core.groups.any_group import AnyGroup
from oncelog.core.groups.applied_records import AppliedRecords
from oncelog.core.groups.classic import persistence
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.classic.membership import MemberDecisions
from oncelog.core.groups.classic.rebalance import Rebalance, TimerKey, TimerKind, Timers
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.commits import Commits
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat
from oncelog.core.groups.consumer.settings import GroupLimits, default_limits
from oncelog.core.groups.consumer_groups import ConsumerGroups, HeartbeatReply
from oncelog.core.groups.member_quota import MemberMemory, MemberQuota
from oncelog.core.groups.model import (
    CommitRequest,
    CommittedOffset,
    GroupDecision,
    GroupDescription,
    GroupListing,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    Record,
    SyncReply,
    SyncRequest,
    TransactionalCommitRequest,
    UndoAssignment,
    UndoExpiry,
    UndoNewGroup,
    UndoReplacedGroup,
    UndoStaticReplacement,
)
from oncelog.core.groups.modern.topics import NoTopics, Topics
from oncelog.core.groups.offsets import OffsetStore
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.share.group import ShareGroup
from oncelog.core.groups.share.settings import ShareGroupSettings, default_share_settings
from oncelog.core.groups.share_groups import ShareGroups
from oncelog.core.groups.views import ConsumerGroupDescription, consumer_description, description, listing

__all__ = ["GroupDecision", "GroupSettings", "GroupShard"]

EXPIRY_GROUPS_PER_TICK = 500
"""Groups checked by one tick of the expiry job, so that it does not block the loop."""
EXPIRY_RECORDS_PER_TICK = 2000
"""Tombstones after which a tick of the expiry job ends early."""
EXPIRY_PAUSE_MS = 10
"""Pause between two ticks of the expiry job."""
_EXPIRY = TimerKey(TimerKind.EXPIRY)
_GONE_OFFSETS = TimerKey(TimerKind.GONE_OFFSETS)


class GroupShard:
    def __init__(
        self,
        partition: int,
        settings: GroupSettings,
        memory: MemberMemory | None = None,
        limits_of: Callable[[GroupId], GroupLimits] = default_limits,
        topics: Topics | None = None,
        rebalances: Counter[str] | None = None,
        share_settings_of: Callable[[GroupId], ShareGroupSettings] = default_share_settings,
    ) -> None:
        """``memory`` and the counts of ``rebalances`` by protocol are shared with the broker's other shards;
        ``limits_of`` and ``share_settings_of`` return a group's settings."""
        self.partition = partition
        self.settings = settings
        self.limits_of = limits_of
        self.is_loaded = False
        self._groups: dict[GroupId, AnyGroup] = {}
        self._offsets = OffsetStore()
        self._timers = Timers()
        self._rebalance = Rebalance(settings, self._timers)
        # It gets requests about classic groups only.
        classic_groups = cast("dict[GroupId, ClassicGroup]", self._groups)
        self._membership = MemberDecisions(classic_groups, settings, self._rebalance)
        self._quota = MemberQuota(self._groups, settings, memory or MemberMemory())
        self._commits = Commits(partition, self._groups, self._offsets, settings, self._rebalance)
        counts = Counter[str]() if rebalances is None else rebalances
        self._consumers = ConsumerGroups(
            self._groups,
            self._timers,
            self._rebalance,
            self._membership,
            self._quota,
            limits_of,
            topics or NoTopics(),
            counts,
        )
        newest = self._consumers.newest_topics
        self.share = ShareGroups(
            self._groups, self._timers, self._rebalance, self._quota, share_settings_of, newest, counts
        )
        self._applied = AppliedRecords(
            self._groups, self._offsets, self._rebalance, self._consumers, self.share, self._quota, counts
        )
        self._expiry_queue: list[GroupId] = []
        self._gone: deque[tuple[list[TopicPartition], int]] = deque()
        """Deleted partitions that may have offsets, and the sequence of their deletion: later offsets are those of
        topics that were made again."""

    @property
    def skipped(self) -> Counter[str]:
        """Unreadable records by reason, for the node to log."""
        return self._applied.skipped

    def consumer_heartbeat(self, request: ConsumerHeartbeat, token: int, now_ms: int) -> GroupDecision:
        """ConsumerGroupHeartbeat (KIP-848); replies HeartbeatReply."""
        if not self._quota.admits_heartbeat(request, now_ms):
            return GroupDecision(reply=HeartbeatReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return self._consumers.heartbeat(request, now_ms)

    def regexes_resolved(
        self, group_id: GroupId, topics: Mapping[str, Collection[TopicName]], version: int, token: int, now_ms: int
    ) -> GroupDecision:
        """Take over the topics that expressions match in a version of the metadata; replies an ErrorCode."""
        return self._consumers.regexes_resolved(group_id, topics, version, now_ms)

    def join(self, request: JoinRequest, token: int, now_ms: int) -> GroupDecision:
        if not self._membership.allows_session_timeout(request.session_timeout_ms):
            return GroupDecision(reply=JoinReply(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        if not self._quota.admits_join(request, now_ms):
            return GroupDecision(reply=JoinReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id))
        match self._groups.get(request.group_id):
            case ShareGroup():
                return GroupDecision(reply=JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            case ConsumerGroup():
                return self._consumers.join(request, token, now_ms)
        return self._membership.join(request, token, now_ms)

    def sync(self, request: SyncRequest, token: int, now_ms: int) -> GroupDecision:
        if not self._quota.admits_assignments(request, now_ms):
            return GroupDecision(reply=SyncReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        match self._groups.get(request.group_id):
            case ShareGroup():
                return GroupDecision(reply=SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
            case ConsumerGroup():
                return self._consumers.sync(request)
        return self._membership.sync(request, token, now_ms)

    def heartbeat(self, request: HeartbeatRequest, token: int, now_ms: int) -> GroupDecision:
        match self._groups.get(request.group_id):
            case ShareGroup():
                return GroupDecision(reply=ErrorCode.UNKNOWN_MEMBER_ID)
            case ConsumerGroup():
                return self._consumers.classic_heartbeat(request)
        return self._membership.heartbeat(request, now_ms)

    def leave(self, group_id: GroupId, leaving: Sequence[LeavingMember], token: int, now_ms: int) -> GroupDecision:
        match self._groups.get(group_id):
            case ShareGroup():
                return GroupDecision(reply=LeaveReply(ErrorCode.UNKNOWN_MEMBER_ID))
            case ConsumerGroup():
                return self._consumers.leave(group_id, leaving, now_ms)
        return self._membership.leave(group_id, leaving, now_ms)

    def commit_offsets(self, request: CommitRequest, token: int, now_ms: int) -> GroupDecision:
        return self._commits.commit(request, now_ms)

    def commit_transactional_offsets(
        self, request: TransactionalCommitRequest, token: int, now_ms: int
    ) -> GroupDecision:
        """TxnOffsetCommit; replies CommitReply. The offsets stay pending until ``apply_end_transaction``."""
        return self._commits.commit_transactional(request, now_ms)

    def fetch_offsets(
        self,
        group_id: GroupId,
        partitions: Sequence[tuple[TopicName, TopicId, int]] | None,
        token: int,
        now_ms: int,
        *,
        require_stable: bool = False,
        undecided: Collection[ProducerId] = (),
        member_id: MemberId | None = None,
        member_epoch: int = -1,
    ) -> GroupDecision:
        """OffsetFetch of ``partitions``, None for all; replies a list of FetchedOffset, or PendingOffsets if that would
        miss offsets of producers other than ``undecided``, whose transactions were open when the request arrived. In a
        consumer group, replies an ErrorCode to all but a member in its epoch and an administrator, who names
        neither."""
        refusal = self._commits.fetch_refusal(group_id, member_id, member_epoch)
        if refusal is not ErrorCode.NONE:
            return GroupDecision(reply=refusal)
        if partitions is None:
            return self._commits.fetch_all(group_id, require_stable=require_stable, undecided=undecided)
        return self._commits.fetch(group_id, partitions, require_stable=require_stable, undecided=undecided)

    def delete_offsets(
        self, group_id: GroupId, partitions: Sequence[TopicPartition], token: int, now_ms: int
    ) -> GroupDecision:
        """OffsetDelete; replies one ErrorCode for all or a list."""
        return self._commits.delete(group_id, partitions)

    def delete_group(self, group_id: GroupId, token: int, now_ms: int) -> GroupDecision:
        return self._commits.delete_group(group_id)

    def partitions_deleted(self, partitions: Iterable[TopicPartition], now_ms: int) -> GroupDecision:
        """Drop the offsets of the partitions, and, by deadlines, what share groups know of their topics. No reply."""
        self.share.topics_deleted(now_ms)
        self._gone.append((list(partitions), self._offsets.next_sequence()))
        return self._drop_offsets(now_ms)

    def _drop_offsets(self, now_ms: int) -> GroupDecision:
        """A part of the offsets of deleted partitions; the next finds what is left, after a refused append, too."""
        out = GroupDecision(undo=UndoExpiry(GroupId(""), MemberId(""), TimerKind.GONE_OFFSETS))
        while self._gone and not out.records:
            partitions, sequence = self._gone[0]
            out.records = self._commits.topics_deleted(partitions, sequence)
            if not out.records:
                self._gone.popleft()
        if out.records:
            self._timers.schedule(_GONE_OFFSETS, now_ms + EXPIRY_PAUSE_MS)
        return out

    def describe(self, group_id: GroupId) -> GroupDescription:
        return description(
            group_id,
            self._groups.get(group_id),
            lambda member_id: self._timers.deadline_of(TimerKey(TimerKind.SESSION, group_id, member_id)),
        )

    def describe_consumer_group(self, group_id: GroupId) -> ConsumerGroupDescription | str:
        """The group, or the reason why there is no consumer group with the id."""
        return consumer_description(group_id, self._groups.get(group_id), self.limits_of(group_id))

    def listings(self) -> list[GroupListing]:
        return [listing(group) for group in self._groups.values()]

    def committed_offsets(self) -> Iterable[tuple[GroupId, TopicName, int, int]]:
        """Group, topic, partition and offset of all commits (metrics: group lag)."""
        for group_id, topic, partition, committed in self._offsets.committed:
            yield group_id, topic, partition, committed.offset

    def deadline_ms(self) -> int | None:
        """When to call ``tick`` next; None: not before the next decision."""
        return self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> GroupDecision:
        """Handle one due deadline, or a part of the expiry job; repeat while ``deadline_ms()`` is due."""
        out = GroupDecision()
        key = self._timers.pop_due(now_ms)
        if key is None:
            return out
        if key.kind is TimerKind.EXPIRY:
            self._expire(now_ms, out)
            return out
        if key.kind is TimerKind.GONE_OFFSETS:
            return self._drop_offsets(now_ms)
        # The group may have been removed since the timer was set.
        group = self._groups.get(GroupId(key.group_id))
        if isinstance(group, ConsumerGroup):
            return self._consumers.expired(group, key, now_ms)
        if isinstance(group, ShareGroup):
            return self.share.expired(group, key)
        if group is None or key.kind > TimerKind.EXPIRY:
            return out
        if key.kind is TimerKind.SESSION:
            self._rebalance.session_expired(group, MemberId(key.member_id), now_ms, out)
        elif key.kind is TimerKind.JOIN:
            self._rebalance.join_phase_expired(group, now_ms, out)
        else:
            self._rebalance.sync_phase_expired(group, now_ms, out)
        return out

    def _expire(self, now_ms: int, out: GroupDecision) -> None:
        """Run a part of the expiry job; the next follows soon, or after the check interval if all groups are done."""
        if not self._expiry_queue:
            self._expiry_queue = list(reversed(self._groups))
        for _ in range(min(EXPIRY_GROUPS_PER_TICK, len(self._expiry_queue))):
            group = self._groups.get(self._expiry_queue.pop())
            if group is not None:
                out.records += self._commits.expire(group, now_ms)
            if len(out.records) >= EXPIRY_RECORDS_PER_TICK:
                break
        interval_ms = EXPIRY_PAUSE_MS if self._expiry_queue else self.settings.offsets_retention_check_interval_ms
        self._timers.schedule(_EXPIRY, now_ms + interval_ms)

    def apply(self, key: bytes, value: bytes | None, *, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """Apply one record of the log; ``producer_id`` is that of its batch if that is transactional."""
        self._applied.apply(key, value, producer_id=producer_id)

    def apply_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """Apply the control record that ends a producer's transaction."""
        self._offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, now_ms: int) -> GroupDecision:
        """End loading: start all members' sessions and accept decisions. No reply."""
        self.is_loaded, self._applied.is_loading = True, False
        self._quota.count()
        out = GroupDecision()
        for group in list(self._groups.values()):
            if isinstance(group, ConsumerGroup):
                self._consumers.start_timers(group, now_ms)
                continue
            if isinstance(group, ShareGroup):
                self.share.start_timers(group, now_ms)
                continue
            for member in group.members.values():
                self._rebalance.restart_session(group, member, now_ms)
            # The limit may have been lowered since: a rebalance admits only as many as it allows.
            if len(group.members) > self.settings.max_size:
                self._rebalance.prepare(group, now_ms, out)
        self._timers.schedule(_EXPIRY, now_ms + self.settings.offsets_retention_check_interval_ms)
        return out

    def unloaded(self, now_ms: int) -> GroupDecision:
        """Another broker coordinates these groups now: reject parked requests. The shard must not be used
        afterwards."""
        out = GroupDecision()
        for group in self._groups.values():
            # Requests of consumer and share groups are never parked.
            for member in group.members.values() if isinstance(group, ClassicGroup) else ():
                if member.join_token is not None:
                    reply = JoinReply(ErrorCode.NOT_COORDINATOR, member.member_id)
                    out.released.append((member.join_token, reply))
                if member.sync_token is not None:
                    out.released.append((member.sync_token, SyncReply(ErrorCode.NOT_COORDINATOR)))
        self.is_loaded = False
        self._groups.clear()
        self._quota.close()
        return out

    def append_failed(self, decision: GroupDecision, error_code: ErrorCode, now_ms: int) -> GroupDecision:
        """Undo the soft state of a decision whose records could not be appended. The node answers the caller's token
        with ``error_code``; the returned decision has replies to others, and possibly records."""
        out = GroupDecision()
        undo = decision.undo
        if isinstance(undo, UndoReplacedGroup):
            self._consumers.restore(undo)
            return out
        if isinstance(undo, UndoExpiry):
            self._consumers.expire_again(undo, now_ms)
        if decision.follow_up is not None:
            # A decision about a consumer group changes nothing before its records are applied.
            return out
        refused_sync = isinstance(undo, UndoAssignment)
        for token, reply in decision.released:
            refuse = refused_sync and isinstance(reply, SyncReply)
            out.released.append((token, SyncReply(error_code) if refuse else reply))
        group = None if undo is None else self._groups.get(undo.group_id)
        if not isinstance(group, ClassicGroup):
            return out
        if isinstance(undo, UndoNewGroup):
            # Only the caller can be in it.
            self._rebalance.forget(group)
            del self._groups[undo.group_id]
        elif isinstance(undo, UndoAssignment):
            # Members would otherwise wait for an assignment that is lost.
            if group.state is GroupState.COMPLETING_REBALANCE and group.generation == undo.generation:
                self._rebalance.prepare(group, now_ms, out)
        elif isinstance(undo, UndoStaticReplacement):
            self._undo_replacement(group, undo, now_ms)
        return out

    def _undo_replacement(self, group: ClassicGroup, undo: UndoStaticReplacement, now_ms: int) -> None:
        self._rebalance.end_session(group, undo.new_member_id)
        member = group.replace_static(undo.group_instance_id, undo.old_member_id)
        group.offer(member, undo.old_protocols)
        member.session_timeout_ms = undo.old_session_timeout_ms
        member.rebalance_timeout_ms = undo.old_rebalance_timeout_ms
        self._rebalance.restart_session(group, member, now_ms)

    def check(self) -> None:
        """For tests: it traverses everything. Raises InvariantViolation."""
        for group_id, group in self._groups.items():
            invariant(group.group_id == group_id, "a group under another's id", group=group_id)
            if isinstance(group, ClassicGroup):
                group.check()
        self._offsets.check()
        for group_id in self._offsets.all_group_ids():
            invariant(group_id in self._groups, "O4: an offset without a group", group=group_id)

    def pending_offsets(self) -> dict[ProducerId, dict[tuple[GroupId, TopicName, int], CommittedOffset]]:
        """Pending offsets of open transactions by producer, without sequences (tests, debugging)."""
        return {
            producer_id: {place: offset._replace(sequence=0) for place, offset in offsets.items()}
            for producer_id, offsets in self._offsets.pending().items()
        }

    def persisted(
        self, settled: Collection[GroupId]
    ) -> dict[GroupId, tuple[Record | None, dict[tuple[TopicName, int], object]]]:
        """The state that a replay of the log must reproduce (tests): the records of groups in ``settled`` (not
        rebalancing), and all offsets without sequences."""
        return {
            group_id: (
                persistence.group_record(group) if group_id in settled and isinstance(group, ClassicGroup) else None,
                {
                    (topic, partition): committed._replace(sequence=0)
                    for topic, partitions in self._offsets.committed.of_group(group_id).items()
                    for partition, committed in partitions.items()
                },
            )
            for group_id, group in self._groups.items()
        }
