"""Aborted transactions, and markers that still have data before them, while a log is walked batch by batch.

The rules (KIP-534): data of an aborted transaction goes at once. A marker may go when none of its transaction's batches
is left; even then only when its delete horizon has passed, so that slow readers see it. The transaction index of the
cleaned segment keeps the aborted transactions whose data was met.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from oncelog.records.batch import BatchHeader
from oncelog.records.control import ControlType
from oncelog.storage.index.transaction_index import AbortedTransaction


class WalkedTransactions:
    """Fed with every batch of a log in order; see the module's rules."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        """Producers of an aborted transaction whose data was met."""
        self._committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions of which something was met before their marker."""

    def add_aborted(self, entries: Iterable[AbortedTransaction]) -> None:
        """The aborted transactions whose markers come, all of them before the first batch is walked."""
        for entry in entries:
            heapq.heappush(self._coming, (entry.first_offset, entry))

    def on_batch(self, header: BatchHeader) -> bool:
        """A data batch; True when it belongs to an aborted transaction and may go."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._met.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_marker(self, header: BatchHeader, kind: ControlType | None) -> bool:
        """A control batch of type ``kind`` (None: it is empty already); True when its transaction has no data left."""
        self._advance(header.last_offset)
        if kind is None:
            return True
        if kind is ControlType.ABORT:
            entry = self._aborted.pop(header.producer_id, None)
            if entry is None or header.producer_id not in self._met:
                return True
            self._met.discard(header.producer_id)
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
        while self._coming and self._coming[0][0] <= offset:
            _, entry = heapq.heappop(self._coming)
            self._aborted.setdefault(entry.producer_id, entry)
