"""The producers of one partition, its open transactions, and the first unstable offset.

The rule: :meth:`ProducerState.prepare_data` and :meth:`prepare_marker` validate and return a provisional
:class:`Update`; :meth:`commit` applies it after the bytes are in the log. Replay (recovery, replication) prepares
without checks and commits at once: everything in the log was accepted.

Invariants:
1. ``ongoing`` has exactly the first offsets of entries with an open transaction.
2. A decided transaction stays in ``unreplicated`` until the high watermark has passed its marker; until then the last
   stable offset does not pass its first offset.
3. ``end_offset`` is the offset after the last batch included in the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.producers.checks import check_data_epoch, check_marker, check_sequence, check_transactional
from oncelog.core.producers.entry import BatchMetadata, ProducerEntry
from oncelog.core.producers.verification import Verifications
from oncelog.records.batch import BatchHeader


class CompletedTransaction(NamedTuple):
    """A transaction ended by a marker on this partition; both offsets are inclusive, the last is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(slots=True)
class Update:
    entry: ProducerEntry
    started_at: int | None = None
    completed: CompletedTransaction | None = None


class ProducerState:
    __slots__ = ("end_offset", "entries", "ongoing", "unreplicated", "verifications")

    def __init__(self, end_offset: int = 0) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.ongoing: dict[int, int] = {}
        """First offset → producer id of each open transaction, in ascending order."""
        self.unreplicated: dict[int, int] = {}
        """First offset → last offset of decided transactions whose marker is not below the high watermark."""
        self.end_offset = end_offset
        self.verifications = Verifications()

    def load(self, entries: Iterable[ProducerEntry], end_offset: int) -> None:
        self.entries = {entry.producer_id: entry for entry in entries}
        self.ongoing = {}
        open_here = [e for e in self.entries.values() if e.transaction_first_offset is not None]
        for entry in sorted(open_here, key=lambda entry: entry.transaction_first_offset or 0):
            self.ongoing[entry.transaction_first_offset or 0] = entry.producer_id
        self.unreplicated = {}
        self.end_offset = end_offset

    def duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch that ``header`` repeats, if it is among the producer's last five."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        return entry.duplicate_of(header.producer_epoch, header.base_sequence, header.last_sequence)

    def has_open_transaction(self, producer_id: int) -> bool:
        entry = self.entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset is not None

    def prepare_data(
        self, header: BatchHeader, base_offset: int, *, check: bool = True, sequences: bool = True
    ) -> Update:
        """Raises ProducerRefusal."""
        entry = self.entries.get(header.producer_id) or ProducerEntry(header.producer_id)
        epoch = header.producer_epoch
        transactional = header.is_transactional
        if check:
            check_data_epoch(entry, epoch, base_offset)
            # Coordinators write offsets in transactions without sequences.
            if sequences:
                begins_at_zero = self.verifications.begins_at_zero(header.producer_id)
                check_sequence(entry, epoch, header.base_sequence, base_offset, begins_at_zero=begins_at_zero)
            check_transactional(entry, transactional, base_offset)
        first = entry.transaction_first_offset
        # The first transactional batch opens the transaction on this partition.
        started = base_offset if transactional and first is None else None
        delta = header.last_offset_delta
        batch = BatchMetadata(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        return Update(entry.with_batch(epoch, batch, first if started is None else started), started)

    def prepare_marker(
        self,
        header: BatchHeader,
        base_offset: int,
        *,
        committed: bool,
        coordinator_epoch: int,
        timestamp: int,
        check: bool = True,
        transaction_version: int = 0,
    ) -> Update:
        """Raises ProducerRefusal."""
        entry = self.entries.get(header.producer_id) or ProducerEntry(header.producer_id)
        if check:
            check_marker(entry, header.producer_epoch, coordinator_epoch, transaction_version, base_offset)
        first = entry.transaction_first_offset
        completed = None
        if first is not None:
            completed = CompletedTransaction(header.producer_id, first, base_offset, aborted=not committed)
        return Update(
            # The coordinator epoch never falls: it fences older coordinators.
            entry.with_marker(header.producer_epoch, max(coordinator_epoch, entry.coordinator_epoch), timestamp),
            completed=completed,
        )

    def stable_after(self, completed: CompletedTransaction) -> int:
        """The first unstable offset once ``completed`` is replicated, or the offset after its marker if all is
        decided.
        """
        return next((first for first in self.ongoing if first != completed.first_offset), completed.last_offset + 1)

    def commit(self, update: Update) -> None:
        entry = update.entry
        self.entries[entry.producer_id] = entry
        self.verifications.appended(entry.producer_id)
        if update.started_at is not None:
            self.ongoing[update.started_at] = entry.producer_id
        completed = update.completed
        if completed is not None:
            self.ongoing.pop(completed.first_offset, None)
            # Invariant 2: readers must not pass the marker before it is replicated.
            self.unreplicated[completed.first_offset] = completed.last_offset

    def first_unstable_offset(self) -> int | None:
        """First offset of a transaction without a replicated marker; None if all is stable."""
        first = next(iter(self.ongoing)) if self.ongoing else None
        if self.unreplicated:
            decided = min(self.unreplicated)
            first = decided if first is None else min(first, decided)
        return first

    def high_watermark_moved(self, high_watermark: int) -> None:
        if self.unreplicated:
            self.unreplicated = {f: last for f, last in self.unreplicated.items() if last >= high_watermark}

    def log_start_moved(self, log_start_offset: int) -> None:
        """Records before ``log_start_offset`` were deleted; the producers' state stays (KIP-360)."""
        self.high_watermark_moved(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers idle for ``expiration_ms`` without an open transaction. Returns how many."""
        idle = [
            producer_id
            for producer_id, entry in self.entries.items()
            # The entry of an open transaction is needed to validate its marker.
            if entry.transaction_first_offset is None and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in idle:
            del self.entries[producer_id]
        return len(idle)
