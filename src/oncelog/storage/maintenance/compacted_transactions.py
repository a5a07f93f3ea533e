"""Tracks aborted transactions, and markers that still have data, while compaction walks a log.

The rules (KIP-534): data of an aborted transaction is dropped at once; a marker once no batch of its transaction is
left, but after its delete horizon, so that slow readers see it. The cleaned segment's transaction index keeps the
aborted transactions whose data was found.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from oncelog.records.batch import BatchHeader
from oncelog.records.control import ControlType
from oncelog.storage.index.transaction_index import AbortedTransaction


class WalkedTransactions:
    """Receives every batch of a log in order; see the module's rules."""

    def __init__(self) -> None:
        self._upcoming: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        """Producers of an aborted transaction with data in this walk."""
        self._committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions with data before their marker."""

    def add_aborted(self, entries: Iterable[AbortedTransaction]) -> None:
        """Add the aborted transactions of all later markers, before the first batch is walked."""
        for entry in entries:
            heapq.heappush(self._upcoming, (entry.first_offset, entry))

    def on_batch(self, header: BatchHeader) -> bool:
        """Process a data batch. True if it belongs to an aborted transaction and can be dropped."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._with_data.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_marker(self, header: BatchHeader, kind: ControlType | None) -> bool:
        """Process a control batch of type ``kind`` (None: it is empty already). True if its transaction has no data
        left."""
        self._advance(header.last_offset)
        if kind is None:
            return True
        if kind is ControlType.ABORT:
            entry = self._aborted.pop(header.producer_id, None)
            if entry is None or header.producer_id not in self._with_data:
                return True
            self._with_data.discard(header.producer_id)
            self.retained.append(entry)
            return False
        if kind is ControlType.COMMIT:
            if header.producer_id in self._committed:
                self._committed.discard(header.producer_id)
                return False
            return True
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        """The entries for the segment just finished."""
        retained, self.retained = self.retained, []
        return retained

    def _advance(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            _, entry = heapq.heappop(self._upcoming)
            self._aborted.setdefault(entry.producer_id, entry)
