"""The parts of a broker's machine, made in order and handed to each other. ``Node`` drives them.

Handlers see four of them by the ports of ``handlers.broker.ports``: ``partitions``, ``groups``, ``transactions`` and
``cluster``. What only some brokers need is made, and its module loaded, for the first who asks for it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import BrokerId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.image.cluster_image import ClusterImage, ImageDelta
from oncelog.handlers.broker.context import Authoriser
from oncelog.handlers.broker.ports import Ports
from oncelog.handlers.broker.waits import (
    AddToTransaction,
    AskCoordinator,
    CommitMetadata,
    Coordinate,
    FindTransactionalId,
    NextSlice,
    Offload,
    ReadNodes,
    Transact,
    TransactEach,
    UntilConfirmed,
    UntilDurable,
    UntilElected,
    UntilMarked,
    UntilProducerId,
    UntilReadable,
)
from oncelog.node.access.audit_trail import AuditTrail
from oncelog.node.access.authoriser import access_control
from oncelog.node.brokers.broker_links import BrokerLinks
from oncelog.node.brokers.messages import BrokerMessages
from oncelog.node.brokers.requests.requests import BrokerRequests
from oncelog.node.cluster.lost_brokers import LostBrokers
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.cluster.metadata_log import MetadataLog
from oncelog.node.cluster.tree_reads import TreeReads
from oncelog.node.controller.controlled_shutdown import ControlledShutdown
from oncelog.node.controller.duties import ControllerDuties
from oncelog.node.coordinators.group_coordinators import GroupCoordinators
from oncelog.node.coordinators.markers import MarkerWriter
from oncelog.node.coordinators.producer_ids import ProducerIds
from oncelog.node.coordinators.runner import CoordinatorServices
from oncelog.node.coordinators.settings import group_settings, transaction_settings
from oncelog.node.coordinators.transaction_coordinators import TransactionCoordinators
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import Outbox
from oncelog.node.kernel.offload import OffloadedWork
from oncelog.node.kernel.tasks import Runnable
from oncelog.node.logs.delayed_fetches import DelayedFetches
from oncelog.node.logs.directory_health import DirectoryHealth
from oncelog.node.logs.group_commit import GroupCommit
from oncelog.node.logs.high_watermark import HighWatermarks
from oncelog.node.logs.maintenance import Maintenance
from oncelog.node.replication.damaged_replicas import DamagedReplicas
from oncelog.node.replication.followers import Followers
from oncelog.node.replication.in_sync_sets import InSyncSets
from oncelog.node.replication.partitions import PartitionManager
from oncelog.node.replication.roles import ReplicaRoles
from oncelog.node.replication.services import ReplicationServices
from oncelog.node.requests.connections import Connection
from oncelog.node.requests.dispatch import ParkingTable, Requests
from oncelog.node.requests.standstill import Standstill
from oncelog.node.requests.throttling import Throttling
from oncelog.ports import Entropy

if TYPE_CHECKING:
    from oncelog.node.hanging.id_search import TransactionalIdSearch
    from oncelog.node.hanging.questions import CoordinatorQuestions
    from oncelog.node.hanging.watch import HangingTransactionWatch
    from oncelog.node.replication.confirmation import LeadershipConfirmation
    from oncelog.node.requests.logins import Logins
    from oncelog.storage.log_directory import LogDirectory

COMMIT: Final = "commit"


class NodeParts:
    """The parts of one broker, and what they know of each other."""

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
        """``authoriser``: the one that the configuration asks for, unless a test brings another."""
        self.logs = logs
        self._connections: dict[int, Connection] = {}
        self._continuing = False
        self._rounds_before_stop = 0
        """Rounds of the loop in which requests that were read before :class:`StopListening` may still come."""
        self._stopping = False
        self._stop_by_ms: int | None = None
        self._shutting_down = False
        self._outbox = Outbox()
        self._deadlines = Deadlines()
        self._runnable = Runnable()
        self._offloaded = OffloadedWork(self._runnable)
        self._tree_reads = TreeReads(self._runnable, self._outbox)
        self.cluster = Metadata(broker_id, image, position, config, entropy)
        self._metadata_log = MetadataLog(self.cluster, self._outbox, self._runnable, self._deadlines, self._apply)
        self.controller = ControllerDuties(self.cluster, self._metadata_log, self._deadlines, self._outbox)
        self._controlled_shutdown = ControlledShutdown(self.cluster, self._metadata_log, self._deadlines)
        config = self._first_config = self.cluster.config
        self._delayed_fetches = DelayedFetches(self._deadlines, self._runnable)
        self._group_commit = self._make_group_commit()
        self._maintenance = Maintenance(logs, self.cluster, self._delayed_fetches, self._deadlines, self._group_commit)
        self.links = BrokerLinks(self.cluster, self._deadlines)
        self._lost_brokers = self._make_lost_brokers()
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
        self.transactions = TransactionCoordinators(
            transaction_settings(config, image),
            services,
            self._producer_ids,
            MarkerWriter(self._group_commit, self.groups, self._deadlines, self._broker_requests),
            self._messages,
            self.audit_trail,
        )
        self._hanging_watch: HangingTransactionWatch | None = None
        self.access = access_control(self.cluster, authoriser, self._outbox, self._deadlines)
        self.requests = self._make_requests()
        self._standstill = Standstill(self.cluster, self._metadata_log, self._deadlines, self.requests, self._outbox)

    def _apply(self, delta: ImageDelta) -> None:
        """Follow a committed change of the cluster."""
        raise NotImplementedError

    @cached_property
    def logins(self) -> Logins:
        """The logins of clients; made for the first that has to say who it is, so that others do not load it."""
        from oncelog.node.requests.login_credentials import LoginCredentials
        from oncelog.node.requests.logins import Logins

        credentials = LoginCredentials(self.cluster, self._metadata_log)
        return Logins(self._first_config, credentials, self._deadlines, self._outbox)

    @property
    def hanging_watch(self) -> HangingTransactionWatch:
        """The search for hanging transactions; made when the first transaction begins here."""
        if self._hanging_watch is None:
            from oncelog.node.hanging.watch import HangingTransactionWatch

            self._hanging_watch = HangingTransactionWatch(
                self.partitions,
                self.transactions,
                self._questions,
                self._id_search,
                self._confirmation,
                self.cluster,
                self.logs,
                self._deadlines,
            )
        return self._hanging_watch

    @cached_property
    def _questions(self) -> CoordinatorQuestions:
        """Questions about transactions to their coordinators; made for the first."""
        from oncelog.node.hanging.questions import CoordinatorQuestions

        return CoordinatorQuestions(self._messages, self.transactions, self.cluster, self._confirmation, self._runnable)

    @cached_property
    def _id_search(self) -> TransactionalIdSearch:
        """The search for ids of producers; made for the first producer without one."""
        from oncelog.node.hanging.id_search import TransactionalIdSearch

        return TransactionalIdSearch(self._messages, self.transactions, self.cluster, self._runnable)

    @cached_property
    def _confirmation(self) -> LeadershipConfirmation:
        """The questions whether this broker leads still; made for the first one, as the logins are."""
        from oncelog.node.replication.confirmation import LeadershipConfirmation

        return LeadershipConfirmation(
            self.links,
            self._tree_reads,
            self.cluster,
            self._deadlines,
            self._runnable,
            self.partitions.leader_log,
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
        )

    def _make_lost_brokers(self) -> LostBrokers:
        lost = LostBrokers(self.cluster, self._deadlines, self._runnable)
        self.links.on_refused += (lost.lose, self.controller.broker_unreachable)
        self.links.on_broken.append(lost.lose)
        self.links.on_reached.append(lost.reach)
        return lost

    def _make_group_commit(self) -> GroupCommit:
        return GroupCommit(
            self._deadlines,
            self._runnable,
            self._delayed_fetches,
            HighWatermarks(self.cluster.broker_id),
            commit=self.cluster.config.get("log.sync.policy") == COMMIT,
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
        timeout_ms = int(self.cluster.config.get("offsets.commit.timeout.ms"))
        return CoordinatorServices(
            timeout_ms,
            self._deadlines,
            self._runnable,
            self._group_commit,
            self.partitions,
            self.cluster,
            self._outbox,
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
        """The part of the node that keeps a waiting handler, by the type of its wait."""
        return {
            UntilDurable: self.partitions.park_until_durable,
            UntilReadable: self._delayed_fetches.park,
            Coordinate: self.groups.park,
            Transact: self.transactions.park,
            TransactEach: self.transactions.park_each,
            AddToTransaction: self.transactions.park_adding,
            UntilMarked: self.transactions.marker_waits.park,
            UntilConfirmed: lambda task, wait: self._confirmation.park(task, wait),
            AskCoordinator: lambda task, wait: self._questions.park(task, wait),
            FindTransactionalId: lambda task, wait: self._id_search.park(task, wait),
            CommitMetadata: self._metadata_log.park,
            ReadNodes: self._tree_reads.park,
            UntilProducerId: self._producer_ids.park,
            UntilElected: self._lost_brokers.park,
            NextSlice: self._runnable.park,
            Offload: self._offloaded.park,
        }
