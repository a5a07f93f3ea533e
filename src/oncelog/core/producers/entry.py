"""The entry of a producer on a partition: its epoch, recent batches and open transaction.

Immutable: an append makes a new entry, so that a rejected batch leaves no trace.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.base.ids import NO_PRODUCER_EPOCH, NO_SEQUENCE
from oncelog.base.units import INT32_MAX

BATCHES_KEPT: Final = 5
"""Duplicates are recognised among this many recent batches: a client has at most 5 requests in flight."""
NO_COORDINATOR_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1


class BatchMetadata(NamedTuple):
    """An appended batch: its last sequence and offset, and its largest timestamp."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Wraps from 2³¹−1 to 0."""
        return (self.last_sequence - self.offset_delta) & INT32_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """``transaction_first_offset`` is None without an open transaction."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int | None = None
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        """−1 without a record of the current epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """−1 without a record of the current epoch."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_offset_delta(self) -> int:
        """The number of records in the last batch minus one, or 0."""
        return self.batches[-1].offset_delta if self.batches else 0

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The remembered batch with exactly this range."""
        # Batches of older epochs are not remembered.
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        return None

    def with_batch(self, epoch: int, batch: BatchMetadata, transaction_first_offset: int | None) -> ProducerEntry:
        if epoch != self.epoch:
            # A new epoch discards the batches of the old one.
            batches: tuple[BatchMetadata, ...] = (batch,)
        else:
            kept = self.batches
            batches = (*kept[1:], batch) if len(kept) == BATCHES_KEPT else (*kept, batch)
        return ProducerEntry(
            self.producer_id, epoch, self.coordinator_epoch, batch.timestamp, transaction_first_offset, batches
        )

    def with_marker(self, epoch: int, coordinator_epoch: int, timestamp: int) -> ProducerEntry:
        """The entry after a marker: no open transaction; a bumped epoch discards the old batches."""
        batches = self.batches if epoch == self.epoch else ()
        return ProducerEntry(self.producer_id, epoch, coordinator_epoch, timestamp, None, batches)
