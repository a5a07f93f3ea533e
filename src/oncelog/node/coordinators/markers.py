"""Markers: the control batches that end a transaction on a partition that this broker leads (KIP-98, KIP-890)."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, NO_OFFSET, LeaderEpoch, Offset
from oncelog.node.coordinators.group_coordinators import GroupCoordinators
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.logs.group_commit import GroupCommit
from oncelog.storage.errors import AppendRefused

if TYPE_CHECKING:
    from oncelog.handlers.broker.leadership import LeaderLog
    from oncelog.handlers.broker.ports import Marker
    from oncelog.node.brokers.requests.requests import BrokerRequests
    from oncelog.storage.log.partition_log import PartitionLog


class MarkerWriter:
    """Writes markers to led partitions, whoever asks: a coordinator here or elsewhere, or an administrator."""

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
        """Append ``marker``; the high watermark at which it is durable. Offsets committed in the transaction become
        visible or are dropped. Raises AppendRefused or OSError."""
        partition, log = leader_log.partition, leader_log.log
        end = append_marker(log, marker, leader_log.leader_epoch, self._deadlines.now_ms)
        self._group_commit.appended(log)
        if partition.topic == CONSUMER_OFFSETS:
            self._groups.transaction_ended(partition.partition, marker.producer_id, committed=marker.committed)
        if self._broker_requests.is_marker_awaited(partition, marker.producer_id):
            told = partial(self._broker_requests.marked, partition, marker.producer_id)
            self._group_commit.when_durable(log, end, told)
        return end


def append_marker(log: PartitionLog, marker: Marker, leader_epoch: LeaderEpoch, now_ms: int) -> Offset:
    """Append ``marker``; the high watermark at which it is durable. Raises AppendRefused or OSError."""
    # Loaded by the first append, not by the start of a broker.
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
    """The batch, the same for all partitions of a transaction. What builds it is imported for the first."""
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
    """An administrator names the transaction by where it starts: nothing else may be ended by mistake."""
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
