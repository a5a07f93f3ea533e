"""The transaction coordinators of this broker: shards of ``__transaction_state``.

Beyond what all coordinators do: once a decision is durable its markers are written to the partitions of the
transaction, and what has its marker, durably, is reported back to the shard, which then completes the transaction.
EndTxn is answered before that, when the decision itself is durable: from then on the outcome cannot change. The markers
are written with the node's next event, when the answer is on its way: the client need not wait for them, and whoever
asks next finds them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CoordinatorEpoch, LeaderEpoch, Offset, ProducerId, TopicPartition, TransactionalId
from oncelog.core.transactions.model import AddRequest, Decision, MarkersToWrite, TransactionSettings
from oncelog.core.transactions.shard import TransactionShard
from oncelog.handlers.support.context import Broker, Marker
from oncelog.node.coordinators.hosted_shard import HostedShard
from oncelog.node.coordinators.loading import ApplyBatch, transaction_replayer
from oncelog.node.coordinators.producer_ids import ProducerIds
from oncelog.node.coordinators.runner import Coordinators
from oncelog.node.deadlines import Deadlines
from oncelog.node.partitions.group_commit import GroupCommit
from oncelog.node.requests.tasks import Runnable
from oncelog.storage.errors import AppendRefused

MARKER_RETRY_MS: Final = 100


class PendingIds:
    """Whose last record may not be durable yet, and where it ends, in order: an answer about an id waits for its own
    records, not for those of others."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        # Not a dict: the first of one whose first thousands were removed has to be looked for behind all of them.
        self._ends: OrderedDict[TransactionalId, Offset] = OrderedDict()

    def appended(self, ids: Iterable[TransactionalId], end: Offset, high_watermark: Offset) -> None:
        """Records of ``ids`` were appended, the last before ``end``."""
        for name in ids:
            self._ends[name] = end
            self._ends.move_to_end(name)
        while self._ends and self._ends[oldest := next(iter(self._ends))] <= high_watermark:
            del self._ends[oldest]

    def end_of(self, name: TransactionalId) -> Offset | None:
        """The offset after its last record, None where that is durable."""
        return self._ends.get(name)


class TransactionCoordinators(Coordinators[TransactionShard]):
    """See the module and ``coordinators``."""

    def __init__(
        self,
        settings: TransactionSettings,
        append_timeout_ms: int,
        deadlines: Deadlines,
        runnable: Runnable,
        durability: GroupCommit,
    ) -> None:
        super().__init__(append_timeout_ms, deadlines, runnable, durability)
        self.settings = settings
        self._broker: Broker
        self._producer_ids: ProducerIds
        self.retrying = 0
        """Markers that their log refused and that are tried again."""
        self._decided: deque[tuple[HostedShard[TransactionShard], list[MarkersToWrite]]] = deque()
        """What is durably decided and has no markers yet."""
        self._pending_ids: dict[int, PendingIds] = {}
        """By partition."""

    def bind(self, broker: Broker, producer_ids: ProducerIds) -> None:
        """Where markers are written, and where producer ids come from."""
        self._broker = broker
        self._producer_ids = producer_ids

    def _new_shard(self, partition: int, leader_epoch: LeaderEpoch) -> TransactionShard:
        self._pending_ids[partition] = PendingIds()
        return TransactionShard(partition, CoordinatorEpoch(leader_epoch), self.settings)

    def _load_wait_ms(self) -> int:
        """Load, don't refuse: clients of a coordinator that is loading sleep longer than most loads take."""
        return self.settings.concurrent_wait_ms

    def _replayer(self, shard: TransactionShard) -> ApplyBatch:
        return transaction_replayer(shard)

    def _write(self, led: HostedShard[TransactionShard], decision: Decision, now_ms: int) -> None:
        super()._write(led, decision, now_ms)
        log = led.log
        self._pending_ids[led.shard.partition].appended(decision.transitions, log.log_end_offset, log.high_watermark)

    def _shown_upto(self, led: HostedShard[TransactionShard], decision: Decision) -> Offset | None:
        return None if decision.shows is None else self._pending_ids[led.shard.partition].end_of(decision.shows)

    def _follow_up(self, led: HostedShard[TransactionShard], decision: Decision, now_ms: int) -> None:
        if decision.markers:
            markers = decision.markers
            self._durability.when_durable(led.log, led.log.log_end_offset, lambda: self._decided.append((led, markers)))
        if decision.needs_producer_id is not None:
            name = decision.needs_producer_id
            self._producer_ids.when_available(lambda taken: self._abort_timed_out(led, name, taken))

    def _abort_timed_out(
        self, led: HostedShard[TransactionShard], name: TransactionalId, producer_id: ProducerId | None
    ) -> None:
        if producer_id is not None and led.shard.is_loaded:
            now_ms = self._now_ms()
            self._carry_out(led, led.shard.abort_timed_out(name, producer_id, now_ms), None, now_ms)

    def take_part(self, request: AddRequest) -> bool:
        """Whether partitions take part in a transaction, by what is durable; False also where that cannot be said at
        once."""
        led = self._find(request.transactional_id)
        if led is None or not led.shard.is_loaded:
            return False
        pending_end = self._pending_ids[led.shard.partition].end_of(request.transactional_id)
        if pending_end is not None and led.log.high_watermark < pending_end:
            return False
        return led.shard.take_part(request)

    def durable_at(self, ids: Iterable[TransactionalId]) -> Mapping[TopicPartition, Offset]:
        """The high watermarks at which what is said of the ids is durable, where they are not reached."""
        found: dict[TopicPartition, Offset] = {}
        for name in ids:
            led = self._find(name)
            if led is None or not led.shard.is_loaded:
                continue
            end = self._pending_ids[led.shard.partition].end_of(name)
            if end is not None and led.log.high_watermark < end:
                found[led.log.partition] = max(end, found.get(led.log.partition, end))
        return found

    # Markers

    def has_decided(self) -> bool:
        """Whether markers are to be written with the next event."""
        return bool(self._decided)

    def write_markers(self) -> None:
        """The answers are on their way: write the markers of what was decided before this event."""
        for _ in range(len(self._decided)):
            led, markers = self._decided.popleft()
            for each in markers:
                for partition in each.partitions:
                    self._write_marker(led, each, partition)

    def _write_marker(
        self, led: HostedShard[TransactionShard], markers: MarkersToWrite, partition: TopicPartition
    ) -> None:
        """Write one marker and report it when it is durable; again later if the log refuses.

        A partition that has seen a later epoch of the producer needs no marker: its transaction there has been ended,
        by an administrator for one. A later coordinator epoch has its own markers."""
        if not led.shard.is_loaded:
            return
        log = self._broker.log(partition)
        if log is None:  # deleted: nobody reads what was written there
            self._written(led, markers, partition)
            return
        marker = Marker(
            producer_id=markers.identity.producer_id,
            producer_epoch=markers.identity.producer_epoch,
            coordinator_epoch=markers.coordinator_epoch,
            committed=markers.committed,
            transaction_version=markers.client_version,
        )
        try:
            durable_at: Offset = self._broker.write_marker(partition, marker)
        except AppendRefused as refusal:
            if refusal.error_code is ErrorCode.INVALID_PRODUCER_EPOCH:
                self._written(led, markers, partition)
            elif refusal.error_code is not ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                self._retry(led, markers, partition)
        except OSError:
            self._retry(led, markers, partition)
        else:
            self._durability.when_durable(log, durable_at, lambda: self._written(led, markers, partition))

    def _retry(self, led: HostedShard[TransactionShard], markers: MarkersToWrite, partition: TopicPartition) -> None:
        self.retrying += 1
        self._deadlines.at(self._now_ms() + MARKER_RETRY_MS, lambda _now: self._try_again(led, markers, partition))

    def _try_again(
        self, led: HostedShard[TransactionShard], markers: MarkersToWrite, partition: TopicPartition
    ) -> None:
        self.retrying -= 1
        self._write_marker(led, markers, partition)

    def _written(self, led: HostedShard[TransactionShard], markers: MarkersToWrite, partition: TopicPartition) -> None:
        if led.shard.is_loaded:
            now_ms = self._now_ms()
            self._carry_out(led, led.shard.markers_written(markers, [partition], now_ms), None, now_ms)

    def _now_ms(self) -> int:
        return self._deadlines.now_ms
