"""One member of a group in the classic protocol (KIP-62, 345, 394): join, sync, heartbeat, and back.

Rebalances are eager: the assignment is void once the member leaves ``STABLE``. ``UNJOINED`` with a generation is a
member called to a rebalance: until its owner is ready to join, ``keep_alive`` sends heartbeats. A static member (with
an instance id) does not leave when it closes. One request is outstanding at a time; if its response is lost it is sent
again, which the coordinator tolerates in every state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.invariant import invariant
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.assignor import (
    RANGE,
    Subscriber,
    decode_member_assignment,
    member_assignment,
    member_subscription,
    range_assign,
    subscriber,
)
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.setting_checks import check_range
from oncelog.records.internal.consumer_protocol import PROTOCOL_TYPE
from oncelog.wire.message import Request
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse


class State(Enum):
    # A rebalance leads from SYNCING and STABLE to UNJOINED; an unknown member or generation does so from every state,
    # and the member id is forgotten.

    # Sends JoinGroup. The leader goes on to ASSIGNING, a follower to SYNCING.
    UNJOINED = "unjoined"
    # Sends nothing; ``assign(counts)`` leads to SYNCING.
    ASSIGNING = "assigning"
    # Sends SyncGroup, whose response has the assignment: STABLE.
    SYNCING = "syncing"
    # Sends heartbeats.
    STABLE = "stable"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Apache Kafka's consumer defaults. In the consumer protocol the group's configuration has the session time-out and
    the heartbeat interval instead; ``remote_assignor`` and ``rack_id`` belong to that protocol alone."""

    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 3_000
    instance_id: str | None = None
    remote_assignor: str | None = None
    """The coordinator's assignor to ask for, ``uniform`` or ``range``; None leaves it to the coordinator."""
    rack_id: str | None = None
    """The rack of this member, for assignors that place partitions near their replicas."""

    def __post_init__(self) -> None:
        for name in ("session_timeout_ms", "rebalance_timeout_ms", "heartbeat_interval_ms"):
            check_range(name, getattr(self, name), 1)


_REBALANCE: Final = (ErrorCode.REBALANCE_IN_PROGRESS,)
_EVICTED: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class GroupMember:
    def __init__(self, group: str, topics: Sequence[str], settings: GroupSettings) -> None:
        if isinstance(topics, str):
            raise TypeError(f"topics: give a list of names, [{topics!r}]")
        self.group = group
        self.topics = tuple(topics)
        self.settings = settings
        self.state = State.UNJOINED
        self.member_id = ""
        self.generation = -1
        self.assignment: tuple[TopicPartition, ...] = ()
        self._heartbeat_due_ms = 0
        self._subscribers: list[Subscriber] = []
        self._shares: dict[str, list[TopicPartition]] = {}

    @property
    def is_leader(self) -> bool:
        """True if this member assigns the partitions of the group."""
        return bool(self._subscribers)

    @property
    def heartbeat_due_ms(self) -> int:
        """When the next heartbeat is due, in ``STABLE`` and for ``keep_alive``."""
        return self._heartbeat_due_ms

    def next_request(self, now_ms: int) -> Request[Any] | None:
        """The request to send to the coordinator now, or None."""
        if self.state is State.UNJOINED:
            return self._join()
        if self.state is State.SYNCING:
            return self._sync()
        if self.state is State.STABLE and now_ms >= self._heartbeat_due_ms:
            return self._heartbeat()
        return None

    def keep_alive(self, now_ms: int) -> HeartbeatRequest | None:
        """A heartbeat if due, in ``UNJOINED``: used instead of ``next_request`` while the caller may not join yet."""
        called = self.state is State.UNJOINED and self.generation >= 0 and bool(self.member_id)
        return self._heartbeat() if called and now_ms >= self._heartbeat_due_ms else None

    def answered(self, response: Any, now_ms: int) -> None:
        """Apply a response to ``next_request``. Raises BrokerRefused; after a retriable error send the request
        again."""
        if isinstance(response, HeartbeatResponse):
            self._heartbeat_due_ms = now_ms + self.settings.heartbeat_interval_ms
        if isinstance(response, JoinGroupResponse) and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            # KIP-394: the member joins again with the id it was given.
            self.member_id = response.member_id
        elif response.error_code:
            self.refused(response.error_code)
        elif isinstance(response, JoinGroupResponse):
            self._joined(response)
        elif isinstance(response, SyncGroupResponse):
            self.assignment = decode_member_assignment(response.assignment)
            self.state = State.STABLE
            self._heartbeat_due_ms = now_ms + self.settings.heartbeat_interval_ms

    def assign(self, partition_counts: Mapping[str, int]) -> None:
        """Assign partitions to all members, in ``ASSIGNING``, given the counts for ``topics_to_assign``."""
        invariant(self.state is State.ASSIGNING, "assigning without having been asked to", state=self.state)
        self._shares = range_assign(self._subscribers, partition_counts)
        self.state = State.SYNCING

    def topics_to_assign(self) -> list[str]:
        """All topics that members of this generation subscribe to."""
        return sorted({topic for subscriber in self._subscribers for topic in subscriber.topics})

    def rejoin(self) -> None:
        """Start a rebalance after a change that the coordinator does not see (new partitions)."""
        if self.state is not State.LEFT:
            self._unjoin()

    def refused(self, code: int) -> None:
        """Apply an error code from a response to any request of this member, commits included. Raises BrokerRefused
        unless the member recovers by rejoining."""
        if code in _REBALANCE:
            self._unjoin()
            return
        if code in _EVICTED:
            # An expired generation keeps the member id.
            self.member_id = "" if code == ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
            self.generation = -1
            self._unjoin()
            return
        detail = None if remedy(code) is not Remedy.FAIL else _explanation(code)
        raise BrokerRefused(code, f"group {self.group!r}", detail)

    def leave(self) -> LeaveGroupRequest | None:
        """The LeaveGroup request; None for a static member or one that never joined."""
        joined, self.state = bool(self.member_id) and self.state is not State.LEFT, State.LEFT
        self.assignment = ()
        if not joined or self.settings.instance_id is not None:
            return None
        identity = MemberIdentity(member_id=self.member_id, reason="the consumer is being closed")
        return LeaveGroupRequest(group_id=self.group, member_id=self.member_id, members=[identity])

    def _unjoin(self) -> None:
        self.state = State.UNJOINED
        self.assignment = ()
        self._subscribers = []
        self._shares = {}

    def _heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
        )

    def _join(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=member_subscription(self.topics))],
        )

    def _joined(self, response: JoinGroupResponse) -> None:
        self.member_id = response.member_id
        self.generation = response.generation_id
        # KIP-814: the leader may be told to keep the present assignment.
        leads = response.leader == response.member_id and not response.skip_assignment
        self._subscribers = [
            subscriber(member.member_id, member.group_instance_id, member.metadata)
            for member in response.members
            if leads
        ]
        self.state = State.ASSIGNING if self._subscribers else State.SYNCING

    def _sync(self) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=RANGE,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=member_assignment(share))
                for member, share in self._shares.items()
            ],
        )


def _explanation(code: int) -> str | None:
    if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return "its members use another assignor than range, or it is a group of another type"
    if code == ErrorCode.FENCED_INSTANCE_ID:
        return "another member with the same instance id has taken over"
    return None
