"""A producer's batch, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.records.batch import next_sequence
from oncelog.records.record import Record
from oncelog.wire.chunks import Buffer, Records

_RECORD_OVERHEAD_BYTES: Final = 21
_HEADER_OVERHEAD_BYTES: Final = 10


@dataclass(slots=True, eq=False)
class PendingBatch:
    partition: TopicPartition
    number: int
    """The batch's place in creation order; parts of a batch share it."""
    created_ms: int
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0
    sequence: int = -1
    attempts: int = 0
    not_before_ms: int = 0
    encoded: bytearray | None = None
    body: Buffer | None = None
    """The records of a batch whose ``encoded`` is its header alone."""
    ambiguous: bool = False
    """True if an attempt ended without a clear answer: the batch may be in the log."""
    framed: bytearray | None = None
    """A prepared batch instead of records: it only gets the producer's id, epoch and sequence."""
    count: int = 0
    part: int = 0
    """The index of the first record in the batch that this one was divided from."""

    @property
    def place(self) -> tuple[int, int]:
        return self.number, self.part

    @property
    def is_divisible(self) -> bool:
        """True if the records may be sent in several batches."""
        return self.count > 1 and self.framed is None and self.body is None

    @property
    def contents(self) -> Records:
        """The bytes to send, once drained."""
        header = self.encoded or b""
        return header if self.body is None else [header, self.body]

    def divided(self, limit_bytes: int) -> list[PendingBatch]:
        """Parts of at most ``limit_bytes``, as far as single records allow."""
        parts: list[PendingBatch] = []
        for index, record in enumerate(self.records):
            size = record_size(record)
            if not parts or parts[-1].size_bytes + size > limit_bytes:
                part = PendingBatch(self.partition, self.number, self.created_ms, part=self.part + index)
                part.attempts, part.ambiguous = self.attempts, self.ambiguous
                part.sequence = self.sequence if self.sequence < 0 else next_sequence(self.sequence, index)
                parts.append(part)
            parts[-1].records.append(record)
            parts[-1].count += 1
            parts[-1].size_bytes += size
        return parts


@dataclass(frozen=True, slots=True)
class Delivered:
    """A batch was appended at ``base_offset`` (−1 if the broker does not say: a duplicate, or acks=0)."""

    partition: TopicPartition
    records: int
    base_offset: int
    number: int = 0  # In creation order, as ``add_batch`` returned it.


@dataclass(frozen=True, slots=True)
class Failed:
    """Records were given up; they are not in the log or, with ``maybe_appended``, that is unknown."""

    partition: TopicPartition
    records: list[Record]  # Empty for a prepared batch.
    error_code: int
    message: str | None
    maybe_appended: bool = False
    number: int = 0  # In creation order, as ``add_batch`` returned it.
    refused: tuple[int, ...] = ()
    """The batch indexes of the records that the broker refused; empty if it named none."""


BatchOutcome = Delivered | Failed


def record_size(record: Record) -> int:
    """An upper bound of a record's bytes before compression."""
    size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _HEADER_OVERHEAD_BYTES + 4 * len(name) + len(value or b"")
    return size
