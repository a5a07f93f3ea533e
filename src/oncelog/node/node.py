"""A broker as a state machine: ``handle(event, now_ms)`` returns effects; the rest of this module composes the parts.

For each event: its handler runs, then the tasks it woke (from a queue, never nested), then the parked fetches of
changed partitions, and last the syncs for the event's appends, which they share.

Handlers use four parts through the ports of ``handlers.broker.ports``: ``partitions``, ``groups``, ``transactions`` and
``cluster``. A part that only some brokers need is imported by the first event that needs it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from oncelog.base.ids import BrokerId
from oncelog.base.invariant import InvariantViolation
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.image.cluster_image import ClusterImage, ImageDelta
from oncelog.handlers.api import Api
from oncelog.handlers.broker import waits
from oncelog.handlers.broker.context import Authoriser
from oncelog.handlers.broker.ports import Ports
from oncelog.node.access.audit_trail import AuditTrail
from oncelog.node.access.authoriser import access_control
from oncelog.node.brokers.broker_links import BrokerLinks
from oncelog.node.brokers.messages import BrokerMessages
from oncelog.node.brokers.requests.requests import BrokerRequests
from oncelog.node.cluster.failed_brokers import FailedBrokers
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.cluster.metadata_log import MetadataLog
from oncelog.node.cluster.tree_reads import TreeReads
from oncelog.node.controller.controlled_shutdown import ControlledShutdown
from oncelog.node.controller.duties import ControllerDuties
from oncelog.node.coordinators.group_coordinators import GroupCoordinators, group_settings
from oncelog.node.coordinators.markers import MarkerWriter
from oncelog.node.coordinators.producer_ids import ProducerIds
from oncelog.node.coordinators.runner import CoordinatorServices
from oncelog.node.coordinators.transaction_coordinators import (
    TransactionCoordinators,
    transaction_settings,
    transaction_version,
)
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerSent,
    ConnectionClosed,
    ConnectionHalfClosed,
    ConnectionOpened,
    Continue,
    Continued,
    DeadlineReached,
    Effect,
    Event,
    Fatal,
    JobFinished,
    MetadataChanged,
    MetadataLoaded,
    MetadataWritten,
    NodesRead,
    Outbox,
    RequestReceived,
    Shutdown,
    StoodStill,
    Synced,
)
from oncelog.node.kernel.tasks import OffloadedWork, Runnable
from oncelog.node.liveness.broker_watch import BrokerWatch
from oncelog.node.logs.delayed_fetches import DelayedFetches
from oncelog.node.logs.directory_health import DirectoryHealth
from oncelog.node.logs.group_commit import GroupCommit
from oncelog.node.logs.maintenance import Maintenance
from oncelog.node.replication.damaged_replicas import DamagedReplicas
from oncelog.node.replication.followers import Followers
from oncelog.node.replication.in_sync_sets import InSyncSets
from oncelog.node.replication.partitions import PartitionManager
from oncelog.node.replication.roles import ReplicaRoles
from oncelog.node.replication.services import ReplicationServices
from oncelog.node.requests.connections import ClientConnections
from oncelog.node.requests.dispatch import ParkingTable, Requests
from oncelog.node.requests.lazy_apis import Handle
from oncelog.node.requests.pause_recovery import PauseRecovery
from oncelog.node.requests.throttling import Throttling
from oncelog.node.share.services import ShareServices
from oncelog.node.stopping import Stopping
from oncelog.ports import Entropy

if TYPE_CHECKING:
    from oncelog.node.coordinators.share_state_coordinators import ShareStateCoordinators
    from oncelog.node.hanging.coordinator_queries import CoordinatorQueries
    from oncelog.node.hanging.watch import HangingTransactionWatch
    from oncelog.node.replication.leadership_check import LeadershipChecker
    from oncelog.node.replication.log_ends import LogEnds
    from oncelog.node.requests.logins import Logins
    from oncelog.storage.log_directory import LogDirectory


class Node:
    def __init__(
        self,
        broker_id: BrokerId,
        config: BrokerConfig,
        image: ClusterImage,
        position: int,
        logs: LogDirectory,
        entropy: Entropy,
        authoriser: Authoriser | None = None,
    ) -> None:
        """``authoriser``: for tests; by default the configuration chooses it."""
        self.logs = logs
        self._continuing = False
        self._outbox, self._deadlines, self._runnable = Outbox(), Deadlines(), Runnable()
        self._offloaded = OffloadedWork(self._runnable)
        self.tree_reads = TreeReads(self._runnable, self._outbox)
        self.cluster = Metadata(broker_id, image, position, config, entropy)
        self._metadata_log = MetadataLog(self.cluster, self._outbox, self._runnable, self._deadlines, self._apply)
        self.controller = ControllerDuties(self.cluster, self._metadata_log, self._deadlines, self._outbox)
        self._controlled_shutdown = ControlledShutdown(self.cluster, self._metadata_log, self._deadlines)
        config = self._first_config = self.cluster.config
        self._delayed_fetches = DelayedFetches(self._deadlines, self._runnable)
        self._group_commit = self._make_group_commit()
        self._maintenance = Maintenance(logs, self.cluster, self._delayed_fetches, self._deadlines, self._group_commit)
        self.links = BrokerLinks(self.cluster, self._deadlines)
        self._failed_brokers = self._make_failed_brokers()
        self.in_sync_sets = InSyncSets(self.cluster, self._metadata_log, self._deadlines, self._group_commit)
        self.directory = DirectoryHealth(
            logs.files.errors, self.cluster, self._metadata_log, self._deadlines, self._outbox
        )
        self.followers = Followers(self._replication())
        self.partitions = self._make_partitions()
        services = self._coordinator_services()
        self._producer_ids = ProducerIds(broker_id, self.cluster, self._metadata_log, self._runnable)
        self._messages = BrokerMessages(broker_id)
        self._broker_requests = BrokerRequests(self._messages, self.links, self.cluster, self._deadlines)
        self.audit_trail = AuditTrail(self._outbox)
        self.groups = GroupCoordinators(group_settings(config), services)
        self.transactions = self._make_transactions(services)
        self.share = self._make_share_services(services)
        self.access = access_control(self.cluster, authoriser, self._outbox, self._deadlines)
        self.requests = self._make_requests()
        self.connections = ClientConnections(self.requests, lambda: self.logins, self._end_sessions)
        self.liveness = BrokerWatch(
            self.cluster,
            self._metadata_log,
            self.links,
            self._deadlines,
            self._outbox,
            self.controller.brokers_to_watch,
        )
        self._pause_recovery = PauseRecovery(
            self.cluster, self._metadata_log, self._deadlines, self.requests, self._outbox
        )
        self._stopping = self._make_stopping()

    @property
    def now_ms(self) -> int:
        return self._deadlines.now_ms

    def start(self, now_ms: int) -> list[Effect]:
        """The first effects; called once, before any event."""
        self._deadlines.now_ms = now_ms
        effects = self._outbox.begin()
        self.partitions.start()
        self._follow_internal_topics()
        self._maintenance.start(now_ms)
        self._producer_ids.prefetch(effects)
        self.controller.start()
        self._failed_brokers.start()
        self.liveness.connect()
        self._settle(effects)
        return effects

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event; returns the effects to carry out, in order."""
        self._deadlines.now_ms = now_ms
        effects = self._outbox.begin()
        try:
            self.transactions.markers.send_decided()  # first, so that a client sees what its EndTxn has committed
            self._take(event, effects)
            self._settle(effects)
        except InvariantViolation as violation:
            effects.append(Fatal(str(violation)))
        except Exception:  # noqa: BLE001 - the event is half handled: the node must not go on from there
            effects.append(Fatal(traceback.format_exc()))
        return effects

    def put_around_handlers(self, around: Callable[[Api, Handle], Handle]) -> None:
        """Wrap every handler as ``around(api, handler)``, to inject faults in tests. Called before any event."""
        self.requests.apis.around = around

    def holds_secrets(self, event: Event) -> bool:
        """True if the event may carry a login's token."""
        if isinstance(event, BrokerSent):
            return self.links.is_logging_in(event.link_id)
        return isinstance(event, RequestReceived) and self.connections.may_carry_token(event.connection_id)

    def next_deadline_ms(self) -> int | None:
        """Time at which to hand in ``DeadlineReached``; None: not before another event."""
        return self._deadlines.next_ms()

    def _take(self, event: Event, effects: list[Effect]) -> None:
        if isinstance(event, RequestReceived):
            self.connections.received(event)
        elif isinstance(event, Synced):
            self._group_commit.synced(event, effects)
        elif isinstance(event, BrokerSent):
            self.links.received(event)
        elif isinstance(event, DeadlineReached):
            self._deadlines.run_due(self.now_ms)
        elif isinstance(event, ConnectionOpened):
            self.connections.opened(event)
        elif isinstance(event, ConnectionClosed):
            self.connections.closed(event)
        elif isinstance(event, ConnectionHalfClosed):
            self.connections.half_closed(event)
        elif isinstance(event, MetadataChanged):
            self._metadata_log.changed(event)
        elif isinstance(event, MetadataWritten):
            self._metadata_log.written(event)
        elif isinstance(event, NodesRead):
            self.tree_reads.read(event)
        elif isinstance(event, MetadataLoaded):
            self._metadata_log.loaded(event)
            self._pause_recovery.metadata_loaded(event)
        elif isinstance(event, BrokerConnected):
            self.links.connected(event)
        elif isinstance(event, BrokerDisconnected):
            self.links.disconnected(event)
        elif isinstance(event, JobFinished):
            if not self._offloaded.finished(event):
                self._maintenance.job_finished(event, effects)
        elif isinstance(event, Continued):
            self._continuing = False  # loads continue in _settle
            self._stopping.round_ended()
            self._runnable.next_slice()
            self.requests.serve_closed()
        elif isinstance(event, StoodStill):
            self._pause_recovery.process_paused(event)
        elif isinstance(event, Shutdown):
            self._stopping.begin(event.deadline_ms)

    def _end_sessions(self, connection_id: int) -> None:
        self.partitions.fetch_sessions.cache.close(connection_id)
        self.share.connection_closed(connection_id)

    def _settle(self, effects: list[Effect]) -> None:
        """Run all that this event has set in motion, then start the syncs it requires."""
        while True:
            self.requests.run_woken()
            self._delayed_fetches.wake_ready()
            if self._runnable.is_empty():
                break
        loading = [coordinators.load_slice() for coordinators in self._coordinators()]
        if self.partitions.create_slice() | any(loading):
            self.requests.run_woken()
            self._continue_later(effects)
        if self._runnable.has_slices() or self.transactions.markers.has_decided() or self.requests.closed.has_ready():
            self._continue_later(effects)
        self._producer_ids.prefetch(effects)
        if "hanging_watch" in self.__dict__ or self.logs.transactions.begun:
            self.hanging_watch.notice(self.now_ms, effects)
        self._broker_requests.send_queued()
        self.followers.fetch()
        self.links.take_outgoing(effects)
        self._maintenance.start_jobs(effects)
        self._offloaded.start(effects)
        self._stopping.end_serving(effects)
        self._group_commit.start_syncs(effects)
        self.directory.check()
        if self._stopping.finish(effects):
            self._continue_later(effects)

    def _continue_later(self, effects: list[Effect]) -> None:
        if not self._continuing:
            self._continuing = True
            effects.append(Continue())

    def _serve_no_more(self) -> None:
        self._pause_recovery.end()
        self.requests.mutes.end()

    def _is_idle(self) -> bool:
        decided = not (
            self._runnable.has_slices() or self.transactions.markers.has_decided() or self._works_on_backlog()
        )
        return decided and self._offloaded.is_idle() and self._group_commit.is_idle() and self._metadata_log.is_idle()

    def _works_on_backlog(self) -> bool:
        """True while this broker can itself advance undecided requests."""
        # Syncs, metadata and offloaded work are checked by the caller. Requests behind any other wait depend on other
        # clients, which may never come.
        if not self._continuing and self.tree_reads.is_idle():
            return False
        return not self.requests.closed.is_idle() or self.connections.have_backlog()

    def _apply(self, delta: ImageDelta) -> None:
        """Apply a committed change: first to the partitions, then to the coordinators that lead some of them."""
        before = self.cluster.image
        self.cluster.apply_change(delta)
        gone = self.partitions.apply_change(delta)
        deleted = {topic.name for topic in delta.deleted}
        for coordinators in self._coordinators():
            if coordinators.topic in deleted:
                coordinators.follow(None)
            elif gone:
                coordinators.partitions_deleted(gone)
        self._follow_internal_topics()
        self.share.follow(delta)
        self.transactions.settings.transaction_version = transaction_version(self.cluster.image)
        if delta.brokers:
            self.links.apply_change(delta.image)
        self._failed_brokers.follow(delta.image, before)
        self.controller.follow(delta, before)
        self._controlled_shutdown.follow()
        self.liveness.follow(delta, before)

    def _coordinators(self) -> tuple[GroupCoordinators | TransactionCoordinators | ShareStateCoordinators, ...]:
        share_states = (self.share.states,) if self.share.has_states else ()
        return self.groups, self.transactions, *share_states

    def _follow_internal_topics(self) -> None:
        for coordinators in self._coordinators():
            coordinators.follow(self.cluster.image.topics.get(coordinators.topic))

    @cached_property
    def logins(self) -> Logins:
        """Made for the first SASL connection."""
        from oncelog.node.requests.logins import LoginCredentials, Logins

        credentials = LoginCredentials(self.cluster, self._metadata_log)
        return Logins(self._first_config, credentials, self._deadlines, self._outbox)

    @cached_property
    def hanging_watch(self) -> HangingTransactionWatch:
        """Made when the first transaction begins here."""
        from oncelog.node.hanging.watch import HangingTransactionWatch

        return HangingTransactionWatch(
            self.partitions,
            self.transactions,
            self._queries,
            self._leadership,
            self.cluster,
            self.logs,
            self._deadlines,
        )

    @cached_property
    def _queries(self) -> CoordinatorQueries:
        from oncelog.node.hanging.coordinator_queries import CoordinatorQueries

        return CoordinatorQueries(self._messages, self.transactions, self.cluster, self._leadership, self._runnable)

    @cached_property
    def _log_ends(self) -> LogEnds:
        from oncelog.node.replication.log_ends import LogEnds

        return LogEnds(self.links, self.cluster, self._runnable, self.partitions.leader_log)

    @cached_property
    def _leadership(self) -> LeadershipChecker:
        """Made for the first check."""
        from oncelog.node.replication.leadership_check import LeadershipChecker

        return LeadershipChecker(
            self.links, self.tree_reads, self.cluster, self._deadlines, self._runnable, self.partitions.leader_log
        )

    def _make_requests(self) -> Requests:
        return Requests(
            Ports(self.partitions, self.groups, self.transactions, self.cluster),
            self.access,
            self._parking(),
            self._deadlines,
            self._runnable,
            self._outbox,
            lambda: self.logins,
            Throttling(self.cluster.quotas),
            self._end_sessions,
        )

    def _make_failed_brokers(self) -> FailedBrokers:
        failed = FailedBrokers(self.cluster, self._deadlines, self._runnable)
        self.links.on_refused += (failed.mark_failed, self.controller.broker_unreachable)
        self.links.on_broken.append(failed.mark_failed)
        self.links.on_frozen.append(failed.mark_failed)
        self.links.on_reached.append(failed.mark_reachable)
        return failed

    def _make_stopping(self) -> Stopping:
        return Stopping(
            self._metadata_log,
            self.controller,
            self._controlled_shutdown,
            self.logs,
            self._group_commit,
            self._deadlines,
            self._serve_no_more,
            self._is_idle,
        )

    def _make_group_commit(self) -> GroupCommit:
        return GroupCommit(
            self.cluster.broker_id,
            self._deadlines,
            self._runnable,
            self._delayed_fetches,
            commit=self.cluster.config.get("log.sync.policy") == "commit",
        )

    def _make_partitions(self) -> PartitionManager:
        return PartitionManager(
            self.logs,
            self.cluster,
            self._make_roles(),
            self._group_commit,
            self._delayed_fetches,
            self._maintenance,
            self._deadlines,
            self.directory,
        )

    def _make_roles(self) -> ReplicaRoles:
        return ReplicaRoles(
            self.cluster,
            self._group_commit,
            self._delayed_fetches,
            self._deadlines,
            self.in_sync_sets,
            self.followers,
            DamagedReplicas(self.cluster, self._metadata_log, self._deadlines, self._outbox),
        )

    def _coordinator_services(self) -> CoordinatorServices:
        return CoordinatorServices(
            int(self.cluster.config.get("offsets.commit.timeout.ms")),
            self._deadlines,
            self._runnable,
            self._group_commit,
            self.partitions,
            self.cluster,
            self._outbox,
        )

    def _make_transactions(self, services: CoordinatorServices) -> TransactionCoordinators:
        return TransactionCoordinators(
            transaction_settings(self._first_config, self.cluster.image),
            services,
            self._producer_ids,
            MarkerWriter(self._group_commit, self.groups, self._deadlines, self._broker_requests),
            self._messages,
            self.audit_trail,
        )

    def _make_share_services(self, services: CoordinatorServices) -> ShareServices:
        return ShareServices(
            services,
            self._messages,
            self._metadata_log,
            self._delayed_fetches,
            self.links,
            lambda: self.groups.share_settings,
        )

    def _replication(self) -> ReplicationServices:
        return ReplicationServices(
            self.links,
            self.cluster,
            self._deadlines,
            self._group_commit,
            self._delayed_fetches,
            self._outbox,
            self.logs.checkpoint_log_starts,
            self.directory,
        )

    def _parking(self) -> ParkingTable:
        return {
            waits.UntilDurable: self.partitions.park_until_durable,
            waits.UntilReadable: self._delayed_fetches.park,
            waits.Coordinate: self.groups.park,
            waits.Transact: self.transactions.park,
            waits.TransactEach: self.transactions.park_each,
            waits.AddToTransaction: self.transactions.park_adding,
            waits.UntilMarked: self.transactions.marker_waits.park,
            waits.UntilConfirmed: lambda task, wait: self._leadership.park(task, wait),
            waits.AskCoordinator: lambda task, wait: self._queries.park(task, wait),
            waits.FindTransactionalId: lambda task, wait: self._queries.park_search(task, wait),
            waits.AskLogEnds: lambda task, wait: self._log_ends.park(task, wait),
            waits.CommitMetadata: self._metadata_log.park,
            waits.ReadNodes: self.tree_reads.park,
            waits.UntilProducerId: self._producer_ids.park,
            waits.UntilElected: self._failed_brokers.park,
            waits.NextSlice: self._runnable.park,
            waits.Offload: self._offloaded.park,
            **self.share.parks(),
        }
