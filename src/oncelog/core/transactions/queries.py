"""Queries about the transactions of a shard that decide nothing: descriptions, listings, figures.

The rule: nothing here changes anything, and a query over every id does not unpack them (``store``), because there may
be a million. ``shard`` inherits these queries and adds the decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from oncelog.base.ids import NO_PRODUCER_EPOCH, CoordinatorEpoch, ProducerId, TopicPartition, TransactionalId
from oncelog.core.transactions.markers import OutstandingMarkers
from oncelog.core.transactions.model import TransactionDescription, TransactionListing
from oncelog.core.transactions.states import AT_REST, STATE_NAMES, TransactionState
from oncelog.core.transactions.store import Transactions
from oncelog.core.transactions.transaction import Transaction


class ShardQueries:
    """Queries about the transactions of one shard and the markers they wait for."""

    def __init__(self, coordinator_epoch: CoordinatorEpoch) -> None:
        self._transactions = Transactions()
        self._markers = OutstandingMarkers(coordinator_epoch)

    def id_count(self) -> int:
        """The number of transactional ids."""
        return len(self._transactions)

    @property
    def skipped(self) -> Counter[str]:
        """Records that could not be read, by reason; for the node to log."""
        return self._transactions.skipped

    def describe(self, transactional_id: TransactionalId) -> TransactionDescription | None:
        """DescribeTransactions, one id; None when it does not exist."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return None
        return TransactionDescription(
            transactional_id,
            STATE_NAMES[transaction.state],
            transaction.identity,
            transaction.timeout_ms,
            transaction.start_ms,
            transaction.partitions,
        )

    def listings(
        self,
        now_ms: int,
        *,
        states: Collection[TransactionState] | None = None,
        producer_ids: Collection[ProducerId] | None = None,
        longer_than_ms: int = -1,
    ) -> list[TransactionListing]:
        """ListTransactions; None: any. As in Apache Kafka an id without a transaction has been open since the epoch.
        Patterns are the caller's."""
        at_rest = states is None or not AT_REST.isdisjoint(states)
        return [
            TransactionListing(tid, producer_id, STATE_NAMES[state])
            for tid, state, producer_id, start_ms in self._transactions.states(at_rest=at_rest)
            if (states is None or state in states)
            and (producer_ids is None or producer_id in producer_ids)
            and (longer_than_ms < 0 or now_ms - start_ms > longer_than_ms)
        ]

    def counts(self) -> dict[str, int]:
        """The number of ids in each state, without states of none (metrics)."""
        return {STATE_NAMES[state]: count for state in STATE_NAMES if (count := self._transactions.counts[state])}

    def outstanding_count(self) -> int:
        """The number of markers that decided transactions wait for (metrics)."""
        return self._markers.count()

    def open_of(self, producer_ids: Collection[int]) -> dict[int, TransactionalId]:
        """The transactional id by producer, for those of ``producer_ids`` with an open or completing transaction."""
        return {
            transaction.identity.producer_id: tid
            for tid, transaction in self._transactions.unpacked()
            if transaction.identity.producer_id in producer_ids and transaction.state not in AT_REST
        }

    def outstanding(self, transactional_id: TransactionalId) -> tuple[TopicPartition, ...]:
        """The partitions a prepared transaction waits for (console, debugging)."""
        return self._markers.awaited(transactional_id) or ()

    def awaits_marker(self, partition: TopicPartition, producer_ids: Collection[ProducerId]) -> bool:
        """True if a decided transaction of one of these producers lacks its marker on ``partition``. Looks only at
        what is decided and not complete."""
        found = (self._transactions.get(tid) for tid in self._markers.awaiting_any((partition,)))
        return any(held is not None and held.identity.producer_id in producer_ids for held in found)

    def persisted(self) -> dict[TransactionalId, Transaction]:
        """The transactions that a replay of the log has to give, without the last epochs (tests)."""
        return {
            tid: transaction._replace(last_epoch=NO_PRODUCER_EPOCH) for tid, transaction in self._transactions.items()
        }
