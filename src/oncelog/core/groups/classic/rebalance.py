"""The two phases of a rebalance, and the deadlines of a group shard; ``states`` explains the phases.

All functions change the soft state of one group at once and add records and replies to a decision. Group metadata is
written at three points only: with the leader's assignment (``membership``), with a static member's new id, and when the
join phase ends without members.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId
from oncelog.base.timers import Timers as Deadlines
from oncelog.core.groups.classic.group import ClassicGroup, ClassicMember
from oncelog.core.groups.classic.persistence import group_record
from oncelog.core.groups.classic.states import GroupEvent, GroupState, can_rebalance
from oncelog.core.groups.model import GroupDecision, JoinReply, SyncReply
from oncelog.core.groups.settings import GroupSettings


class TimerKind(IntEnum):
    SESSION = 0
    JOIN = 1
    SYNC = 2
    EXPIRY = 3
    MEMBER_SESSION = 4
    MEMBER_REBALANCE = 5
    MEMBER_JOIN = 6
    MEMBER_SYNC = 7
    """The last four are of a consumer group's members."""
    GONE_TOPICS = 8
    """Topics that a share group knows were deleted."""
    GONE_OFFSETS = 9
    """Offsets of deleted partitions are left."""


class TimerKey(NamedTuple):
    """The key of a deadline: JOIN, SYNC and GONE_TOPICS name only a group, EXPIRY and GONE_OFFSETS nothing, all others
    also a member.
    """

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


Timers = Deadlines[TimerKey]


class Rebalance:
    def __init__(self, settings: GroupSettings, timers: Timers) -> None:
        self._settings = settings
        self._timers = timers
        self._initial_delays: dict[GroupId, tuple[int, int]] = {}
        """Groups in their initial rebalance delay: the current delay and the rest of the maximum."""

    def restart_session(
        self, group: ClassicGroup, member: ClassicMember, now_ms: int, timeout_ms: int | None = None
    ) -> None:
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self._timers.schedule(TimerKey(TimerKind.SESSION, group.group_id, member.member_id), now_ms + timeout_ms)

    def start_pending_session(self, group: ClassicGroup, member_id: MemberId, deadline_ms: int) -> None:
        self._timers.schedule(TimerKey(TimerKind.SESSION, group.group_id, member_id), deadline_ms)

    def end_session(self, group: ClassicGroup, member_id: MemberId) -> None:
        self._timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member_id))

    def session_expired(self, group: ClassicGroup, member_id: MemberId, now_ms: int, out: GroupDecision) -> None:
        """Remove a member unless a parked request proves that it is alive."""
        if member_id in group.pending_joins:
            group.remove(member_id)
            self.complete_if_all_joined(group, now_ms, out)
            return
        member = group.members.get(member_id)
        # A parked request proves that the client is alive: its connection holds it.
        if member is None or member.waits:
            return
        self.refuse_parked_join(group, member, out)
        group.remove(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_all_joined(group, now_ms, out)
        else:
            self.prepare(group, now_ms, out)

    def refuse_parked_join(self, group: ClassicGroup, member: ClassicMember, out: GroupDecision) -> None:
        """Fail a member's parked JoinGroup before the member is removed, so that it rejoins."""
        if member.join_token is not None:
            out.released.append((member.join_token, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID)))
            group.park_join(member, None)

    def prepare_or_complete(self, group: ClassicGroup, now_ms: int, out: GroupDecision) -> None:
        """Start a rebalance after a change, or complete the running one if it waited for that."""
        if can_rebalance(group.state):
            self.prepare(group, now_ms, out)
        else:
            self.complete_unless_initial(group, now_ms, out)

    def prepare(self, group: ClassicGroup, now_ms: int, out: GroupDecision) -> None:
        """The first rebalance of an empty group is delayed for more members."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.drop_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, out)
        # The sync phase, if one was running, is void: all members have to rejoin.
        group.pending_syncs.clear()
        self._timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        initial = group.state is GroupState.EMPTY
        group.move(GroupEvent.REBALANCE, now_ms)
        if initial:
            # Members of a starting application arrive one by one: one rebalance for all is cheaper (KIP-134).
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._start_initial_delay(group, now_ms, delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
        elif group.all_joined():
            self._complete(group, now_ms, out)
        else:
            self._start_join_timer(group, now_ms)

    def complete_unless_initial(self, group: ClassicGroup, now_ms: int, out: GroupDecision) -> None:
        """Only its delay completes the initial join phase."""
        if group.previous_state is not GroupState.EMPTY:
            self.complete_if_all_joined(group, now_ms, out)

    def complete_if_all_joined(self, group: ClassicGroup, now_ms: int, out: GroupDecision) -> None:
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined():
            self._complete(group, now_ms, out)

    def join_phase_expired(self, group: ClassicGroup, now_ms: int, out: GroupDecision) -> None:
        """Repeat the initial delay at its deadline if members joined meanwhile, else complete the join phase."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        delay_ms, remaining_ms = self._initial_delays.get(group.group_id, (0, 0))
        if group.new_member_added and remaining_ms:
            # More members may follow: extend the delay, up to the longest rebalance time-out.
            group.new_member_added = False
            next_delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            self._start_initial_delay(group, now_ms, next_delay_ms, max(remaining_ms - delay_ms, 0))
        else:
            self._complete(group, now_ms, out)

    def _start_initial_delay(self, group: ClassicGroup, now_ms: int, delay_ms: int, remaining_ms: int) -> None:
        self._initial_delays[group.group_id] = (delay_ms, remaining_ms)
        self._timers.schedule(TimerKey(TimerKind.JOIN, group.group_id), now_ms + delay_ms)

    def _start_join_timer(self, group: ClassicGroup, now_ms: int) -> None:
        self._timers.schedule(TimerKey(TimerKind.JOIN, group.group_id), now_ms + group.rebalance_timeout_ms())

    def _complete(self, group: ClassicGroup, now_ms: int, out: GroupDecision) -> None:
        """End the join phase: remove dynamic members that did not join (static ones stay) and answer the others."""
        self._timers.cancel(TimerKey(TimerKind.JOIN, group.group_id))
        self._initial_delays.pop(group.group_id, None)
        group.new_member_added = False
        # Static members may come back within their session (KIP-345), so only dynamic ones are removed.
        for member in [member for member in group.not_rejoined() if member.group_instance_id is None]:
            group.remove(member.member_id)
            self.end_session(group, member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none has joined: wait until one does or their sessions expire.
            self._start_join_timer(group, now_ms)
            return
        group.next_generation(now_ms)
        if group.state is GroupState.EMPTY:
            out.records.append(group_record(group))
        else:
            self._answer_joins(group, now_ms, out)

    def _answer_joins(self, group: ClassicGroup, now_ms: int, out: GroupDecision) -> None:
        for member in group.members.values():
            if member.join_token is not None:
                out.released.append((member.join_token, current_generation_reply(group, member.member_id)))
                group.park_join(member, None)
            # The session was suspended while the JoinGroup was parked.
            self.restart_session(group, member, now_ms)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        self._timers.schedule(TimerKey(TimerKind.SYNC, group.group_id), now_ms + group.rebalance_timeout_ms())

    def sync_arrived(self, group: ClassicGroup, member_id: MemberId) -> None:
        """The last SyncGroup cancels the sync deadline."""
        group.pending_syncs.pop(member_id, None)
        if not group.pending_syncs:
            self._timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))

    def sync_phase_expired(self, group: ClassicGroup, now_ms: int, out: GroupDecision) -> None:
        """Remove members without a SyncGroup at the deadline and rebalance the others."""
        if not group.pending_syncs:
            return
        for member_id in list(group.pending_syncs):
            group.remove(member_id)
            self.end_session(group, member_id)
        self.prepare(group, now_ms, out)

    def drop_assignments(self, group: ClassicGroup, error: ErrorCode, now_ms: int, out: GroupDecision) -> None:
        """Answers parked SyncGroups with ``error``."""
        for member in group.members.values():
            member.assignment = b""
        self.answer_syncs(group, lambda _: SyncReply(error), now_ms, out)

    def answer_syncs(
        self, group: ClassicGroup, reply_to: Callable[[ClassicMember], SyncReply], now_ms: int, out: GroupDecision
    ) -> None:
        for member in group.members.values():
            if member.sync_token is not None:
                out.released.append((member.sync_token, reply_to(member)))
                member.sync_token = None
                # The session could not expire while the SyncGroup was parked.
                self.restart_session(group, member, now_ms)

    def forget(self, group: ClassicGroup) -> None:
        self._initial_delays.pop(group.group_id, None)
        for kind in (TimerKind.JOIN, TimerKind.SYNC):
            self._timers.cancel(TimerKey(kind, group.group_id))
        for member_id in [*group.members, *group.pending_joins]:
            self.end_session(group, member_id)


def current_generation_reply(group: ClassicGroup, member_id: MemberId, *, skip_assignment: bool = False) -> JoinReply:
    """The leader's reply includes the members."""
    return JoinReply(
        ErrorCode.NONE,
        member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader or MemberId(""),
        skip_assignment,
        group.joined_members() if member_id == group.leader else (),
    )
