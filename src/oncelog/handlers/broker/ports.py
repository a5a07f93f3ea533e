"""The four ports through which a handler sees its broker. The node's collaborators implement them themselves.

The log of a partition is what a handler is given when it asks for one that this broker leads (KIP-320), or, only to
read from, for one that it copies (KIP-392).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    BrokerId,
    GroupId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
    TransactionalId,
)

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.core.controller.image.cluster_image import Brokers, ClusterImage
    from oncelog.core.groups.shard import GroupShard
    from oncelog.core.replicas.leader import LeaderReplicas
    from oncelog.core.sessions.fetch import FetchSessions
    from oncelog.core.transactions.model import AddRequest
    from oncelog.core.transactions.shard import TransactionShard
    from oncelog.handlers.broker.audit import AuditRecord
    from oncelog.handlers.broker.limits import ClientLimits, ReplicationLimit
    from oncelog.storage.log.partition_log import PartitionLog


class LeaderLog:
    """A partition's log with the epoch in which this broker leads it and its replicas as their leader sees them.

    Held only within one step of the loop: after a wait it has to be asked for again, for leadership may have moved.
    """

    __slots__ = ("leader_epoch", "log", "partition", "replicas")

    def __init__(
        self, partition: TopicPartition, log: PartitionLog, leader_epoch: LeaderEpoch, replicas: LeaderReplicas
    ) -> None:
        self.partition = partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.replicas = replicas

    @property
    def appended_end(self) -> Offset | None:
        """The log end offset while records before it wait for this broker's disk and cannot be read; None as a rule,
        and where other replicas have to have them too, or to come into sync first: acks=1 promises nothing about
        those."""
        log, replicas = self.log, self.replicas
        if log.high_watermark >= log.log_end_offset or replicas.in_sync_count > 1 or not replicas.has_enough_in_sync():
            return None
        return log.log_end_offset

    def has_reached_epoch_start(self) -> bool:
        """True once the high watermark has passed the start of the leader's epoch. Until then the end that readers may
        see can be lower than what the leader before has told (KIP-207)."""
        return self.replicas.high_watermark >= self.replicas.epoch_start


class FollowerLog:
    """A partition's log that this broker copies, in the leader epoch in which it does: only ever read, up to the high
    watermark. That is what its leader told last: all before it is committed, and the leader may know more.

    Held only within one step of the loop.
    """

    __slots__ = ("leader_epoch", "log")

    def __init__(self, log: PartitionLog, leader_epoch: LeaderEpoch) -> None:
        self.log = log
        self.leader_epoch = leader_epoch

    @property
    def appended_end(self) -> None:
        """None: what is on its way to the disk here is no concern of readers."""
        return None


class Marker(NamedTuple):
    """The end of a transaction on one partition."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0
    """The rules of the transaction; from 2 on the epoch has to be greater than the producer's (KIP-890)."""
    start_offset: Offset = NO_OFFSET
    """An administrator's: only if the open transaction begins exactly there; −1: a coordinator's."""


class Partitions(Protocol):
    """The partitions of this broker. Leadership is the only road to a log."""

    fetch_sessions: FetchSessions

    def leader_log(
        self, partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> LeaderLog | ErrorCode:
        """The log of a partition that this broker leads, or the error to answer.

        ``current_leader_epoch`` is what the client believes (−1: it does not say): an older one is fenced, a newer one
        unknown here. Every replica judges it, before it says that it does not lead.
        """

    def follower_log(
        self, partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> FollowerLog | ErrorCode:
        """The log of a partition that this broker copies, to read up to its high watermark (KIP-392), or the error to
        answer; ``current_leader_epoch`` as for :meth:`leader_log`."""

    def replica_size_bytes(self, partition: TopicPartition) -> int | None:
        """Bytes of this broker's replica of a partition, led or not; None where it has none."""

    def is_creating_logs(self) -> bool:
        """True while logs of new partitions are still to be created: asking for one creates it."""

    def appended(self, leader_log: LeaderLog, record_count: int, size_bytes: int) -> None:
        """Count what a handler appended; sees to durability, the high watermark and those who wait."""

    def replica_fetched(
        self, leader_log: LeaderLog, replica: BrokerId, broker_epoch: int, offset: Offset, log_start_offset: Offset
    ) -> None:
        """Take note that a follower, whose log begins at ``log_start_offset``, fetches from ``offset`` in the
        registration ``broker_epoch`` (−1: it does not say): it has all before. May move the high watermark and the
        in-sync set."""

    @property
    def change_position(self) -> int:
        """Position of the last change of any partition that a fetch may have to be told of."""

    def changed_since(self, position: int) -> Sequence[TopicPartition]:
        """Partitions that have changed after a position, which was asked for before."""

    def readable_changed(self, partition: TopicPartition) -> None:
        """Wake delayed fetches: a log's readable range moved otherwise than by an append (DeleteRecords)."""

    def persist_log_starts(self, rising: Mapping[TopicPartition, Offset]) -> None:
        """Make the log starts that DeleteRecords is about to raise durable. Raises OSError."""

    def disk_bytes(self) -> tuple[int, int]:
        """Size of the volume that holds the data, and what is free on it; −1 each when unknown."""

    def is_directory_offline(self) -> bool:
        """True while nothing is written to the data directory: its disk is full."""


class Groups(Protocol):
    """The group coordinators of this broker."""

    def shards(self) -> Iterable[GroupShard]:
        """All loaded shards (ListGroups)."""

    def refusal(self, group_id: GroupId) -> ErrorCode:
        """NONE, or why this broker cannot coordinate the group now."""

    def partition_of(self, group_id: GroupId) -> TopicPartition | None:
        """The partition of ``__consumer_offsets`` that a group belongs to; None while the topic does not exist."""


class Transactions(Protocol):
    """The transaction coordinators of this broker, and the markers that end transactions on its partitions."""

    def shards(self) -> Iterable[TransactionShard]:
        """All loaded shards (ListTransactions)."""

    def is_loading(self) -> bool:
        """True while a shard has not read its log: it would not know what is open."""

    def shard_of(self, transactional_id: TransactionalId) -> TransactionShard | None:
        """The loaded shard that coordinates an id, None when :meth:`refusal` says why not."""

    def refusal(self, transactional_id: TransactionalId) -> ErrorCode:
        """NONE, or why this broker cannot coordinate the transactional id now."""

    def partition_of(self, transactional_id: TransactionalId) -> TopicPartition | None:
        """The partition of ``__transaction_state`` that an id belongs to; None while the topic does not exist."""

    def offsets_until_durable(self, ids: Iterable[TransactionalId]) -> Mapping[TopicPartition, Offset]:
        """The high watermarks at which what coordinators here say of the ids is durable, without those reached."""

    def take_part(self, request: AddRequest) -> bool:
        """True if partitions are known to take part in a transaction, by what is durable: only where this broker
        coordinates it and can say so at once. False decides nothing: the coordinator is to be asked, and may have to
        be waited for."""

    def write_marker(self, leader_log: LeaderLog, marker: Marker) -> Offset:
        """Append the marker that ends a transaction; the high watermark at which it is durable. Offsets committed in
        the transaction become visible or are dropped. Raises ``AppendRefused`` or OSError."""

    def verification_failed(self, partition_count: int) -> None:
        """Count transactional writes that were refused because the coordinator does not know of them (KIP-890)."""

    def audit(self, record: AuditRecord) -> None:
        """Write down that somebody ended a transaction from outside, or tried to."""


class ClusterView(Protocol):
    """The cluster as this broker knows it: committed metadata, applied in order."""

    @property
    def broker_id(self) -> BrokerId:
        """The id of this broker."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id, 22 characters."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration as of the last change."""

    @property
    def image(self) -> ClusterImage:
        """Brokers, topics, configs, features as of the last change applied; replaced as a whole, never mutated."""

    @property
    def lost_brokers(self) -> frozenset[BrokerId]:
        """Brokers that have gone a moment ago, it seems, registered or not: clients are not sent there."""

    @property
    def departed_brokers(self) -> Brokers:
        """Brokers that left some seconds ago, or may have, and are registered no more, as they were: clients are still
        told of their addresses."""

    @property
    def quotas(self) -> ClientLimits:
        """The quotas of clients, as of the last change applied."""

    @property
    def leader_throttle(self) -> ReplicationLimit:
        """The throttle of what followers fetch here (KIP-73)."""

    def random_bytes(self, size: int) -> bytes:
        """Random bytes from the injected entropy, for topic ids and member ids."""


class Ports(NamedTuple):
    """All four, as a node hands them to its requests."""

    partitions: Partitions
    groups: Groups
    transactions: Transactions
    cluster: ClusterView
