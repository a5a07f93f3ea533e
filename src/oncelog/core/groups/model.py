"""Requests, replies and decisions of a group shard; values without behaviour.

They are not wire messages, which ``core`` does not import: the handlers translate them and know the versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import (
    NO_LEADER_EPOCH,
    NO_TOPIC_ID,
    GroupId,
    LeaderEpoch,
    MemberId,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
)

UNKNOWN_MEMBER: Final = MemberId("")
"""The member id in requests of members without one."""
NO_GENERATION: Final = -1
CLASSIC_PROTOCOL: Final = "classic"
SHARE_PROTOCOL: Final = "share"
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type whose metadata the coordinator can decode."""


class Protocol(NamedTuple):
    """An assignment strategy that a member offers, with its metadata."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    new_member_id: MemberId
    """The id for a member without one, from the injected entropy."""
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    requires_known_member_id: bool = True
    """From version 4: a new dynamic member first gets its id and has to rejoin (KIP-394)."""
    supports_skipping_assignment: bool = True
    """From version 9 (KIP-814)."""


class JoinedMember(NamedTuple):
    member_id: MemberId
    group_instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """The reply to JoinGroup; only the leader gets ``members``."""

    error_code: ErrorCode
    member_id: MemberId = UNKNOWN_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId = UNKNOWN_MEMBER
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncRequest(NamedTuple):
    """SyncGroup. ``protocol_type`` and ``protocol_name`` are checked if given."""

    group_id: GroupId
    member_id: MemberId
    generation: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[tuple[MemberId, bytes]] = ()


class SyncReply(NamedTuple):
    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    generation: int
    group_instance_id: str | None = None


class LeavingMember(NamedTuple):
    """An administrator names the instance id and an unknown member id."""

    member_id: MemberId
    group_instance_id: str | None = None


class LeaveReply(NamedTuple):
    """An error code for each member, in request order, or one for all."""

    error_code: ErrorCode
    members: Sequence[tuple[LeavingMember, ErrorCode]] = ()


class CommittedOffset(NamedTuple):
    """A committed offset; ``offset`` may be any number, including −2 and −1."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    """Set by old clients with their own retention; −1 otherwise."""
    topic_id: TopicId = NO_TOPIC_ID
    sequence: int = 0
    """The record's position among the records of its shard: the higher of two commits wins."""


class PartitionCommit(NamedTuple):
    topic: TopicName
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str | None = None
    topic_id: TopicId = NO_TOPIC_ID


class CommitRequest(NamedTuple):
    """OffsetCommit, for existing partitions."""

    group_id: GroupId
    member_id: MemberId
    generation: int
    group_instance_id: str | None
    partitions: Sequence[PartitionCommit]
    retention_ms: int = -1
    knows_epochs: bool = False
    """From version 9: ``generation`` may be a member epoch, and GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH are known."""


class Producer(NamedTuple):
    """The producer whose transaction a record belongs to."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transactional_id: str | None = None
    """For the search for hanging transactions."""


class TransactionalCommitRequest(NamedTuple):
    """TxnOffsetCommit, for existing partitions, of a verified transaction (KIP-447, KIP-890)."""

    group_id: GroupId
    member_id: MemberId
    generation: int
    group_instance_id: str | None
    partitions: Sequence[PartitionCommit]
    producer: Producer
    knows_epochs: bool = False
    """From version 6, as in OffsetCommit (KIP-1319); before, the client gets ILLEGAL_GENERATION instead."""


class CommitReply(NamedTuple):
    """One error for all, or one per partition in request order."""

    error_code: ErrorCode
    partitions: Sequence[ErrorCode] = ()


class FetchedOffset(NamedTuple):
    """A partition in the reply to OffsetFetch; offset −1 if nothing was committed."""

    topic: TopicName
    partition: int
    error_code: ErrorCode
    committed: CommittedOffset


class PendingOffsets(NamedTuple):
    """An OffsetFetch has to wait: it would miss pending offsets of these producers, and return stale ones if their
    transactions are decided."""

    partition: int
    """The ``__consumer_offsets`` partition that will get the markers of those transactions."""
    producer_ids: frozenset[ProducerId]


class MemberDescription(NamedTuple):
    member_id: MemberId
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class PendingMember(NamedTuple):
    """A member with an id that has not joined (KIP-394)."""

    member_id: MemberId
    until_ms: int
    client_host: str


class GroupDescription(NamedTuple):
    group_id: GroupId
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: Sequence[MemberDescription] = ()
    pending: Sequence[PendingMember] = ()
    awaited: Sequence[MemberId] = ()  # members that have not joined the present rebalance
    not_found: str | None = None
    """The reason, if no classic group has the id."""


class GroupListing(NamedTuple):
    group_id: GroupId
    protocol_type: str
    state: str
    group_type: str = CLASSIC_PROTOCOL


class UndoNewGroup(NamedTuple):
    group_id: GroupId


class UndoAssignment(NamedTuple):
    group_id: GroupId
    generation: int


class UndoStaticReplacement(NamedTuple):
    """The decision gave a static member a new member id."""

    group_id: GroupId
    group_instance_id: str
    old_member_id: MemberId
    new_member_id: MemberId
    old_protocols: tuple[Protocol, ...]
    old_session_timeout_ms: int
    old_rebalance_timeout_ms: int


class UndoReplacedGroup(NamedTuple):
    """The decision made a classic group of an empty consumer group."""

    group_id: GroupId
    group: object
    """The consumer group."""


class UndoExpiry(NamedTuple):
    """The decision removes the member of a consumer group whose timer has expired."""

    group_id: GroupId
    member_id: MemberId
    kind: int
    """The timer, a TimerKind."""


Undo = UndoNewGroup | UndoAssignment | UndoStaticReplacement | UndoReplacedGroup | UndoExpiry

Record = tuple[bytes, bytes | None]
"""Key and value of a ``__consumer_offsets`` record; None is a tombstone."""


@dataclass(slots=True)
class GroupDecision:
    """A shard's decision: append ``records`` as one batch, apply each, and deliver the replies once they are durable.

    ``reply`` is for the caller's token; None parks it until a later decision's ``released``. With a ``producer`` the
    batch is transactional.
    """

    records: list[Record] = field(default_factory=list)
    reply: object | None = None
    released: list[tuple[int, object]] = field(default_factory=list)
    waits_for_pending: bool = False
    """The reply shows the effect of earlier decisions: deliver it only once *their* records are durable."""
    producer: Producer | None = None
    follow_up: Callable[[int], None] | None = None
    """Soft state to change once the records are applied; called with the time."""
    undo: Undo | None = None
    """The soft state that ``GroupShard.append_failed`` has to undo if the append fails."""
    warning: str | None = None
    """For the node to report, now and then."""
