"""What a handler is given beside its request: who asks, in which version, and the broker it may ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import (
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
from oncelog.handlers.api import Operation, ResourceType

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.core.controller.image import ClusterImage
    from oncelog.core.groups.shard import GroupShard
    from oncelog.core.sessions.fetch import FetchSessions
    from oncelog.core.transactions.model import AddRequest
    from oncelog.core.transactions.shard import TransactionShard
    from oncelog.handlers.support.audit import AuditRecord
    from oncelog.storage.log.partition_log import PartitionLog


class CoordinatorRefusal(Exception):
    """This broker cannot decide for the group now; ``error_code`` is what to answer."""

    def __init__(self, error_code: ErrorCode) -> None:
        self.error_code = error_code
        super().__init__(error_code.name)


class Authoriser(Protocol):
    """Says who may do what. The one that ships allows all; tests use one that denies."""

    def allows(self, principal: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Whether ``principal`` may do ``operation`` on the named resource."""


class Broker(Protocol):
    """The node as handlers see it."""

    broker_id: BrokerId
    fetch_sessions: FetchSessions

    @property
    def cluster_id(self) -> str:
        """The cluster's id, 22 characters."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration as of the last change."""

    @property
    def image(self) -> ClusterImage:
        """Brokers, topics, configs, features as of the last change applied; replaced as a whole, never mutated."""

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition that this broker leads, None when it hosts none."""

    def creates_logs(self) -> bool:
        """Whether logs of new partitions are still to be created: :meth:`log` would create the one it is asked for."""

    def in_sync_count(self, partition: TopicPartition) -> int:
        """How many replicas of a partition are in sync."""

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch:
        """Epoch in which this broker leads a partition, −1 when there is no such partition."""

    def group_shards(self) -> Iterable[GroupShard]:
        """All loaded shards of this broker (ListGroups)."""

    def coordinates(self, group_id: GroupId) -> ErrorCode:
        """NONE, or why this broker cannot coordinate the group now."""

    def transaction_shards(self) -> Iterable[TransactionShard]:
        """All loaded transaction shards of this broker (ListTransactions)."""

    def transactions_loading(self) -> bool:
        """Whether a transaction shard of this broker has not read its log yet: it would not know what is open."""

    def transaction_shard(self, transactional_id: TransactionalId) -> TransactionShard | None:
        """The loaded shard that coordinates an id, None when :meth:`coordinates_transaction` says why not."""

    def coordinates_transaction(self, transactional_id: TransactionalId) -> ErrorCode:
        """NONE, or why this broker cannot coordinate the transactional id now."""

    def transactions_durable_at(self, ids: Iterable[TransactionalId]) -> Mapping[TopicPartition, Offset]:
        """The high watermarks at which what coordinators here say of the ids is durable, without those reached."""

    def take_part(self, request: AddRequest) -> bool:
        """Whether partitions are known to take part in a transaction, by what is durable: True only if this broker
        coordinates it and can say so at once. False decides nothing: the coordinator is to be asked, and may have to
        be waited for."""

    def write_marker(self, partition: TopicPartition, marker: Marker) -> Offset:
        """Append an end-of-transaction marker to a log that this broker leads; the high watermark at which it is
        durable. Offsets committed in the transaction become visible or are dropped. Raises ``AppendRefused`` or
        OSError; the caller has checked that the log exists."""

    def appended(self, partition: TopicPartition, record_count: int, size_bytes: int) -> None:
        """Tell the node that a handler appended: it sees to durability, the high watermark and those who wait, and
        counts what came in."""

    def readable_changed(self, partition: TopicPartition) -> None:
        """Tell the node that a handler moved a log's readable range otherwise (DeleteRecords)."""

    def keep_log_starts(self, rising: Mapping[TopicPartition, Offset]) -> None:
        """Make the log starts that DeleteRecords is about to raise durable. Raises OSError."""

    def disk_bytes(self) -> tuple[int, int]:
        """Size of the volume that holds the data, and what is free on it; −1 each when unknown."""

    def audit(self, record: AuditRecord) -> None:
        """Write down that somebody ended a transaction from outside, or tried to."""

    def verification_failed(self, partition_count: int) -> None:
        """Count transactional writes that were refused because the coordinator does not know of them (KIP-890)."""

    def random_bytes(self, size: int) -> bytes:
        """From the injected entropy: topic ids, member ids."""


class Marker(NamedTuple):
    """What ends a transaction on one partition."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0
    """From 2 on the epoch has to be greater than the producer's (KIP-890)."""
    start_offset: Offset = NO_OFFSET
    """An administrator's: only if the open transaction begins exactly there; −1: a coordinator's."""


@dataclass(slots=True)
class Context:
    """One request's circumstances."""

    broker: Broker
    authoriser: Authoriser
    api_key: int
    version: int
    connection_id: int
    client_id: str | None
    client_host: str
    """``/127.0.0.1``, as Apache Kafka shows it in group descriptions."""
    principal: str
    listener: tuple[str, int]
    """Host and port to advertise to clients that came by this listener."""
    now_ms: int
    """Time at which the request is decided; a resumed generator reads it again, it is kept current."""

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Whether the requester may do ``operation`` on the named resource."""
        return self.authoriser.allows(self.principal, operation, resource, name)
