"""The producers of one partition, the transactions open on it, and the first unstable offset.

The rule: :meth:`ProducerState.prepare_data` and :meth:`prepare_marker` validate into a provisional :class:`Update`;
:meth:`commit` takes it whole, after the bytes are in the log. Replay (recovery, replication) prepares without checks
and commits at once: what is in the log was accepted.

Invariants:
1. ``ongoing`` holds exactly the first offsets of entries with an open transaction.
2. A decided transaction stays in ``unreplicated`` until the high watermark has passed its marker; until then the last
   stable offset does not pass its first offset.
3. ``end_offset`` is the offset after the last batch that the state knows of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.producers.checks import (
    check_data_epoch,
    check_marker,
    check_sequence,
    check_transactional,
)
from oncelog.core.producers.entry import BatchMetadata, ProducerEntry
from oncelog.core.producers.verification import Verifications
from oncelog.records.batch import BatchHeader


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended on this partition; both offsets inclusive, the last is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(slots=True)
class Update:
    """A validated append that has not happened yet."""

    entry: ProducerEntry
    started_at: int | None = None
    completed: CompletedTransaction | None = None


class ProducerState:
    """The producers of one partition; see the module's rule and invariants."""

    __slots__ = ("end_offset", "entries", "ongoing", "unreplicated", "verifications")

    def __init__(self, end_offset: int = 0) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.ongoing: dict[int, int] = {}
        """First offset → producer id of every open transaction, by rising offset."""
        self.unreplicated: dict[int, int] = {}
        """First offset → last offset of decided transactions whose marker is not below the high watermark."""
        self.end_offset = end_offset
        self.verifications = Verifications()

    def load(self, entries: Iterable[ProducerEntry], end_offset: int) -> None:
        """Replace the whole state by that of a snapshot."""
        self.entries = {entry.producer_id: entry for entry in entries}
        self.ongoing = {}
        open_here = [e for e in self.entries.values() if e.transaction_first_offset is not None]
        for entry in sorted(open_here, key=lambda entry: entry.transaction_first_offset or 0):
            self.ongoing[entry.transaction_first_offset or 0] = entry.producer_id
        self.unreplicated = {}
        self.end_offset = end_offset

    def duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch that ``header`` repeats, if it is one of the producer's last five."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        return entry.duplicate_of(header.producer_epoch, header.base_sequence, header.last_sequence)

    def has_open_transaction(self, producer_id: int) -> bool:
        """True if the producer has data in an undecided transaction on the partition."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset is not None

    def prepare_data(
        self, header: BatchHeader, base_offset: int, *, check: bool = True, sequences: bool = True
    ) -> Update:
        """Validate a producer's data batch that is to be written at ``base_offset``. Raises ProducerRefusal.

        Coordinators write offsets in transactions without sequences: ``sequences`` False checks the epoch only.
        """
        entry = self.entries.get(header.producer_id) or ProducerEntry(header.producer_id)
        epoch = header.producer_epoch
        transactional = header.is_transactional
        if check:
            check_data_epoch(entry, epoch, base_offset)
            if sequences:
                check_sequence(entry, epoch, header.base_sequence, base_offset)
            check_transactional(entry, transactional, base_offset)
        first = entry.transaction_first_offset
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
        """Validate a transaction marker that is to be written at ``base_offset``. Raises ProducerRefusal."""
        entry = self.entries.get(header.producer_id) or ProducerEntry(header.producer_id)
        if check:
            check_marker(entry, header.producer_epoch, coordinator_epoch, transaction_version, base_offset)
        first = entry.transaction_first_offset
        completed = None
        if first is not None:
            completed = CompletedTransaction(header.producer_id, first, base_offset, aborted=not committed)
        return Update(
            entry.with_marker(header.producer_epoch, max(coordinator_epoch, entry.coordinator_epoch), timestamp),
            completed=completed,
        )

    def stable_after(self, completed: CompletedTransaction) -> int:
        """The first unstable offset once ``completed`` is, or the offset after its marker when all is decided."""
        return next((first for first in self.ongoing if first != completed.first_offset), completed.last_offset + 1)

    def commit(self, update: Update) -> None:
        """Apply an update whose bytes are in the log."""
        entry = update.entry
        self.entries[entry.producer_id] = entry
        self.verifications.appended(entry.producer_id)
        if update.started_at is not None:
            self.ongoing[update.started_at] = entry.producer_id
        completed = update.completed
        if completed is not None:
            self.ongoing.pop(completed.first_offset, None)
            self.unreplicated[completed.first_offset] = completed.last_offset

    def first_unstable_offset(self) -> int | None:
        """First offset of an undecided transaction, or one whose marker is not replicated; None if all is stable."""
        first = next(iter(self.ongoing)) if self.ongoing else None
        if self.unreplicated:
            decided = min(self.unreplicated)
            first = decided if first is None else min(first, decided)
        return first

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Note that markers below ``high_watermark`` are replicated."""
        if self.unreplicated:
            self.unreplicated = {f: last for f, last in self.unreplicated.items() if last >= high_watermark}

    def log_start_moved(self, log_start_offset: int) -> None:
        """Note that records before ``log_start_offset`` are deleted; the producers' state stays (KIP-360)."""
        self.high_watermark_moved(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were idle for ``expiration_ms`` and have nothing open; return how many."""
        idle = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_first_offset is None and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in idle:
            del self.entries[producer_id]
        return len(idle)
