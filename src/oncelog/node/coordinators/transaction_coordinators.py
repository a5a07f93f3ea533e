"""This broker's transaction coordinators: shards of ``__transaction_state``.

Once a decision is durable, EndTxn is answered, since the outcome cannot change, and markers are sent to the
transaction's partitions. Each durable marker is reported to the shard, which completes the transaction after the last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import (
    NO_BROKER,
    TRANSACTION_STATE,
    BrokerId,
    CoordinatorEpoch,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
    TransactionalId,
)
from oncelog.core.transactions.settings import SETTING_KEYS, TransactionSettings
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.handlers.broker.waits import Transact
from oncelog.node.access.audit_trail import AuditTrail
from oncelog.node.brokers.messages import (
    UNREACHABLE,
    AddPartitions,
    BrokerMessages,
    Cancel,
    OnAnswer,
    WriteMarker,
    nothing_to_cancel,
)
from oncelog.node.coordinators.hosted_shards import HostedShard
from oncelog.node.coordinators.marker_waits import MarkerWaits
from oncelog.node.coordinators.markers import MarkerSender, MarkerWriter
from oncelog.node.coordinators.producer_ids import ProducerIds
from oncelog.node.coordinators.runner import Coordinators, CoordinatorServices
from oncelog.storage.errors import AppendRefused

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.core.controller.image.cluster_image import ClusterImage
    from oncelog.core.controller.image.model import TopicImage
    from oncelog.core.transactions.model import AddRequest, MarkersToWrite, TransactionDecision
    from oncelog.core.transactions.shard import TransactionShard
    from oncelog.handlers.broker.audit import AuditRecord
    from oncelog.handlers.broker.ports import LeaderLog, Marker
    from oncelog.handlers.broker.waits import AddToTransaction, TransactEach
    from oncelog.node.coordinators.log_batches import ApplyBatch
    from oncelog.node.kernel.tasks import Task


TRANSACTION_VERSION: Final = "transaction.version"


def transaction_settings(config: BrokerConfig, image: ClusterImage) -> TransactionSettings:
    """Settings by the names that the shard uses, with the finalized ``transaction.version``."""
    values = {field: config.get(key) for field, key in SETTING_KEYS.items()}
    return TransactionSettings(**values, transaction_version=transaction_version(image))


def transaction_version(image: ClusterImage) -> int:
    """The finalized level; 0 if the feature is not finalized."""
    return image.features.get(TRANSACTION_VERSION, 0)


class PendingIds:
    """The end of each id's last record: an answer about an id waits only for that id's own records."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        # Not a dict: that keeps the slots of removed keys, so finding its first key takes linear time.
        self._ends: OrderedDict[TransactionalId, Offset] = OrderedDict()

    def appended(self, ids: Iterable[TransactionalId], end: Offset, high_watermark: Offset) -> None:
        for transactional_id in ids:
            self._ends[transactional_id] = end
            self._ends.move_to_end(transactional_id)
        while self._ends and self._ends[oldest := next(iter(self._ends))] <= high_watermark:
            del self._ends[oldest]

    def end_of(self, transactional_id: TransactionalId) -> Offset | None:
        """The offset after the id's last record; None if that is durable."""
        return self._ends.get(transactional_id)


class TransactionCoordinators(Coordinators["TransactionShard", "TransactionDecision"]):
    """Implements ``handlers.broker.ports.Transactions``; see ``runner``."""

    topic = TRANSACTION_STATE
    subject = "transactional id"
    remedy = "Let its transactions have fewer partitions."

    def __init__(
        self,
        settings: TransactionSettings,
        services: CoordinatorServices,
        producer_ids: ProducerIds,
        marker_writer: MarkerWriter,
        messages: BrokerMessages,
        audit_trail: AuditTrail,
    ) -> None:
        super().__init__(services)
        self.settings = settings
        self.verification_failures = 0
        """Partitions of transactional writes that were refused because their coordinator did not know of them."""
        self.markers = MarkerSender(messages, services.metadata, services.deadlines, self._marker_written)
        self.marker_waits = MarkerWaits(
            messages, services.metadata, services.deadlines, services.runnable, self.shards, self.is_loading
        )
        self._audit_trail = audit_trail
        self._messages = messages
        self._metadata = services.metadata
        self._producer_ids = producer_ids
        self._marker_writer = marker_writer
        # Ids whose last decision is not durable yet, by coordinator partition.
        self._pending_ids: dict[int, PendingIds] = {}
        messages.set_receiver(WriteMarker, self._receive_marker)
        messages.set_receiver(AddPartitions, self._receive_partitions)

    def _new_shard(self, partition: int, leader_epoch: LeaderEpoch) -> TransactionShard:
        from oncelog.core.transactions.shard import TransactionShard

        self._pending_ids[partition] = PendingIds()
        return TransactionShard(partition, CoordinatorEpoch(leader_epoch), self.settings)

    def _decide(self, shard: TransactionShard, wait: Transact, token: int, now_ms: int) -> TransactionDecision:
        return shard.decide(wait.request, token, now_ms, producer_id=wait.producer_id)

    def _load_wait_ms(self) -> int:
        # Clients that are refused during a load sleep longer than most loads take.
        return self.settings.concurrent_wait_ms

    def follow(self, topic: TopicImage | None) -> None:
        super().follow(topic)
        # Requests that wait for markers may have waited for a shard that moved away.
        self.marker_waits.shards_changed()

    def load_slice(self) -> bool:
        if not self._loading:
            return False
        has_more = super().load_slice()
        # Requests that wait for markers may have waited for this load.
        return self.marker_waits.shards_changed() or has_more

    def _replayer(self, shard: TransactionShard) -> ApplyBatch:
        from oncelog.node.coordinators.log_batches import transaction_replayer

        return transaction_replayer(shard)

    def _write(self, hosted: HostedShard[TransactionShard], decision: TransactionDecision, now_ms: int) -> None:
        leader = self._partitions.leader_log(hosted.partition)
        if not isinstance(leader, ErrorCode) and not leader.replicas.has_enough_in_sync():
            # An appended decision stands although the client is refused: each retry of InitProducerId would raise the
            # epoch again. Apache Kafka's transaction coordinator appends with acks=all, its other coordinators do not.
            raise AppendRefused(ErrorCode.NOT_ENOUGH_REPLICAS, "fewer replicas are in sync than min.insync.replicas")
        super()._write(hosted, decision, now_ms)
        log = self._log(hosted)
        pending_ids = self._pending_ids[hosted.shard.partition]
        pending_ids.appended(decision.transitions, log.log_end_offset, log.high_watermark)

    def _visible_end_offset(
        self, hosted: HostedShard[TransactionShard], decision: TransactionDecision
    ) -> Offset | None:
        return None if decision.shows is None else self._pending_ids[hosted.shard.partition].end_of(decision.shows)

    def _follow_up(self, hosted: HostedShard[TransactionShard], decision: TransactionDecision, now_ms: int) -> None:
        if decision.markers:
            log = self._log(hosted)
            send = partial(self.markers.add, hosted, decision.markers)
            self._group_commit.when_durable(log, log.log_end_offset, send)
        if decision.needs_producer_id is not None:
            self._producer_ids.when_available(partial(self._abort_timed_out, hosted, decision.needs_producer_id))

    def _abort_timed_out(
        self, hosted: HostedShard[TransactionShard], name: TransactionalId, producer_id: ProducerId | None
    ) -> None:
        if producer_id is not None and hosted.shard.is_loaded:
            now_ms = self._deadlines.now_ms
            self._carry_out(hosted, hosted.shard.abort_timed_out(name, producer_id, now_ms), None, now_ms)

        # handlers.broker.ports.Transactions

    def take_part(self, request: AddRequest) -> bool:
        hosted = self._find(request.transactional_id)
        if hosted is None or not hosted.shard.is_loaded:
            return False
        pending_end = self._pending_ids[hosted.shard.partition].end_of(request.transactional_id)
        if pending_end is not None and self._log(hosted).high_watermark < pending_end:
            return False
        return hosted.shard.take_part(request)

    def offsets_until_durable(self, ids: Iterable[TransactionalId]) -> Mapping[TopicPartition, Offset]:
        offsets: dict[TopicPartition, Offset] = {}
        for transactional_id in ids:
            hosted = self._find(transactional_id)
            if hosted is None or not hosted.shard.is_loaded:
                continue
            end = self._pending_ids[hosted.shard.partition].end_of(transactional_id)
            if end is not None and self._log(hosted).high_watermark < end:
                offsets[hosted.partition] = max(end, offsets.get(hosted.partition, end))
        return offsets

    def write_marker(self, leader_log: LeaderLog, marker: Marker) -> Offset:
        return self._marker_writer.write(leader_log, marker)

    def verification_failed(self, partition_count: int) -> None:
        self.verification_failures += partition_count

    def audit(self, record: AuditRecord) -> None:
        self._audit_trail.add(record)

    def park(self, task: Task, wait: Transact) -> None:
        self.decide(task, wait.request.transactional_id, wait)

    def park_each(self, task: Task, wait: TransactEach) -> None:
        self.decide_each(task, ((transact.request.transactional_id, transact) for transact in wait.requests))

    def park_adding(self, task: Task, wait: AddToTransaction) -> None:
        """Send the request to the transaction's coordinator, on whichever broker."""
        coordinator = self.coordinator_of(wait.request.transactional_id)
        if isinstance(coordinator, ErrorCode):
            self._runnable.wake(task, error=CoordinatorRefusal(coordinator))
            return
        task.forget = self._messages.send(coordinator, AddPartitions(wait.request), partial(self._added, task))

    def coordinator_of(self, transactional_id: TransactionalId) -> BrokerId | ErrorCode:
        """The broker that coordinates an id; NOT_COORDINATOR if there are no coordinators yet,
        COORDINATOR_NOT_AVAILABLE if the id's partition has no leader."""
        topic = self._metadata.image.topics.get(TRANSACTION_STATE)
        if topic is None:
            return ErrorCode.NOT_COORDINATOR
        partition = topic.partitions[coordinator_partition(transactional_id, len(topic.partitions))]
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if partition.leader == NO_BROKER else partition.leader

    def _added(self, task: Task, answer: object) -> None:
        self._resume(task, CoordinatorRefusal(ErrorCode.NETWORK_EXCEPTION) if answer is UNREACHABLE else answer)

        # Messages from brokers, including this one

    def _receive_marker(self, message: WriteMarker, on_answer: OnAnswer) -> Cancel:
        """Write a marker to a partition led here; any error means that the partition is not marked."""
        leader = self._partitions.leader_log(message.partition)
        if isinstance(leader, ErrorCode):
            on_answer(leader)
            return nothing_to_cancel
        try:
            offsets_until_durable = self._marker_writer.write(leader, message.marker)
        except AppendRefused as refused:
            on_answer(refused.error_code)
        except OSError:
            on_answer(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            on_lost = partial(on_answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._group_commit.when_durable(
                leader.log, offsets_until_durable, partial(on_answer, ErrorCode.NONE), on_lost
            )
        return nothing_to_cancel

    def _receive_partitions(self, message: AddPartitions, on_answer: OnAnswer) -> Cancel:
        """Add or verify partitions of a transaction that is coordinated here."""
        return self.ask(message.request.transactional_id, Transact(message.request), on_answer)

    def _marker_written(
        self, hosted: HostedShard[TransactionShard], markers: MarkersToWrite, partition: TopicPartition
    ) -> None:
        if hosted.shard.is_loaded:
            now_ms = self._deadlines.now_ms
            decision = hosted.shard.markers_written(markers, [partition], now_ms)
            if decision.records:  # it was the last marker
                self._carry_out(hosted, decision, None, now_ms)
            self.marker_waits.marked(partition, markers.identity.producer_id)
