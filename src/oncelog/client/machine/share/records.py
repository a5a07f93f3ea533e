"""Turns acquired batches into records, and finds the acquired offsets that have none.

An acquired offset is a record, a gap (compaction, a control record), or in a damaged batch. Damaged batches are
rejected as a whole, as by Apache Kafka's client. Offsets in a batch that was cut off are released.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.client.machine.consumed_records import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    MAX_BATCH_BYTES,
    ConsumedRecord,
    UnreadableRecords,
    read_message_set,
)
from oncelog.client.machine.share.values import Acknowledge, AcquiredBatches, ShareRecord
from oncelog.client.machine.whole_batches import formats, whole_batches
from oncelog.records.batch import BatchHeader, crc_matches, iter_headers
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import read_records

_END: Final = 1 << 63
"""Behind every offset."""
NoRecord = tuple[int, int, Acknowledge]
"""First and last offset, and how they are to be acknowledged."""


@dataclass(slots=True)
class ReadBatches:
    records: list[ShareRecord] = field(default_factory=list)
    others: list[NoRecord] = field(default_factory=list)
    """Acquired offsets without a record."""
    errors: list[UnreadableRecords] = field(default_factory=list)


class _Acquired:
    """The acquired offsets, passed once in rising order."""

    def __init__(self, batches: AcquiredBatches) -> None:
        self._ranges = batches.acquired
        self._index = 0
        self._next = self._ranges[0].first_offset if self._ranges else 0

    def up_to(self, offset: int) -> Iterator[tuple[int, int]]:
        """Pass the offsets before ``offset``, and yield them as ranges."""
        while self._index < len(self._ranges):
            last = self._ranges[self._index].last_offset
            if self._next < min(offset, last + 1):
                yield self._next, min(offset - 1, last)
                self._next = min(offset, last + 1)
            if self._next <= last:
                return
            self._index += 1
            if self._index < len(self._ranges):
                self._next = self._ranges[self._index].first_offset

    def has_before(self, end: int) -> bool:
        return self._index < len(self._ranges) and self._next < end

    def is_next(self, offset: int) -> bool:
        return self._index < len(self._ranges) and self._next == offset

    @property
    def delivery_count(self) -> int:
        """The deliveries of the next offset."""
        return self._ranges[self._index].delivery_count

    def skip(self) -> None:
        """Pass one offset."""
        if self._next < self._ranges[self._index].last_offset:
            self._next += 1
        else:
            for _ in self.up_to(self._next + 1):
                pass


def read_acquired(batches: AcquiredBatches, *, check_crc: bool = True) -> ReadBatches:
    """The records, in the order of their offsets, and what becomes of the other acquired offsets."""
    result, acquired = ReadBatches(), _Acquired(batches)
    read_to = 0
    for start, stop, is_message_set in formats(batches.records):
        part = batches._replace(records=batches.records[start:stop])
        if is_message_set:
            _, read_to = whole_batches(part.records, 0, old_formats=True)
            try:
                _add(result, acquired, part, list(read_message_set(part.records, part.partition)))
            except CorruptBatch as error:
                _reject(result, acquired, part, read_to, error)
            continue
        for at, header in iter_headers(part.records):
            _add(result, acquired, part, (), header.base_offset)
            read_to = header.next_offset
            if header.is_control or not acquired.has_before(read_to):
                continue
            try:
                _add(result, acquired, part, _read_batch(part, at, header, check_crc))
            except CorruptBatch as error:
                _reject(result, acquired, part, read_to, error)
    _add(result, acquired, batches, (), read_to if batches.is_cut else _END)
    # Offsets that a cut response lacks come again.
    result.others += [(first, last, Acknowledge.RELEASE) for first, last in acquired.up_to(_END)]
    return result


def _add(
    result: ReadBatches,
    acquired: _Acquired,
    batches: AcquiredBatches,
    records: Sequence[ConsumedRecord],
    end: int = 0,
) -> None:
    """Add records, and then gaps before ``end``."""
    until_ms = batches.lock_until_ms
    for record in records:
        _gaps(result, acquired, record.offset)
        if acquired.is_next(record.offset):
            result.records.append(ShareRecord(*record, acquired.delivery_count, until_ms, batches.topic_id))
            acquired.skip()
    _gaps(result, acquired, end)


def _gaps(result: ReadBatches, acquired: _Acquired, end: int) -> None:
    result.others += [(first, last, Acknowledge.GAP) for first, last in acquired.up_to(end)]


def _reject(result: ReadBatches, acquired: _Acquired, batches: AcquiredBatches, end: int, error: CorruptBatch) -> None:
    rejected = list(acquired.up_to(end))
    result.others += [(first, last, Acknowledge.REJECT) for first, last in rejected]
    if rejected:
        first, last = rejected[0][0], rejected[-1][1]
        text = f"records {first} to {last} of {batches.partition} are rejected: {error}"
        result.errors.append(UnreadableRecords(text))


def _read_batch(batches: AcquiredBatches, at: int, header: BatchHeader, check_crc: bool) -> list[ConsumedRecord]:
    """All records of a batch, or none: a damaged batch is rejected as a whole."""
    if check_crc and not crc_matches(batches.records, at, header):
        raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
    topic, partition = batches.partition
    kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
    epoch = header.partition_leader_epoch
    return [
        ConsumedRecord(topic, partition, offset, timestamp, kind, key, value, headers, epoch)
        for offset, timestamp, key, value, headers in read_records(batches.records, at, header, MAX_BATCH_BYTES)
    ]
