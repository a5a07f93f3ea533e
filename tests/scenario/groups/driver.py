"""A shard with its log, a clock that is moved by hand, and clients that have a name: what the node does, in 100 lines.

After every step all invariants are checked, and a second shard that replays the log is compared with the first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, Offset, ProducerEpoch, ProducerId, TopicName
from oncelog.core.groups.member_quota import MemberMemory
from oncelog.core.groups.model import (
    CommitRequest,
    GroupDecision,
    HeartbeatRequest,
    JoinRequest,
    LeavingMember,
    PartitionCommit,
    PendingOffsets,
    Producer,
    Protocol,
    Record,
    SyncRequest,
    TransactionalCommitRequest,
)
from oncelog.core.groups.modern.topics import Topics
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.shard import GroupShard
from oncelog.records.internal.consumer_protocol import Subscription, encode_subscription
from tests.shard_time import ShardTime

GROUP = GroupId("g")
TOPIC = TopicName("t")
SETTINGS = GroupSettings(initial_rebalance_delay_ms=3000)


class Sent(NamedTuple):
    """A record inside a producer's transaction."""

    record: Record
    producer_id: ProducerId


class Ended(NamedTuple):
    """A marker."""

    producer_id: ProducerId
    committed: bool


Entry = Record | Sent | Ended


def subscription(*topics: str) -> bytes:
    """Metadata of a member that subscribes to ``topics``."""
    return encode_subscription(Subscription(tuple(TopicName(topic) for topic in topics)))


def apply_entry(shard: GroupShard, entry: Entry) -> None:
    """Take over one entry of a log."""
    if isinstance(entry, Ended):
        shard.apply_end_transaction(entry.producer_id, committed=entry.committed)
    elif isinstance(entry, Sent):
        shard.apply(*entry.record, producer_id=entry.producer_id)
    else:
        shard.apply(*entry)


def replayed(log: list[Entry], settings: GroupSettings = SETTINGS) -> GroupShard:
    """A shard that has loaded ``log``."""
    shard = GroupShard(0, settings)
    for entry in log:
        apply_entry(shard, entry)
    shard.loaded(0)
    return shard


def durable(shard: GroupShard) -> dict[GroupId, tuple[Record | None, dict[tuple[TopicName, int], object]]]:
    """The state of a shard that must survive: offsets of all groups, and members of those that are not rebalancing."""
    return shard.persisted({group.group_id for group in shard.listings() if group.state in ("Empty", "Stable")})


@dataclass
class Driver(ShardTime):
    """Drives a loaded shard."""

    settings: GroupSettings = field(default_factory=lambda: GroupSettings(initial_rebalance_delay_ms=3000))
    now_ms: int = 1_000_000
    log: list[Entry] = field(default_factory=list)
    """The log that the shard is loaded from, and that it writes."""
    ids: int = 0
    """Member ids given out so far."""
    memory: MemberMemory = field(default_factory=MemberMemory)
    """The memory of members; other drivers' shards may share it."""
    topics: Topics | None = None
    rebalances: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.replies: dict[int, Any] = {}
        self.last_token = 0
        self.refuse_appends = False
        self.shard = GroupShard(0, self.settings, self.memory, topics=self.topics, rebalances=self.rebalances)
        for entry in self.log:
            apply_entry(self.shard, entry)
        self.carry_out(self.shard.loaded(self.now_ms))

    def carry_out(self, decision: GroupDecision, token: int = 0) -> Any:
        """Append, apply and deliver; returns what the caller was told, None if it is parked."""
        if decision.records and self.refuse_appends:
            self.refuse_appends = False
            if token:
                self.replies[token] = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.carry_out(self.shard.append_failed(decision, ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now_ms))
            return self.replies.get(token)
        producer = decision.producer
        for record in decision.records:
            self.append(record if producer is None else Sent(record, producer.producer_id))
        if decision.follow_up is not None:
            decision.follow_up(self.now_ms)
        for waiting, reply in decision.released:
            assert waiting not in self.replies, "a token answered twice"
            self.replies[waiting] = reply
        if token and decision.reply is not None:
            assert token not in self.replies, "a token answered twice"
            self.replies[token] = decision.reply
        self.check()
        return self.replies.get(token)

    def append(self, entry: Entry) -> None:
        """Append to the log and apply."""
        self.log.append(entry)
        apply_entry(self.shard, entry)

    def check(self) -> None:
        """All invariants, and that the log says what the shard holds."""
        self.shard.check()
        loaded = replayed(self.log)
        assert loaded.pending_offsets() == self.shard.pending_offsets()
        mine, again = durable(self.shard), durable(loaded)
        for group_id, (record, offsets) in mine.items():
            if record is None and group_id not in again:
                continue  # being created: not in the log before its first generation
            assert again[group_id][1] == offsets
            assert record is None or again[group_id][0] == record

    def token(self) -> int:
        """A new caller."""
        self.last_token += 1
        return self.last_token

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        name: str = "m",
        instance: str | None = None,
        protocols: tuple[Protocol | str, ...] = ("range",),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
    ) -> Any:
        """JoinGroup; the new member's id is the name and a number."""
        self.ids += 1
        offered = tuple(p if isinstance(p, Protocol) else Protocol(p, subscription(TOPIC)) for p in protocols)
        request = JoinRequest(
            GroupId(group),
            MemberId(member_id),
            MemberId(f"{instance or name}-{self.ids}"),
            instance,
            name,
            "/127.0.0.1",
            session_ms,
            rebalance_ms,
            protocol_type,
            offered,
            version >= 4,
            version >= 9,
        )
        token = self.token()
        return self.carry_out(self.shard.join(request, token, self.now_ms), token)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol: str | None = None,
    ) -> Any:
        """SyncGroup."""
        parts = [(MemberId(m), part) for m, part in (assignments or {}).items()]
        request = SyncRequest(GroupId(group), MemberId(member_id), generation, instance, None, protocol, parts)
        token = self.token()
        return self.carry_out(self.shard.sync(request, token, self.now_ms), token)

    def heartbeat(self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None) -> Any:
        """Heartbeat."""
        token = self.token()
        request = HeartbeatRequest(GroupId(group), MemberId(member_id), generation, instance)
        return self.carry_out(self.shard.heartbeat(request, token, self.now_ms), token)

    def leave(self, *leaving: str | tuple[str, str | None], group: str = GROUP) -> Any:
        """LeaveGroup."""
        members = [
            LeavingMember(MemberId(m), None) if isinstance(m, str) else LeavingMember(MemberId(m[0]), m[1])
            for m in leaving
        ]
        token = self.token()
        return self.carry_out(self.shard.leave(GroupId(group), members, token, self.now_ms), token)

    def commit(
        self,
        offsets: dict[int, int],
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = GROUP,
        topic: str = TOPIC,
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 9,
    ) -> Any:
        """OffsetCommit of partition → offset."""
        parts = [PartitionCommit(TopicName(topic), p, Offset(o), metadata=metadata) for p, o in offsets.items()]
        request = CommitRequest(
            GroupId(group), MemberId(member_id), generation, instance, parts, retention_ms, version >= 9
        )
        token = self.token()
        return self.carry_out(self.shard.commit_offsets(request, token, self.now_ms), token)

    def send(
        self,
        offsets: dict[int, int],
        member_id: str = "",
        generation: int = -1,
        *,
        producer_id: int = 7,
        group: str = GROUP,
        topic: str = TOPIC,
        instance: str | None = None,
        metadata: str | None = "",
    ) -> Any:
        """TxnOffsetCommit of partition → offset, in a transaction that was verified."""
        parts = [PartitionCommit(TopicName(topic), p, Offset(o), metadata=metadata) for p, o in offsets.items()]
        producer = Producer(ProducerId(producer_id), ProducerEpoch(0))
        request = TransactionalCommitRequest(GroupId(group), MemberId(member_id), generation, instance, parts, producer)
        token = self.token()
        return self.carry_out(self.shard.commit_transactional_offsets(request, token, self.now_ms), token)

    def end(self, producer_id: int = 7, *, committed: bool = True) -> None:
        """The marker of a transaction is written."""
        self.append(Ended(ProducerId(producer_id), committed))
        self.check()

    def fetch(self, group: str = GROUP, *, require_stable: bool = False) -> dict[tuple[str, int], int]:
        """OffsetFetch of everything; no transaction is decided and not ended."""
        reply: object = PendingOffsets(0, frozenset())
        while isinstance(reply, PendingOffsets):
            undecided = reply.producer_ids
            reply = self.shard.fetch_offsets(
                GroupId(group), None, 0, self.now_ms, require_stable=require_stable, undecided=undecided
            ).reply
        assert isinstance(reply, list)
        return {(f.topic, f.partition): f.committed.offset for f in reply}

    def state(self, group: str = GROUP) -> str:
        """The group's state, or "Dead"."""
        return self.shard.describe(GroupId(group)).state

    def members(self, group: str = GROUP) -> list[str]:
        """The members' ids."""
        return [member.member_id for member in self.shard.describe(GroupId(group)).members]
