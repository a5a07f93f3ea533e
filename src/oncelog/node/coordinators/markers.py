"""Markers: the control batches that end a transaction on its partitions (KIP-98, KIP-890); written here, sent to
others.

The sender keeps a decided transaction's markers until every partition has its own. They are sent with the node's next
event after the decision is durable: EndTxn is answered first, but the next request finds them written. A partition
without a leader, or refused for now, is retried. A deleted one needs none: its records cannot be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, NO_BROKER, NO_OFFSET, LeaderEpoch, Offset, TopicPartition
from oncelog.handlers.broker.ports import Marker
from oncelog.node.brokers.messages import BrokerMessages, WriteMarker
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.coordinators.group_coordinators import GroupCoordinators
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.logs.group_commit import GroupCommit
from oncelog.storage.errors import AppendRefused

if TYPE_CHECKING:
    from oncelog.core.transactions.model import MarkersToWrite
    from oncelog.core.transactions.shard import TransactionShard
    from oncelog.handlers.broker.ports import LeaderLog
    from oncelog.node.brokers.requests.requests import BrokerRequests
    from oncelog.node.coordinators.hosted_shards import HostedShard
    from oncelog.storage.log.partition_log import PartitionLog

RETRY_MS: Final = 100

Written = Callable[["HostedShard[TransactionShard]", "MarkersToWrite", TopicPartition], None]


class MarkerToSend(NamedTuple):
    hosted: HostedShard[TransactionShard]
    markers: MarkersToWrite
    message: WriteMarker

    @property
    def partition(self) -> TopicPartition:
        return self.message.partition


class MarkerSender:
    """Sends decided markers. ``written(hosted, markers, partition)`` is called for each that is written or not
    needed."""

    def __init__(self, messages: BrokerMessages, metadata: Metadata, deadlines: Deadlines, written: Written) -> None:
        self._messages = messages
        self._metadata = metadata
        self._deadlines = deadlines
        self._written = written
        self._decided: deque[tuple[HostedShard[TransactionShard], list[MarkersToWrite]]] = deque()
        self.retrying = 0
        """Markers to be retried: their log refused them, or their partition has no leader."""

    def add(self, hosted: HostedShard[TransactionShard], markers: list[MarkersToWrite]) -> None:
        """Queue the markers of a durable decision for the next event."""
        self._decided.append((hosted, markers))

    def has_decided(self) -> bool:
        return bool(self._decided)

    def send_decided(self) -> None:
        """Send the markers queued before this event: the answers to EndTxn are on their way."""
        for _ in range(len(self._decided)):
            hosted, markers = self._decided.popleft()
            for transaction in markers:
                marker = _marker(transaction)
                for partition in transaction.partitions:
                    self._send(MarkerToSend(hosted, transaction, WriteMarker(partition, marker)))

    def _send(self, sending: MarkerToSend) -> None:
        if not sending.hosted.is_led:
            return
        image = self._metadata.image.partition(sending.partition)
        if image is None:
            self._done(sending)
        elif image.leader == NO_BROKER:
            self._retry(sending)
        else:
            self._messages.send(image.leader, sending.message, partial(self._answered, sending))

    def _answered(self, sending: MarkerToSend, answer: object) -> None:
        # INVALID_PRODUCER_EPOCH: the partition has seen a later epoch, so the transaction has ended there already, for
        # instance by an administrator.
        if answer is ErrorCode.NONE or answer is ErrorCode.INVALID_PRODUCER_EPOCH:
            self._done(sending)
        # A later coordinator epoch sends its own markers.
        elif answer is not ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._retry(sending)

    def _done(self, sending: MarkerToSend) -> None:
        if sending.hosted.is_led:
            self._written(sending.hosted, sending.markers, sending.partition)

    def _retry(self, sending: MarkerToSend) -> None:
        self.retrying += 1
        self._deadlines.at(self._deadlines.now_ms + RETRY_MS, partial(self._try_again, sending))

    def _try_again(self, sending: MarkerToSend, _now_ms: int) -> None:
        self.retrying -= 1
        self._send(sending)


def _marker(markers: MarkersToWrite) -> Marker:
    return Marker(
        producer_id=markers.identity.producer_id,
        producer_epoch=markers.identity.producer_epoch,
        coordinator_epoch=markers.coordinator_epoch,
        committed=markers.committed,
        transaction_version=markers.client_version,
    )


class MarkerWriter:
    """Writes markers to led partitions, for coordinators here or elsewhere and for administrators."""

    def __init__(
        self,
        group_commit: GroupCommit,
        groups: GroupCoordinators,
        deadlines: Deadlines,
        broker_requests: BrokerRequests,
    ) -> None:
        self._group_commit = group_commit
        self._groups = groups
        self._deadlines = deadlines
        self._broker_requests = broker_requests

    def write(self, leader_log: LeaderLog, marker: Marker) -> Offset:
        """Append ``marker``; returns the high watermark at which it is durable. Offsets of the transaction become
        visible or are dropped. Raises AppendRefused or OSError.
        """
        partition, log = leader_log.partition, leader_log.log
        end = append_marker(log, marker, leader_log.leader_epoch, self._deadlines.now_ms)
        self._group_commit.appended(log)
        if partition.topic == CONSUMER_OFFSETS:
            self._groups.transaction_ended(partition.partition, marker.producer_id, committed=marker.committed)
        if self._broker_requests.is_marker_awaited(partition, marker.producer_id):
            on_durable = partial(self._broker_requests.marked, partition, marker.producer_id)
            self._group_commit.when_durable(log, end, on_durable)
        return end


def append_marker(log: PartitionLog, marker: Marker, leader_epoch: LeaderEpoch, now_ms: int) -> Offset:
    # Imported by the first append instead of at start-up.
    from oncelog.storage.log.append import append_batch
    from oncelog.storage.transactions.producer_updates import Marker as RecordedMarker

    if marker.start_offset != NO_OFFSET:
        _check_administrators(log, marker)
    batch = _encoded(marker.producer_id, marker.producer_epoch, marker.committed, marker.coordinator_epoch, now_ms)
    appended = append_batch(
        log,
        memoryview(bytearray(batch)),  # a copy: the log writes the offset into it
        now_ms=now_ms,
        leader_epoch=leader_epoch,
        internal=True,
        marker=RecordedMarker(marker.committed, marker.coordinator_epoch, now_ms),
        transaction_version=marker.transaction_version,
    )
    return Offset(appended.last_offset + 1)


@lru_cache(maxsize=16)
def _encoded(producer_id: int, producer_epoch: int, committed: bool, coordinator_epoch: int, now_ms: int) -> bytes:
    # Cached: the batch is the same for all partitions of a transaction.
    from oncelog.records.builder import end_transaction_marker

    return bytes(
        end_transaction_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
    )


def _check_administrators(log: PartitionLog, marker: Marker) -> None:
    # An administrator identifies the transaction by its first offset, so that no other one is ended by mistake.
    entry = log.producers.entries.get(marker.producer_id)
    if entry is None or entry.transaction_first_offset != marker.start_offset:
        raise AppendRefused(
            ErrorCode.INVALID_TXN_STATE,
            f"No transaction of producer {marker.producer_id} begins at {marker.start_offset} in {log.partition}",
        )
    if entry.epoch != marker.producer_epoch:
        raise AppendRefused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Producer {marker.producer_id} has epoch {entry.epoch} in {log.partition}, not {marker.producer_epoch}",
        )
