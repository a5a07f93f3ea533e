"""Outstanding markers: of each prepared transaction the partitions that do not have theirs yet.

All of it is soft: after a restart every prepared transaction sends all its markers again, and the leaders know a marker
they have. Before Transactions V2 consecutive transactions of an id share their identity, so each set of markers has a
*number*, and a late report about an earlier transaction's cannot complete a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from oncelog.base.ids import CoordinatorEpoch, TopicPartition, TransactionalId
from oncelog.core.transactions.model import MarkersToWrite
from oncelog.core.transactions.states import TransactionState
from oncelog.core.transactions.transaction import Transaction


class OutstandingMarkers:
    """The markers of one shard, under one coordinator epoch."""

    def __init__(self, coordinator_epoch: CoordinatorEpoch) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._awaited: dict[TransactionalId, dict[TopicPartition, None]] = {}
        self._numbers: dict[TransactionalId, int] = {}
        self._last_number = 0

    def to_write(self, prepared: Transaction) -> MarkersToWrite:
        """The markers to send for a decided transaction."""
        self._last_number += 1
        self._numbers[prepared.transactional_id] = self._last_number
        return MarkersToWrite(
            prepared.transactional_id,
            prepared.identity,
            self._coordinator_epoch,
            prepared.state is TransactionState.PREPARE_COMMIT,
            prepared.partitions,
            prepared.client_version,
            self._last_number,
        )

    def begin(self, prepared: Transaction) -> None:
        """Await the markers of all partitions of a transaction whose decision is applied."""
        self._awaited[prepared.transactional_id] = dict.fromkeys(prepared.partitions)

    def forget(self, transactional_id: TransactionalId) -> bool:
        """Drop the markers of a transaction that is no longer prepared; True if it had any."""
        self._numbers.pop(transactional_id, None)
        return self._awaited.pop(transactional_id, None) is not None

    def are_current(self, markers: MarkersToWrite) -> bool:
        """True if a report about ``markers`` is about the present transaction and coordinator epoch."""
        return (
            self._numbers.get(markers.transactional_id) == markers.number
            and markers.coordinator_epoch == self._coordinator_epoch
            and markers.transactional_id in self._awaited
        )

    def settle(self, transactional_id: TransactionalId, partitions: Iterable[TopicPartition]) -> bool:
        """Note that partitions need no marker any more; True if these were the last."""
        awaited = self._awaited[transactional_id]
        had_any = bool(awaited)
        for partition in partitions:
            awaited.pop(partition, None)
        return had_any and not awaited

    def awaiting_any(self, partitions: Collection[TopicPartition]) -> list[TransactionalId]:
        """The transactions that wait for one of ``partitions``."""
        return [tid for tid, awaited in self._awaited.items() if not awaited.keys().isdisjoint(partitions)]

    def awaited(self, transactional_id: TransactionalId) -> tuple[TopicPartition, ...] | None:
        """The partitions without a marker; None when the transaction is not prepared."""
        awaited = self._awaited.get(transactional_id)
        return None if awaited is None else tuple(awaited)

    def count(self) -> int:
        """The number of outstanding markers."""
        return sum(map(len, self._awaited.values()))

    def clear(self) -> None:
        """Forget everything."""
        self._awaited.clear()
        self._numbers.clear()
