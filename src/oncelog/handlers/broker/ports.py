"""The four ports through which a handler sees its broker; the node's collaborators implement them."""

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
    """A partition's log, the epoch in which this broker leads it (KIP-320), and its replicas as the leader sees them.

    Valid within one step of the loop: leadership may move in a wait, so resolve it again afterwards.
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
        """The log end offset, while its last records wait only for this broker's disk; else None."""
        log, replicas = self.log, self.replicas
        # If other replicas have to have the records, or come into sync first, acks=1 promises nothing about them.
        if log.high_watermark >= log.log_end_offset or replicas.in_sync_count > 1 or not replicas.has_enough_in_sync():
            return None
        return log.log_end_offset

    def has_reached_epoch_start(self) -> bool:
        """True once the high watermark has passed the start of the leader's epoch. Until then the readable end may be
        lower than one that the previous leader returned (KIP-207).
        """
        return self.replicas.high_watermark >= self.replicas.epoch_start


class FollowerLog:
    """A partition's log that this broker follows, with the leader epoch of its fetches. It may only be read, up to the
    high watermark that the leader sent last; the leader may have committed more. Valid within one step of the loop.
    """

    __slots__ = ("leader_epoch", "log")

    def __init__(self, log: PartitionLog, leader_epoch: LeaderEpoch) -> None:
        self.log = log
        self.leader_epoch = leader_epoch

    @property
    def appended_end(self) -> None:
        """None: readers of a follower do not wait for its disk."""
        return None


class Marker(NamedTuple):
    """The end of a transaction on one partition."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0
    """The transaction's rules; from 2 on the epoch has to be greater than the producer's (KIP-890)."""
    start_offset: Offset = NO_OFFSET
    """For an administrator's marker: abort only if the open transaction begins exactly here. −1 for a coordinator's."""


class Partitions(Protocol):
    """The partitions of this broker. Their logs are reached through leadership only."""

    fetch_sessions: FetchSessions

    def leader_log(
        self, partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> LeaderLog | ErrorCode:
        """The log of a partition that this broker leads, or the error to answer.

        ``current_leader_epoch`` is the client's belief (−1: not given). Any replica checks it first: an older epoch is
        fenced, a newer one unknown.
        """

    def follower_log(
        self, partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> FollowerLog | ErrorCode:
        """The log of a partition that this broker follows, readable up to its high watermark (KIP-392), or the error;
        ``current_leader_epoch`` as for :meth:`leader_log`.
        """

    def replica_size_bytes(self, partition: TopicPartition) -> int | None:
        """Bytes of this broker's replica, led or not; None if it has no replica."""

    def is_creating_logs(self) -> bool:
        """True while logs of new partitions are still to be created; resolving one creates it."""

    def appended(self, leader_log: LeaderLog, record_count: int, size_bytes: int) -> None:
        """Count an append; handles durability, the high watermark and delayed requests."""

    def replica_fetched(
        self, leader_log: LeaderLog, replica: BrokerId, broker_epoch: int, offset: Offset, log_start_offset: Offset
    ) -> None:
        """Record that a follower, whose log begins at ``log_start_offset``, has everything before ``offset``.
        ``broker_epoch`` is its registration (−1: not given). May move the high watermark and the in-sync set.
        """

    @property
    def change_position(self) -> int:
        """Position of the last change of any partition that a fetch may have to return."""

    def changed_since(self, position: int) -> Sequence[TopicPartition]:
        """The partitions that changed after a position, which was read before."""

    def readable_changed(self, partition: TopicPartition) -> None:
        """Wake delayed fetches: a log's readable range moved without an append (DeleteRecords)."""

    def persist_log_starts(self, rising: Mapping[TopicPartition, Offset]) -> None:
        """Write the log starts that DeleteRecords is about to raise; durable on return. Raises OSError."""

    def disk_bytes(self) -> tuple[int, int]:
        """Total and free bytes of the data volume; −1 each if unknown."""

    def is_directory_offline(self) -> bool:
        """True while the data directory takes no writes: its disk is full."""


class Groups(Protocol):
    def shards(self) -> Iterable[GroupShard]: ...

    def refusal(self, group_id: GroupId) -> ErrorCode:
        """NONE, or why this broker cannot coordinate the group now."""

    def partition_of(self, group_id: GroupId) -> TopicPartition | None:
        """The group's partition of ``__consumer_offsets``; None while the topic does not exist."""


class Transactions(Protocol):
    def shards(self) -> Iterable[TransactionShard]: ...

    def is_loading(self) -> bool:
        """True while a shard has not read its log, and so does not know its open transactions."""

    def shard_of(self, transactional_id: TransactionalId) -> TransactionShard | None:
        """The loaded shard that coordinates an id; None if :meth:`refusal` says why not."""

    def refusal(self, transactional_id: TransactionalId) -> ErrorCode:
        """NONE, or why this broker cannot coordinate the transactional id now."""

    def partition_of(self, transactional_id: TransactionalId) -> TopicPartition | None:
        """The id's partition of ``__transaction_state``; None while the topic does not exist."""

    def offsets_until_durable(self, ids: Iterable[TransactionalId]) -> Mapping[TopicPartition, Offset]:
        """The high watermarks at which the coordinators' state of the ids is durable, without those already reached."""

    def take_part(self, request: AddRequest) -> bool:
        """True if a durable decision of a coordinator on this broker says that the partitions take part. False decides
        nothing: ask the coordinator, which may wait.
        """

    def write_marker(self, leader_log: LeaderLog, marker: Marker) -> Offset:
        """Append the marker that ends a transaction; its offsets become visible or are dropped. Returns the high
        watermark at which it is durable. Raises ``AppendRefused`` or OSError.
        """

    def verification_failed(self, partition_count: int) -> None:
        """Count transactional writes refused because the coordinator does not know the partitions (KIP-890)."""

    def audit(self, record: AuditRecord) -> None:
        """Log an end of a transaction from outside, or an attempt."""


class ClusterView(Protocol):
    """The cluster as this broker knows it: committed metadata, applied in order."""

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def cluster_id(self) -> str:
        """The cluster's id, 22 characters."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def image(self) -> ClusterImage:
        """Brokers, topics, configs and features as of the last change applied; replaced as a whole, never mutated."""

    @property
    def failed_brokers(self) -> frozenset[BrokerId]:
        """Brokers that seem to have just failed, registered or not: clients are not sent to them."""

    @property
    def departed_brokers(self) -> Brokers:
        """Brokers that left some seconds ago, or may have, as they were registered: their addresses are still
        returned."""

    @property
    def quotas(self) -> ClientLimits: ...

    @property
    def leader_throttle(self) -> ReplicationLimit: ...

    def random_bytes(self, size: int) -> bytes:
        """Random bytes from the injected entropy, for topic ids and member ids."""


class Ports(NamedTuple):
    partitions: Partitions
    groups: Groups
    transactions: Transactions
    cluster: ClusterView
