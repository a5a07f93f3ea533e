"""Node: one broker as a machine. ``handle(event, now_ms)`` returns effects; everything else is composition.

How an event flows: its handler runs, whatever it woke runs (in a queue, never nested), parked fetches whose partitions
changed are asked, and last the syncs that the appends call for are started; so one event's appends share a sync.
Nothing here knows a clock, a thread or a socket: the same node runs under ``runtime`` and in the simulator.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    BrokerId,
    GroupId,
    LeaderEpoch,
    Offset,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from oncelog.base.invariant import InvariantViolation, invariant
from oncelog.base.tree import Operation
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.image import ClusterImage
from oncelog.core.groups.shard import GroupShard
from oncelog.core.sessions.fetch import FetchSessions
from oncelog.core.transactions.model import AddRequest
from oncelog.core.transactions.shard import TransactionShard
from oncelog.handlers.api import Api
from oncelog.handlers.support.context import Authoriser, Marker
from oncelog.handlers.support.waits import (
    CommitMetadata,
    Coordinate,
    NextSlice,
    Offload,
    Transact,
    TransactEach,
    UntilDurable,
    UntilProducerId,
    UntilReadable,
    Wait,
)
from oncelog.node.coordinators.group_coordinators import GroupCoordinators
from oncelog.node.coordinators.markers import append_marker
from oncelog.node.coordinators.producer_ids import ProducerIds
from oncelog.node.coordinators.runner import Coordinators
from oncelog.node.coordinators.settings import group_settings, transaction_settings, transaction_version
from oncelog.node.coordinators.transaction_coordinators import TransactionCoordinators
from oncelog.node.deadlines import Deadlines
from oncelog.node.events import (
    Audit,
    ConnectionClosed,
    ConnectionOpened,
    Continue,
    Continued,
    DeadlineReached,
    Effect,
    Event,
    Fatal,
    JobFinished,
    MetadataWritten,
    RequestReceived,
    Shutdown,
    Stopped,
    Synced,
)
from oncelog.node.hanging.watch import OrphanWatch
from oncelog.node.metadata import MetadataCommits
from oncelog.node.monitoring.traffic import Traffic
from oncelog.node.monitoring.transaction_metrics import TransactionCounters
from oncelog.node.partitions.delayed_fetches import DelayedFetches
from oncelog.node.partitions.group_commit import GroupCommit
from oncelog.node.partitions.maintenance import Maintenance
from oncelog.node.partitions.manager import Cluster
from oncelog.node.requests.connections import Connection
from oncelog.node.requests.dispatch import Handle, Requests
from oncelog.node.requests.offload import OffloadedWork
from oncelog.node.requests.tasks import Runnable, Task
from oncelog.ports import Entropy

if TYPE_CHECKING:
    from oncelog.handlers.support.audit import AuditRecord
    from oncelog.storage.directory import LogDirectory
    from oncelog.storage.log.partition_log import PartitionLog

COMMIT: Final = "commit"


class Node:
    """One broker; see the module. Also what handlers see as their ``Broker``."""

    def __init__(
        self,
        broker_id: BrokerId,
        config: BrokerConfig,
        image: ClusterImage,
        logs: LogDirectory,
        entropy: Entropy,
        authoriser: Authoriser,
    ) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self.now_ms = 0
        self.traffic = Traffic()
        self.measure_disk: Callable[[], tuple[int, int]] = lambda: (-1, -1)
        """Size of the data's volume and what is free on it; the runtime knows."""
        self._entropy = entropy
        self._connections: dict[int, Connection] = {}
        self._continuing = False
        self._stopping = False
        self._stop_by_ms: int | None = None
        self._deadlines = Deadlines()
        self._runnable = Runnable()
        self._aside = OffloadedWork(self._runnable)
        self._readers = DelayedFetches(self._deadlines, self._runnable)
        self._cluster = Cluster(broker_id, image, config, logs, entropy)
        config = self._cluster.config
        commit = config.get("log.sync.policy") == COMMIT
        self._durability = GroupCommit(self._deadlines, self._runnable, self._readers, commit=commit)
        append_timeout_ms = int(config.get("offsets.commit.timeout.ms"))
        shared = (append_timeout_ms, self._deadlines, self._runnable, self._durability)
        self._groups = GroupCoordinators(group_settings(config), *shared)
        self._transactions = TransactionCoordinators(transaction_settings(config, image), *shared)
        self._maintenance = Maintenance(logs, self._cluster, self._readers, self._deadlines, self._durability)
        coordinators: dict[TopicName, Coordinators[Any]] = {
            CONSUMER_OFFSETS: self._groups,
            TRANSACTION_STATE: self._transactions,
        }
        self._cluster.bind(self._durability, self._readers, coordinators, self._maintenance)
        self._facts = MetadataCommits(self._apply)
        self._producer_ids = ProducerIds(broker_id, self._cluster, self._facts, self._runnable)
        self._transactions.bind(self, self._producer_ids)
        self.fetch_sessions = FetchSessions(
            int(config.get("max.incremental.fetch.session.cache.slots")), self.random_bytes
        )
        self.orphans = OrphanWatch(self, logs.transactions, self._deadlines)
        self.transaction_counters = TransactionCounters()
        self._requests = Requests(self, authoriser, self._park, self._deadlines, self._runnable, self.traffic)

    # Driving

    def start(self, now_ms: int) -> list[Effect]:
        """What to do first. Called once, before any event."""
        self.now_ms = self._requests.now_ms = self._cluster.now_ms = self._deadlines.now_ms = now_ms
        effects = self._requests.effects = []
        self._cluster.start()
        for log in self.logs.logs.values():
            if log.high_watermark < log.log_end_offset:
                self._durability.appended(log, now_ms)
        self._maintenance.start(now_ms)
        self._producer_ids.prefetch(effects)
        self._settle(effects)
        return effects

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event in; the effects to carry out, in order."""
        self.now_ms = self._requests.now_ms = self._cluster.now_ms = self._deadlines.now_ms = now_ms
        effects: list[Effect] = []
        self._requests.effects = effects
        try:
            self._transactions.write_markers()  # before anybody asks: who was told of a commit also sees it
            self._take(event, effects)
            self._settle(effects)
        except InvariantViolation as violation:
            effects.append(Fatal(str(violation)))
        except Exception:  # noqa: BLE001 - half of what the event meant was done: nobody may go on from there
            effects.append(Fatal(traceback.format_exc()))
        return effects

    def put_around_handlers(self, around: Callable[[Api, Handle], Handle]) -> None:
        """Let ``around(api, handler)`` stand in for every handler: a test's faults. Called before any event."""
        self._requests.around = around

    def backlog_bytes(self, connection_id: int) -> int:
        """Bytes of requests that a connection has waiting here undecided."""
        connection = self._connections.get(connection_id)
        return 0 if connection is None else connection.backlog_bytes

    def next_deadline_ms(self) -> int | None:
        """When to hand in ``DeadlineReached``, None: when nothing else happens, never."""
        return self._deadlines.next_ms()

    def _take(self, event: Event, effects: list[Effect]) -> None:
        if isinstance(event, RequestReceived):
            connection = self._connections.get(event.connection_id)
            if connection is not None and connection.open and not self._stopping:
                self._requests.receive(connection, event.frame)
        elif isinstance(event, Synced):
            self._durability.synced(event, effects)
        elif isinstance(event, DeadlineReached):
            self._deadlines.run_due(self.now_ms)
        elif isinstance(event, ConnectionOpened):
            connection = Connection(event.connection_id, event.host, event.listener, event.principal)
            self._connections[event.connection_id] = connection
        elif isinstance(event, ConnectionClosed):
            gone = self._connections.pop(event.connection_id, None)
            if gone is not None:
                gone.shut()
        elif isinstance(event, MetadataWritten):
            self._facts.written(event, effects)
        elif isinstance(event, JobFinished):
            if not self._aside.finished(event):
                self._maintenance.job_finished(event, effects)
        elif isinstance(event, Continued):
            self._continuing = False  # what is left of a load goes on in _settle
            self._requests.next_slice()
        elif isinstance(event, Shutdown):
            self._stopping = True
            self._stop_by_ms = event.deadline_ms
            self._deadlines.at(event.deadline_ms, lambda _now: None)
            for log in self.logs.logs.values():
                if log.durable_offset < log.log_end_offset:
                    self._durability.flush(log)  # side by side now, rather than one by one when the logs are closed

    def _settle(self, effects: list[Effect]) -> None:
        """Let everything that this event set in motion come to rest, then start the syncs it calls for."""
        while True:
            ran = self._requests.run_woken()
            self._readers.ask_waiting()
            if not ran and self._runnable.is_empty():
                break
        loading = self._groups.load_slice(self.now_ms) | self._transactions.load_slice(self.now_ms)
        if self._cluster.create_slice() | loading:
            self._requests.run_woken()
            self._go_on_later(effects)
        if self._requests.waits_for_slice() or self._transactions.has_decided():
            self._go_on_later(effects)
        self._producer_ids.prefetch(effects)
        self.orphans.notice(self.now_ms, effects)
        self._maintenance.start_jobs(effects)
        self._aside.start(effects)
        self._durability.start_syncs(effects)
        if self._stopping:
            self._stop_when_idle(effects)

    def _go_on_later(self, effects: list[Effect]) -> None:
        if not self._continuing:
            self._continuing = True
            effects.append(Continue())

    def _stop_when_idle(self, effects: list[Effect]) -> None:
        assert self._stop_by_ms is not None
        decided = not (self._requests.waits_for_slice() or self._transactions.has_decided())
        idle = decided and self._aside.is_idle() and self._durability.is_idle() and self._facts.is_idle()
        if idle or self.now_ms >= self._stop_by_ms:
            self._stopping = False
            effects.append(Stopped())

    def _apply(self, operations: Sequence[Operation]) -> None:
        self._cluster.apply(operations)
        self._transactions.settings.transaction_version = transaction_version(self._cluster.image)

    def _park(self, task: Task, wait: Wait) -> None:
        if isinstance(wait, UntilDurable):
            self._durability.wait(task, wait, {partition: self.log(partition) for partition in wait.offsets})
        elif isinstance(wait, UntilReadable):
            self._readers.wait(task, wait)
        elif isinstance(wait, Coordinate):
            self._groups.decide(task, wait.group_id, wait.decide, self.now_ms)
        elif isinstance(wait, Transact):
            self._transactions.decide(task, wait.transactional_id, wait.decide, self.now_ms)
        elif isinstance(wait, TransactEach):
            self._transactions.decide_each(
                task, [(each.transactional_id, each.decide) for each in wait.asked], self.now_ms
            )
        elif isinstance(wait, CommitMetadata):
            self._facts.commit(
                wait.operations, lambda committed: self._runnable.wake(task, committed), self._requests.effects
            )
        elif isinstance(wait, UntilProducerId):
            self._producer_ids.wait(task)
        elif isinstance(wait, NextSlice):
            self._requests.wait_for_slice(task)
        elif isinstance(wait, Offload):
            self._aside.wait(task, wait)

    # What handlers see

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._cluster.image.cluster_id or ""

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration."""
        broker = self._cluster.image.brokers.get(self.broker_id)
        return -1 if broker is None else broker.epoch

    @property
    def config(self) -> BrokerConfig:
        """The configuration as of the last change."""
        return self._cluster.config

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last change."""
        return self._cluster.image

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """See ``handlers.context.Broker``."""
        return self._cluster.log(partition)

    def creates_logs(self) -> bool:
        """See ``handlers.context.Broker``."""
        return self._cluster.creates_logs()

    def in_sync_count(self, partition: TopicPartition) -> int:
        """See ``handlers.context.Broker``."""
        return self._cluster.in_sync_count(partition)

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch:
        """See ``handlers.context.Broker``."""
        return self._cluster.leader_epoch(partition)

    def group_shards(self) -> Iterable[GroupShard]:
        """See ``handlers.context.Broker``."""
        return self._groups.shards()

    def coordinates(self, group_id: GroupId) -> ErrorCode:
        """See ``handlers.context.Broker``."""
        return self._groups.refusal(group_id)

    def transaction_shards(self) -> Iterable[TransactionShard]:
        """See ``handlers.context.Broker``."""
        return self._transactions.shards()

    def transactions_loading(self) -> bool:
        """See ``handlers.context.Broker``."""
        return self._transactions.is_loading()

    def transaction_shard(self, transactional_id: TransactionalId) -> TransactionShard | None:
        """See ``handlers.context.Broker``."""
        return self._transactions.shard_of(transactional_id)

    def coordinates_transaction(self, transactional_id: TransactionalId) -> ErrorCode:
        """See ``handlers.context.Broker``."""
        return self._transactions.refusal(transactional_id)

    def transactions_durable_at(self, ids: Iterable[TransactionalId]) -> Mapping[TopicPartition, Offset]:
        """See ``handlers.context.Broker``."""
        return self._transactions.durable_at(ids)

    def take_part(self, request: AddRequest) -> bool:
        """See ``handlers.context.Broker``."""
        return self._transactions.take_part(request)

    def write_marker(self, partition: TopicPartition, marker: Marker) -> Offset:
        """See ``handlers.context.Broker``."""
        log = self._cluster.log(partition)
        invariant(log is not None, "a marker for a partition without a log", partition=partition)
        assert log is not None
        offset = append_marker(log, marker, self._cluster.leader_epoch(partition), self.now_ms)
        self._durability.appended(log, self.now_ms)
        if partition.topic == CONSUMER_OFFSETS:
            self._groups.transaction_ended(partition.partition, marker.producer_id, committed=marker.committed)
        return offset

    def audit(self, record: AuditRecord) -> None:
        """See ``handlers.context.Broker``."""
        self.transaction_counters.audited(record)
        self._requests.effects.append(Audit(record))

    def verification_failed(self, partition_count: int) -> None:
        """See ``handlers.context.Broker``."""
        self.transaction_counters.verification_failures += partition_count

    def markers_retried(self) -> int:
        """Markers that their log refused and that are tried again (metrics)."""
        return self._transactions.retrying

    def appended(self, partition: TopicPartition, record_count: int, size_bytes: int) -> None:
        """See ``handlers.context.Broker``."""
        self.traffic.records_in += record_count
        self.traffic.record_bytes_in += size_bytes
        log = self._cluster.log(partition)
        if log is not None:
            self._durability.appended(log, self.now_ms)

    def readable_changed(self, partition: TopicPartition) -> None:
        """See ``handlers.context.Broker``."""
        self._readers.changed(partition)

    def keep_log_starts(self, rising: Mapping[TopicPartition, Offset]) -> None:
        """See ``handlers.context.Broker``."""
        self.logs.checkpoint_log_starts(rising)

    def disk_bytes(self) -> tuple[int, int]:
        """See ``handlers.context.Broker``."""
        return self.measure_disk()

    def random_bytes(self, size: int) -> bytes:
        """See ``handlers.context.Broker``."""
        return self._entropy.token(size)
