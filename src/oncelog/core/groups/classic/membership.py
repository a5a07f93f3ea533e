"""Decisions on JoinGroup, SyncGroup, Heartbeat and LeaveGroup for the groups of one shard.

Checks are in Apache Kafka's order, so that a request with two faults gets the same error code. Handlers reject empty
group ids. A parked request has no reply in its GroupDecision.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId
from oncelog.core.groups.classic.group import ClassicGroup, ClassicMember
from oncelog.core.groups.classic.persistence import group_record
from oncelog.core.groups.classic.rebalance import Rebalance, current_generation_reply
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.model import (
    UNKNOWN_MEMBER,
    GroupDecision,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    SyncReply,
    SyncRequest,
    UndoAssignment,
    UndoNewGroup,
    UndoStaticReplacement,
)
from oncelog.core.groups.settings import GroupSettings


class MemberDecisions:
    """``groups`` is the shard's own mapping."""

    def __init__(self, groups: dict[GroupId, ClassicGroup], settings: GroupSettings, rebalance: Rebalance) -> None:
        self._groups = groups
        self._settings = settings
        self._rebalance = rebalance

    def allows_session_timeout(self, timeout_ms: int) -> bool:
        return self._settings.min_session_timeout_ms <= timeout_ms <= self._settings.max_session_timeout_ms

    def join(self, request: JoinRequest, token: int, now_ms: int) -> GroupDecision:
        """Replies JoinReply, at once or at the end of the join phase."""
        group = self._groups.get(request.group_id)
        is_new_group = group is None
        if group is None:
            # A member id without a group is from a group that has expired: the client has to start over.
            if request.member_id != UNKNOWN_MEMBER:
                return GroupDecision(reply=JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            group = ClassicGroup(request.group_id, now_ms)
            self._groups[request.group_id] = group
        out = GroupDecision()
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            self._rebalance.end_session(group, request.member_id)
            out.reply = JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif request.member_id == UNKNOWN_MEMBER:
            self._join_unknown(group, request, token, now_ms, out)
        else:
            self._join_known(group, request, token, now_ms, out)
        if is_new_group and not out.records:
            # The group exists from here on, also for a reader of the log.
            out.records.append(group_record(group, blank=True))
            out.undo = UndoNewGroup(group.group_id)
        return out

    def _has_room(self, group: ClassicGroup, member_id: MemberId) -> bool:
        """True if the group may add or keep the member; during a rebalance only joined members count."""
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            waits = member is not None and member.join_token is not None
            return waits or group.awaiting_join < self._settings.max_size
        return member is not None or len(group.members) < self._settings.max_size

    def _join_unknown(
        self, group: ClassicGroup, request: JoinRequest, token: int, now_ms: int, out: GroupDecision
    ) -> None:
        """Join without a member id: a new dynamic member, a new static one, or a restarted static one."""
        instance_id = request.group_instance_id
        if not group.supports(request.protocol_type, request.protocols):
            out.reply = JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif instance_id is not None and instance_id in group.static_members:
            self._replace_static(group, request, instance_id, token, now_ms, out)
        elif instance_id is None and request.requires_known_member_id:
            # KIP-394: a client that gives up before it knows its id must not leave a member behind.
            group.pending_joins[request.new_member_id] = request.client_host
            deadline_ms = now_ms + request.session_timeout_ms
            self._rebalance.start_pending_session(group, request.new_member_id, deadline_ms)
            out.reply = JoinReply(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
        else:
            self._add(group, request, request.new_member_id, token, now_ms, out)

    def _join_known(
        self, group: ClassicGroup, request: JoinRequest, token: int, now_ms: int, out: GroupDecision
    ) -> None:
        """Join with a member id: a pending member, or a member that rejoins."""
        member_id = request.member_id
        if not group.supports(request.protocol_type, request.protocols):
            out.reply = JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
            return
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                # Only dynamic members become pending; Apache Kafka throws an exception here.
                out.reply = JoinReply(ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                self._add(group, request, member_id, token, now_ms, out)
            return
        refusal = group.refusal_for(member_id, request.group_instance_id)
        if refusal is not ErrorCode.NONE:
            out.reply = JoinReply(refusal, member_id)
            return
        member = group.members[member_id]
        unchanged = member.protocols == request.protocols
        leads_stable = group.state is GroupState.STABLE and group.leader == member_id
        if group.state is GroupState.PREPARING_REBALANCE or leads_stable or not unchanged:
            # A stable group's leader that rejoins wants a rebalance, for example because it has seen new partitions.
            self._update(group, member, request, token, out)
            self._rebalance.prepare_or_complete(group, now_ms, out)
        else:
            # The member missed the reply, or does not know that nothing changed: repeat the current generation.
            out.reply = current_generation_reply(group, member_id)

    def _add(
        self,
        group: ClassicGroup,
        request: JoinRequest,
        member_id: MemberId,
        token: int,
        now_ms: int,
        out: GroupDecision,
    ) -> None:
        if not group.members:
            # The first member decides the protocol type.
            group.protocol_type = request.protocol_type
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        group.add(member, token)
        # A member without an id cannot send heartbeats; one that has gone must not stay forever.
        self._rebalance.restart_session(group, member, now_ms, self._settings.new_member_join_timeout_ms)
        self._rebalance.prepare_or_complete(group, now_ms, out)

    def _update(
        self, group: ClassicGroup, member: ClassicMember, request: JoinRequest, token: int | None, out: GroupDecision
    ) -> None:
        if member.join_token is not None and member.join_token != token:
            # The client has given up on the earlier request; a caller that still waits may retry.
            out.released.append((member.join_token, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
        group.offer(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        group.park_join(member, token)

    def _replace_static(
        self, group: ClassicGroup, request: JoinRequest, instance_id: str, token: int, now_ms: int, out: GroupDecision
    ) -> None:
        """Replace the member id of a restarted static member, which keeps its assignment, and fence the old one.

        A stable group does not rebalance (KIP-345) unless the chosen protocol would change. The new id is logged first.
        """
        old = group.members[group.static_members[instance_id]]
        undo = UndoStaticReplacement(
            group.group_id,
            instance_id,
            old.member_id,
            request.new_member_id,
            old.protocols,
            old.session_timeout_ms,
            old.rebalance_timeout_ms,
        )
        old_leader = group.leader or UNKNOWN_MEMBER
        self._fence(group, old, out)
        member = group.replace_static(instance_id, request.new_member_id)
        stays_stable = group.state is GroupState.STABLE
        self._update(group, member, request, None if stays_stable else token, out)
        self._rebalance.restart_session(group, member, now_ms)
        if stays_stable and group.select_protocol() == group.protocol_name:
            out.records.append(group_record(group))
            out.undo = undo
            out.reply = _continuing_reply(group, member.member_id, old_leader, request)
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._rebalance.complete_unless_initial(group, now_ms, out)
        else:
            # In CompletingRebalance the leader may be computing an assignment for the old id.
            group.park_join(member, token)
            self._rebalance.prepare(group, now_ms, out)

    def _fence(self, group: ClassicGroup, old: ClassicMember, out: GroupDecision) -> None:
        """Answer requests parked under a replaced member id with FENCED_INSTANCE_ID."""
        if old.join_token is not None:
            out.released.append((old.join_token, JoinReply(ErrorCode.FENCED_INSTANCE_ID, old.member_id)))
            group.park_join(old, None)
        if old.sync_token is not None:
            out.released.append((old.sync_token, SyncReply(ErrorCode.FENCED_INSTANCE_ID)))
            old.sync_token = None
        self._rebalance.end_session(group, old.member_id)

    def sync(self, request: SyncRequest, token: int, now_ms: int) -> GroupDecision:
        """Replies SyncReply, at once or when the leader's assignment is in the log."""
        group = self._groups.get(request.group_id)
        if group is None or group.state is GroupState.EMPTY:
            return GroupDecision(reply=SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
        refusal = _sync_refusal(group, request)
        if refusal is not ErrorCode.NONE:
            return GroupDecision(reply=SyncReply(refusal))
        self._rebalance.sync_arrived(group, request.member_id)
        member = group.members[request.member_id]
        if group.state is GroupState.STABLE:
            reply = SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
            # The assignment may not be durable yet.
            return GroupDecision(reply=reply, waits_for_pending=True)
        out = GroupDecision()
        if member.sync_token is not None and member.sync_token != token:
            out.released.append((member.sync_token, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync_token = token
        if request.member_id == group.leader:
            assignment = {member_id: bytes(part) for member_id, part in request.assignments}
            out.records.append(group_record(group, assignment))
            out.undo = UndoAssignment(group.group_id, group.generation)
            self._rebalance.answer_syncs(
                group,
                lambda m: SyncReply(
                    ErrorCode.NONE, group.protocol_type, group.protocol_name, assignment.get(m.member_id, b"")
                ),
                now_ms,
                out,
            )
            out.reply = next(reply for waiting, reply in out.released if waiting == token)
            out.released = [(waiting, reply) for waiting, reply in out.released if waiting != token]
        return out

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> GroupDecision:
        """Replies an ErrorCode."""
        group = self._groups.get(request.group_id)
        if group is None:
            return GroupDecision(reply=ErrorCode.UNKNOWN_MEMBER_ID)
        refusal = group.refusal_for(request.member_id, request.group_instance_id)
        if refusal is not ErrorCode.NONE:
            return GroupDecision(reply=refusal)
        if request.generation != group.generation:
            return GroupDecision(reply=ErrorCode.ILLEGAL_GENERATION)
        self._rebalance.restart_session(group, group.members[request.member_id], now_ms)
        # The error makes the member rejoin; its session is extended nevertheless.
        rebalances = group.state is GroupState.PREPARING_REBALANCE
        return GroupDecision(reply=ErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE)

    def leave(self, group_id: GroupId, leaving: Sequence[LeavingMember], now_ms: int) -> GroupDecision:
        group = self._groups.get(group_id)
        if group is None:
            unknown = [(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in leaving]
            return GroupDecision(reply=LeaveReply(ErrorCode.NONE, unknown))
        out = GroupDecision()
        outcomes = [(identity, self._leave_one(group, identity, out)) for identity in leaving]
        if any(outcome is ErrorCode.NONE for _, outcome in outcomes):
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalance.prepare(group, now_ms, out)
            elif group.state is GroupState.PREPARING_REBALANCE:
                self._rebalance.complete_unless_initial(group, now_ms, out)
        out.reply = LeaveReply(ErrorCode.NONE, outcomes)
        return out

    def _leave_one(self, group: ClassicGroup, identity: LeavingMember, out: GroupDecision) -> ErrorCode:
        member_id, instance_id = identity
        if member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member by its instance id.
            holder = None if instance_id is None else group.static_members.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = holder
        elif member_id not in group.pending_joins:
            refusal = group.refusal_for(member_id, instance_id)
            if refusal is not ErrorCode.NONE:
                return refusal
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.refuse_parked_join(group, member, out)
            if member.sync_token is not None:
                out.released.append((member.sync_token, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)))
                member.sync_token = None
        group.remove(member_id)
        self._rebalance.end_session(group, member_id)
        return ErrorCode.NONE


def _continuing_reply(
    group: ClassicGroup, member_id: MemberId, old_leader: MemberId, request: JoinRequest
) -> JoinReply:
    """The reply that lets a restarted static member of a stable group continue in this generation."""
    if request.supports_skipping_assignment:
        return current_generation_reply(group, member_id, skip_assignment=group.leader == member_id)
    # The old leader's id keeps an old client that leads from computing another assignment.
    return current_generation_reply(group, member_id)._replace(leader=old_leader, members=())


def _sync_refusal(group: ClassicGroup, request: SyncRequest) -> ErrorCode:
    refusal = group.refusal_for(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    for named, agreed in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)):
        if named is not None and agreed is not None and named != agreed:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
