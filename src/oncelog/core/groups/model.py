"""Requests, replies and decisions of a group shard. Values only, no behaviour.

They are not the wire's messages (``core`` does not know ``wire``): the handlers translate, and know the versions.
"""

from __future__ import annotations

from collections.abc import Sequence
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
"""The member id in requests of members that have none yet."""
NO_GENERATION: Final = -1
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type whose metadata the coordinator can read."""


class Protocol(NamedTuple):
    """An assignment strategy that a member offers, with the member's metadata for it."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """JoinGroup."""

    group_id: GroupId
    member_id: MemberId
    new_member_id: MemberId
    """The id to give to a member that has none, from the injected entropy."""
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    requires_known_member_id: bool = True
    """Version 4 and later: a new dynamic member is sent back with its id first (KIP-394)."""
    supports_skipping_assignment: bool = True
    """Version 9 and later (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member as sent to the leader."""

    member_id: MemberId
    group_instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """Answer to JoinGroup; ``members`` is filled for the leader only."""

    error_code: ErrorCode
    member_id: MemberId = UNKNOWN_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId = UNKNOWN_MEMBER
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncRequest(NamedTuple):
    """SyncGroup. ``protocol_type`` and ``protocol_name`` are checked where given."""

    group_id: GroupId
    member_id: MemberId
    generation: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[tuple[MemberId, bytes]] = ()


class SyncReply(NamedTuple):
    """Answer to SyncGroup."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(NamedTuple):
    """Heartbeat."""

    group_id: GroupId
    member_id: MemberId
    generation: int
    group_instance_id: str | None = None


class LeavingMember(NamedTuple):
    """A member that leaves: by member id, or (by an administrator) by instance id with an unknown member id."""

    member_id: MemberId
    group_instance_id: str | None = None


class LeaveReply(NamedTuple):
    """Answer to LeaveGroup: an error code for each member, in the order of the request; or one for all."""

    error_code: ErrorCode
    members: Sequence[tuple[LeavingMember, ErrorCode]] = ()


class CommittedOffset(NamedTuple):
    """An offset as committed; ``offset`` may be any number, −2 and −1 included."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    """Set by old clients that named a retention; −1 otherwise."""
    topic_id: TopicId = NO_TOPIC_ID
    sequence: int = 0
    """Order of the record among those of its shard: decides which of two commits is the later one."""


class PartitionCommit(NamedTuple):
    """A partition in an OffsetCommit."""

    topic: TopicName
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str | None = None
    topic_id: TopicId = NO_TOPIC_ID


class CommitRequest(NamedTuple):
    """OffsetCommit, with the partitions that exist."""

    group_id: GroupId
    member_id: MemberId
    generation: int
    group_instance_id: str | None
    partitions: Sequence[PartitionCommit]
    retention_ms: int = -1
    unknown_group_error: ErrorCode = ErrorCode.ILLEGAL_GENERATION
    """The error for a generation of a group that does not exist: GROUP_ID_NOT_FOUND from version 9 on."""


class Producer(NamedTuple):
    """The producer in whose transaction something is written."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transactional_id: str | None = None
    """The producer's transactional id, used when looking for hanging transactions."""


class TransactionalCommitRequest(NamedTuple):
    """TxnOffsetCommit, with the partitions that exist, of a transaction that was verified (KIP-447, KIP-890)."""

    group_id: GroupId
    member_id: MemberId
    generation: int
    group_instance_id: str | None
    partitions: Sequence[PartitionCommit]
    producer: Producer


class CommitReply(NamedTuple):
    """Answer to OffsetCommit and TxnOffsetCommit: one error for all (``error_code``), or one a partition in the
    request's order."""

    error_code: ErrorCode
    partitions: Sequence[ErrorCode] = ()


class FetchedOffset(NamedTuple):
    """A partition in the answer to OffsetFetch; offset −1 where nothing was committed."""

    topic: TopicName
    partition: int
    error_code: ErrorCode
    committed: CommittedOffset


class PendingOffsets(NamedTuple):
    """An OffsetFetch is not answered yet: it would pass over offsets that these producers have pending, and if one of
    their transactions is decided, it would tell what was committed before."""

    partition: int
    """Partition of ``__consumer_offsets`` into which the markers of those transactions come."""
    producer_ids: frozenset[ProducerId]


class MemberDescription(NamedTuple):
    """A member in DescribeGroups."""

    member_id: MemberId
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group in DescribeGroups."""

    group_id: GroupId
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: Sequence[MemberDescription] = ()


class GroupListing(NamedTuple):
    """A group in ListGroups."""

    group_id: GroupId
    protocol_type: str
    state: str
    group_type: str = "classic"


class UndoNewGroup(NamedTuple):
    """The decision created a group."""

    group_id: GroupId


class UndoAssignment(NamedTuple):
    """The decision stored the leader's assignment."""

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


Undo = UndoNewGroup | UndoAssignment | UndoStaticReplacement

Record = tuple[bytes, bytes | None]
"""Key and value of a record of ``__consumer_offsets``; no value is a tombstone."""


@dataclass(slots=True)
class GroupDecision:
    """A shard's decision: append ``records`` as one batch, apply each, deliver the replies when they are durable.

    ``reply`` goes to the caller's token; None parks it: a later decision's ``released`` names it.
    With a ``producer`` the batch is a transactional one of that producer, and ``apply`` gets its id.
    """

    records: list[Record] = field(default_factory=list)
    reply: object | None = None
    released: list[tuple[int, object]] = field(default_factory=list)
    waits_for_pending: bool = False
    """The reply shows what earlier decisions applied: deliver it not before *their* records are durable."""
    producer: Producer | None = None
    undo: Undo | None = None
    """The changes that ``GroupShard.append_failed`` takes back when the records cannot be appended."""
