"""W17 and W18: each partition of a group belongs to one member at a time, in either protocol."""

# A member has a partition from its assignment until the member lists what it owns without it, leaves, joins again, or
# is removed.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.consumer_protocol import Assignment, Subscription, decode_assignment, decode_subscription
from oncelog.sim.checkers.wire.exchange import Exchange, PartitionKey, Report, Topics
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from oncelog.wire.messages.heartbeat import HeartbeatResponse
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog.wire.messages.leave_group import LeaveGroupResponse
from oncelog.wire.messages.sync_group import SyncGroupResponse

SHARED: Final = "W17 partition of two owners"
UNOWNED: Final = "W18 partition without an owner"
# A partition without an owner is judged only while nothing else happens: for PATIENCE_MS no member has come, left or
# changed its subscription, and all have been accepted regularly.
# The longest time between two accepted requests of a member that is well.
REGULAR_MS: Final = 3_500
# More than the session time-out of the workloads' members.
REMOVED_MS: Final = 12_000
# More than the rebalance time-out of the workloads' members, the interval of assignments, and some heartbeats.
PATIENCE_MS: Final = 12_000
_REMOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_EMBEDDED: Final = "consumer"


class _Claim(NamedTuple):
    # A response with this index gave a member's partition to another member.
    sent_at: int
    broker_id: int
    other: str


@dataclass(slots=True)
class _Member:
    # The instance id of a static member, else the member id.
    owner: str
    accepted_ms: int
    steady_since_ms: int
    topics: frozenset[str] = frozenset()
    assigned: frozenset[PartitionKey] = frozenset()
    owned: set[PartitionKey] = field(default_factory=set)
    # The index of the last request that listed the owned partitions.
    listed_at: int = -1
    claims: dict[PartitionKey, _Claim] = field(default_factory=dict)
    # For so long that it may have been removed; or its coordinator was away, and it is a member still.
    is_silent: bool = False


@dataclass(slots=True)
class _Group:
    members: dict[str, _Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    # The owner of a partition in an epoch or generation.
    owners: dict[tuple[int, PartitionKey], str] = field(default_factory=dict)
    unowned_since_ms: dict[PartitionKey, int] = field(default_factory=dict)
    changed_ms: int = 0


class Ownership:
    def __init__(self, topics: Topics, report: Report) -> None:
        self._topics = topics
        self._report = report
        self._groups: dict[str, _Group] = defaultdict(_Group)
        self._ignored: set[str] = set()

    def restarted(self, at_ms: int, *, keeps_all: bool = True) -> None:
        # The timers of a loaded group run from the start.
        if not keeps_all:
            self._groups.clear()
        for group in self._groups.values():
            group.changed_ms = at_ms

    def began_anew(self, group_id: str) -> None:
        # The group was empty, and is of the other protocol now: its epochs or generations start over.
        self._groups.pop(group_id, None)

    def deletion_requested(self, group_id: str) -> None:
        self._ignored.add(group_id)
        self._groups.pop(group_id, None)

    def heartbeat_requested(self, exchange: Exchange) -> None:
        request = exchange.request
        member = self._member(request.group_id, request.member_id)
        if member is None:
            return
        if request.member_epoch == 0:
            member.claims.clear()
        if request.member_epoch <= 0:
            self._release(request.group_id, member, (), exchange)
        elif request.topic_partitions is not None:
            self._release(request.group_id, member, self._by_id(request.topic_partitions), exchange)

    def heartbeat_answered(self, exchange: Exchange, response: ConsumerGroupHeartbeatResponse, index: int) -> None:
        request = exchange.request
        member_id = response.member_id or request.member_id
        if response.error_code or request.member_epoch < 0:
            self._accept_end(exchange, member_id, response.error_code)
            return
        if request.member_epoch == 0:
            self._join(exchange, member_id, request.instance_id)
        member = self._member(request.group_id, member_id)
        if member is None:
            return
        if request.subscribed_topic_names is not None:
            self._subscribe(exchange, member, request.subscribed_topic_names)
        assigned = self._by_id(response.assignment.topic_partitions) if response.assignment else member.assigned
        self._assign(exchange, member, assigned, index)
        self._check_epoch(exchange, member, response.member_epoch)
        self._accept(exchange, member)

    def join_requested(self, exchange: Exchange) -> None:
        member = self._member(exchange.request.group_id, exchange.request.member_id)
        subscription = subscription_in(exchange.request)
        if member is not None and subscription is not None:
            # A consumer group takes any member id: this may be one that was removed.
            member.claims.clear()
            owned = (self._topics.key(name, NO_TOPIC_ID, index) for name, index in subscription.owned_partitions)
            self._release(exchange.request.group_id, member, {key for key in owned if key is not None}, exchange)

    def joined(self, exchange: Exchange, response: JoinGroupResponse, index: int) -> None:
        request = exchange.request
        subscription = subscription_in(request)
        if response.error_code or subscription is None:
            self._accept_end(exchange, request.member_id, response.error_code)
            return
        self._join(exchange, response.member_id, request.group_instance_id)
        member = self._member(request.group_id, response.member_id)
        if member is not None:
            self._subscribe(exchange, member, subscription.topics)
            self._accept(exchange, member)

    def synced(self, exchange: Exchange, response: SyncGroupResponse, index: int) -> None:
        request = exchange.request
        member = self._member(request.group_id, request.member_id)
        assignment = assignment_in(response)
        if response.error_code or member is None or assignment is None:
            self._accept_end(exchange, request.member_id, response.error_code)
            return
        keys = (self._topics.key(name, NO_TOPIC_ID, partition) for name, partition in assignment.partitions)
        self._assign(exchange, member, {key for key in keys if key is not None}, index)
        self._check_epoch(exchange, member, request.generation_id)
        self._accept(exchange, member)

    def classic_heartbeat_answered(self, exchange: Exchange, response: HeartbeatResponse, index: int) -> None:
        request = exchange.request
        member = self._member(request.group_id, request.member_id)
        if response.error_code:
            self._accept_end(exchange, request.member_id, response.error_code)
        elif member is not None:
            self._accept(exchange, member)

    def leave_requested(self, exchange: Exchange) -> None:
        group_id = exchange.request.group_id
        for member_id in _leaving(self._groups[group_id], exchange.request):
            member = self._member(group_id, member_id)
            if member is not None:
                self._release(group_id, member, (), exchange)

    def left(self, exchange: Exchange, response: LeaveGroupResponse, index: int) -> None:
        leaving = _leaving(self._groups[exchange.request.group_id], exchange.request)
        codes = [member.error_code for member in response.members] or [0] * len(leaving)
        for member_id, code in zip(leaving, codes, strict=False):
            self._accept_end(exchange, member_id, response.error_code or code, is_leave=True)

    def _member(self, group_id: str, member_id: str) -> _Member | None:
        return None if group_id in self._ignored else self._groups[group_id].members.get(member_id)

    def _by_id(self, topics: Iterable[Any]) -> set[PartitionKey]:
        keys = (self._topics.key(None, topic.topic_id, index) for topic in topics for index in topic.partitions)
        return {key for key in keys if key is not None}

    def _join(self, exchange: Exchange, member_id: str, instance_id: str | None) -> None:
        group_id, at_ms = exchange.request.group_id, exchange.at_ms
        group = self._groups[group_id]
        if instance_id is not None:
            # A static member takes over from the one before.
            before = group.instances.get(instance_id)
            if before is not None and before != member_id:
                self._remove(group, before, at_ms)
            group.instances[instance_id] = member_id
        if group_id not in self._ignored and member_id not in group.members:
            group.members[member_id] = _Member(instance_id or member_id, at_ms, at_ms)
            group.changed_ms = at_ms

    def _subscribe(self, exchange: Exchange, member: _Member, topics: Collection[str]) -> None:
        if member.topics != frozenset(topics):
            member.topics = frozenset(topics)
            self._groups[exchange.request.group_id].changed_ms = exchange.at_ms

    def _release(self, group_id: str, member: _Member, kept: Collection[PartitionKey], exchange: Exchange) -> None:
        released = member.owned.difference(kept)
        member.owned -= released
        member.listed_at = exchange.received_index
        self._note_unowned(self._groups[group_id], released, exchange.at_ms)

    def _note_unowned(self, group: _Group, released: Iterable[PartitionKey], at_ms: int) -> None:
        for key in released:
            if not any(key in other.owned for other in group.members.values() if not other.is_silent):
                group.unowned_since_ms[key] = at_ms

    def _assign(self, exchange: Exchange, member: _Member, keys: Collection[PartitionKey], index: int) -> None:
        new = frozenset(keys) - member.assigned
        member.assigned = frozenset(keys)
        if member.listed_at > exchange.received_index:
            return  # the later list is answered with the assignment again
        group = self._groups[exchange.request.group_id]
        for other in group.members.values():
            for key in sorted(new & other.owned) if other is not member else ():
                other.claims.setdefault(key, _Claim(index, exchange.broker_id, member.owner))
        # The member may take all of it, also what a list did not have yet.
        member.owned |= member.assigned
        for key in keys:
            group.unowned_since_ms.pop(key, None)

    def _check_epoch(self, exchange: Exchange, member: _Member, epoch: int) -> None:
        group_id = exchange.request.group_id
        owners = self._groups[group_id].owners
        for key in sorted(member.assigned, key=repr):
            owner = owners.setdefault((epoch, key), member.owner)
            if owner != member.owner:
                location = f"{group_id}: {self._topics.describe(key)}"
                self._report(SHARED, f"{location} is assigned to {owner} and {member.owner} in epoch {epoch}")

    def _accept_end(self, exchange: Exchange, member_id: str, error_code: int, *, is_leave: bool = False) -> None:
        # A response that is no success, or that of a member that left.
        group_id = exchange.request.group_id
        member = self._member(group_id, member_id)
        if member is None:
            return
        if not error_code and (is_leave or getattr(exchange.request, "member_epoch", 0) < 0):
            self._check_claims(exchange, member)
            self._remove(self._groups[group_id], member_id, exchange.at_ms)
        elif error_code in _REMOVED:
            self._remove(self._groups[group_id], member_id, exchange.at_ms)

    def _remove(self, group: _Group, member_id: str, at_ms: int) -> None:
        member = group.members.pop(member_id, None)
        if member is not None:
            self._note_unowned(group, member.owned, at_ms)
            group.changed_ms = at_ms

    def _accept(self, exchange: Exchange, member: _Member) -> None:
        if exchange.at_ms - member.accepted_ms > REGULAR_MS:
            member.steady_since_ms = exchange.at_ms
        member.accepted_ms = exchange.at_ms
        if member.is_silent:
            self._hear_again(self._groups[exchange.request.group_id], member)
        self._check_claims(exchange, member)
        self._check_owned(exchange.request.group_id, exchange.at_ms)

    def _hear_again(self, group: _Group, member: _Member) -> None:
        member.is_silent = False
        group.changed_ms = member.accepted_ms
        for key in member.owned:
            group.unowned_since_ms.pop(key, None)

    def _check_claims(self, exchange: Exchange, member: _Member) -> None:
        # Removals are invisible, so a claim counts once the former owner is accepted as a member still. A broker that
        # does not know of its successor may accept it: claim and acceptance have to be of the same broker.
        group_id = exchange.request.group_id
        for key, (sent_at, broker_id, other) in member.claims.items():
            if sent_at < exchange.received_index and broker_id == exchange.broker_id:
                detail = f"given to {other} although {member.owner} had it and stayed a member"
                self._report(SHARED, f"{group_id}: {self._topics.describe(key)} {detail}")

    def _check_owned(self, group_id: str, at_ms: int) -> None:
        group = self._groups[group_id]
        if not group.unowned_since_ms:
            return
        for member in group.members.values():
            if at_ms - member.accepted_ms > REMOVED_MS and not member.is_silent:
                member.is_silent = True
                self._note_unowned(group, member.owned, at_ms)
                group.changed_ms = at_ms
        members = [member for member in group.members.values() if not member.is_silent]
        is_quiet = at_ms - group.changed_ms > PATIENCE_MS and all(
            at_ms - member.accepted_ms <= REGULAR_MS and at_ms - member.steady_since_ms > PATIENCE_MS
            for member in members
        )
        if not is_quiet:
            return
        subscribed = frozenset().union(*(member.topics for member in members))
        for key, since_ms in group.unowned_since_ms.items():
            if key[0] in subscribed and at_ms - since_ms > PATIENCE_MS:
                names = ", ".join(sorted(member.owner for member in members))
                self._report(UNOWNED, f"{group_id}: {self._topics.describe(key)} since {since_ms}, members: {names}")


def subscription_in(request: JoinGroupRequest) -> Subscription | None:
    # None for a member without the embedded consumer protocol.
    if request.protocol_type != _EMBEDDED or not request.protocols:
        return None
    try:
        return decode_subscription(request.protocols[0].metadata)
    except CorruptBatch:
        return None


def assignment_in(response: SyncGroupResponse) -> Assignment | None:
    try:
        return decode_assignment(response.assignment) if response.assignment else Assignment(())
    except CorruptBatch:
        return None


def _leaving(group: _Group, request: Any) -> list[str]:
    # The member ids that LeaveGroup names, in its order.
    if not request.members:
        return [request.member_id]
    return [group.instances.get(member.group_instance_id or "", member.member_id) for member in request.members]
