"""A classic group: members, parked requests and the chosen protocol. It has no timers and writes no records.

The invariants G1 to G10 are in docs/internals/groups.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, TopicName
from oncelog.base.invariant import invariant
from oncelog.core.groups.classic.states import GroupEvent, GroupState, next_state
from oncelog.core.groups.model import CONSUMER_PROTOCOL, JoinedMember, MemberDescription, Protocol
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.primitives import Reader

_MIN_TOPIC_BYTES = 2


def subscribed_topics(metadata: bytes) -> tuple[TopicName, ...] | None:
    """The topics in a member's metadata; None if it cannot be decoded."""
    reader = Reader(metadata)
    try:
        if reader.int16() < 0:
            return None
        return tuple(TopicName(reader.string()) for _ in range(reader.count(_MIN_TOPIC_BYTES)))
    except CorruptBatch:
        return None


_MEMBER_BYTES = 1200
_PROTOCOL_BYTES = 200
"""Estimated memory of a protocol besides its name and metadata."""
ASSIGNED_STATES = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(
        self,
        member_id: MemberId,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[Protocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_token: int | None = None
        self.sync_token: int | None = None
        self.is_new = False
        """True while the member's first JoinGroup is parked: its session can expire nevertheless."""

    @property
    def waits(self) -> bool:
        """True if a parked request proves that the member is alive."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def protocol_names(self) -> set[str]:
        return {protocol.name for protocol in self.protocols}

    def size_bytes(self) -> int:
        return size_of(self.protocols) + len(self.client_id) + len(self.member_id) + len(self.assignment)

    def metadata(self, protocol_name: str | None) -> bytes:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        invariant(False, "a member without the chosen protocol", member=self.member_id, protocol=protocol_name)
        return b""


def size_of(protocols: tuple[Protocol, ...]) -> int:
    protocol_bytes = sum([len(name) + len(metadata) for name, metadata in protocols])
    return _MEMBER_BYTES + _PROTOCOL_BYTES * len(protocols) + protocol_bytes


class ClassicGroup:
    """Members, static members and pending members keep their order of arrival."""

    __slots__ = (
        "awaiting_join",
        "generation",
        "group_id",
        "leader",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "supporters",
    )

    def __init__(self, group_id: GroupId, state_timestamp_ms: int = -1) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        """When the state was entered; −1 if unknown (old records)."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader: MemberId | None = None
        self.members: dict[MemberId, ClassicMember] = {}
        self.static_members: dict[str, MemberId] = {}
        # The count of each protocol, because a request may name tens of thousands.
        self.supporters: Counter[str] = Counter()
        self.pending_joins: dict[MemberId, str] = {}  # the clients' hosts by id
        self.pending_syncs: dict[MemberId, None] = {}
        self.awaiting_join = 0
        self.new_member_added = False
        """True if a member joined during the initial rebalance delay, which then repeats."""
        self.subscribed_topics: frozenset[TopicName] | None = None
        """Topics that the members of a "consumer" group subscribe to; None if their metadata cannot be decoded."""

    def move(self, event: GroupEvent, now_ms: int) -> None:
        following = next_state(self.state, event)
        self.previous_state, self.state, self.state_timestamp_ms = self.state, following, now_ms

    def add(self, member: ClassicMember, join_token: int | None) -> None:
        invariant(member.member_id not in self.members, "a member joined twice", member=member.member_id)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.supporters.update(member.protocol_names())
        self.pending_joins.pop(member.member_id, None)
        self.park_join(member, join_token)

    def remove(self, member_id: MemberId) -> None:
        """Remove a member or pending member. If it led, the first remaining one leads."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.park_join(member, None)
            self._not_supported_by(member)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            # G1: a group with members has a leader.
            self.leader = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)

    def replace_static(self, group_instance_id: str, new_member_id: MemberId) -> ClassicMember:
        """Give a static member a new id in the same position."""
        old_member_id = self.static_members[group_instance_id]
        old = self.members[old_member_id]
        invariant(
            old.join_token is None and old.sync_token is None, "a fenced member still waits", member=old_member_id
        )
        new = ClassicMember(
            new_member_id,
            group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members = {new.member_id if key == old_member_id else key: m for key, m in self.members.items()}
        self.members[new_member_id] = new
        self.static_members[group_instance_id] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id
        # The new id inherits an outstanding SyncGroup.
        if self.pending_syncs.pop(old_member_id, old_member_id) is None:
            self.pending_syncs[new_member_id] = None
        return new

    def size_bytes(self) -> int:
        members = sum([member.size_bytes() for member in self.members.values()])
        return members + sum([_MEMBER_BYTES + len(member_id) for member_id in self.pending_joins])

    def offer(self, member: ClassicMember, protocols: tuple[Protocol, ...]) -> None:
        self._not_supported_by(member)
        member.protocols = protocols
        self.supporters.update(member.protocol_names())

    def _not_supported_by(self, member: ClassicMember) -> None:
        for name in member.protocol_names():
            self.supporters[name] -= 1
            if not self.supporters[name]:
                del self.supporters[name]

    def park_join(self, member: ClassicMember, token: int | None) -> None:
        self.awaiting_join += (token is not None) - (member.join_token is not None)
        member.join_token = token

    def not_rejoined(self) -> Iterator[ClassicMember]:
        return (member for member in self.members.values() if member.join_token is None)

    def all_joined(self) -> bool:
        """True if every member has joined and there is no pending member."""
        return self.awaiting_join == len(self.members) and not self.pending_joins

    def refusal_for(self, member_id: MemberId, group_instance_id: str | None) -> ErrorCode:
        """NONE if the ids name a member, else the error."""
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else elect the first member that has. Returns False if none has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_token is not None:
            return True
        joined = next((m.member_id for m in self.members.values() if m.join_token is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """True if a member with these protocols can join: all members support one of them."""
        if self.state is GroupState.EMPTY:
            # An empty group accepts any protocol.
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(self.all_support(protocol.name) for protocol in protocols)

    def all_support(self, protocol_name: str) -> bool:
        return self.supporters[protocol_name] == len(self.members)

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those all support; the first voted for wins a tie."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self.all_support(name):
                    # Each member votes once, for its most preferred common protocol.
                    votes[name] = votes.get(name, 0) + 1
                    break
        invariant(votes, "a group without a common protocol", group=self.group_id)
        return max(votes, key=votes.__getitem__)

    def next_generation(self, now_ms: int) -> None:
        """Enter CompletingRebalance, or Empty without members."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.update_subscriptions()
        self.move(GroupEvent.JOINED if self.members else GroupEvent.EMPTIED, now_ms)
        self.pending_syncs.clear()

    def update_subscriptions(self) -> None:
        """Set ``subscribed_topics`` if the protocol type is known."""
        self.subscribed_topics = None
        if self.protocol_type != CONSUMER_PROTOCOL:
            return
        topics: set[TopicName] = set()
        if self.members:
            if self.protocol_name is None:
                return
            for member in self.members.values():
                subscribed = subscribed_topics(member.metadata(self.protocol_name))
                # One undecodable member makes the subscriptions unknown.
                if subscribed is None:
                    return
                topics.update(subscribed)
        self.subscribed_topics = frozenset(topics)

    def is_subscribed(self, topic: TopicName) -> bool:
        """True if a member may be consuming ``topic``; always for a "consumer" group with undecodable metadata."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.protocol_type == CONSUMER_PROTOCOL

    def joined_members(self) -> list[JoinedMember]:
        return [
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        ]

    def described_members(self) -> list[MemberDescription]:
        """Metadata only if Stable, as in Apache Kafka."""
        stable = self.state is GroupState.STABLE
        return [
            MemberDescription(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(self.protocol_name) if stable else b"",
                member.assignment,
            )
            for member in self.members.values()
        ]

    def check(self) -> None:
        """Raise InvariantViolation unless G1–G8 and G10 hold."""
        members, facts = self.members, {"group": self.group_id, "state": self.state.value}
        static = {m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id is not None}
        parked_joins = sum(member.join_token is not None for member in members.values())
        parked_syncs = any(member.sync_token is not None for member in members.values())
        assigned = self.state in ASSIGNED_STATES
        invariant((self.leader in members) if members else self.leader is None, "G1", leader=self.leader, **facts)
        invariant(static == self.static_members, "G2", **facts)
        invariant(self.pending_joins.keys().isdisjoint(members), "G3", **facts)
        invariant(self.awaiting_join == parked_joins, "G4", **facts)
        invariant(not parked_joins or self.state is GroupState.PREPARING_REBALANCE, "G4", **facts)
        invariant(not parked_syncs or self.state is GroupState.COMPLETING_REBALANCE, "G5", **facts)
        invariant(self.state is GroupState.PREPARING_REBALANCE or bool(members) == assigned, "G6", **facts)
        invariant(not assigned or self.all_support(self.protocol_name or ""), "G7", **facts)
        invariant(self.pending_syncs.keys() <= members.keys(), "G8", **facts)
        offered = Counter(name for member in members.values() for name in member.protocol_names())
        invariant(offered == self.supporters, "G10", **facts)
        invariant(not self.pending_syncs or assigned, "G8", **facts)
