"""Reads of a log: from offsets and timestamps to ranges of files. Only a search by time reads records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Final, NamedTuple

from oncelog.base.ids import NO_LEADER_EPOCH, Offset
from oncelog.base.units import KIB
from oncelog.records.batch import BatchHeader, CorruptBatch, TruncatedBatch, crc_matches, iter_headers
from oncelog.records.errors import TooMuchOutput
from oncelog.records.latest_timestamp import hides_timestamps
from oncelog.records.record import Record, bodies_within, records_data, records_in
from oncelog.storage.errors import OffsetOutOfRange
from oncelog.storage.file_range import FileRange
from oncelog.storage.index.transaction_index import AbortedTransaction, overlapping
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.tail import TailPositions
from oncelog.storage.segment.segment import Segment
from oncelog.storage.segment.segments import Segments


@dataclass(slots=True)
class Read:
    """``chunks`` are whole batches, except the last one, which ``max_bytes`` may cut."""

    chunks: list[FileRange]
    size_bytes: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """(producer id, first offset) of aborted transactions that overlap the chunks; for read_committed only."""
    first_batch_cut: bool = False
    """True if ``max_bytes`` is less than the first batch: the chunk is useless to a reader."""


class TimestampOffset(NamedTuple):
    """``leader_epoch`` is −1 if unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


class Place(NamedTuple):
    """The start of a read, and the end of what it may return."""

    segment: int
    position: int
    first_batch_size: int
    end: int


def read_batches(
    log: PartitionLog,
    offset: int,
    *,
    max_bytes: int,
    isolation_read_committed: bool = False,
    minimum_one: bool = True,
    up_to_log_end: bool = False,
) -> Read:
    """Batches from the one with ``offset`` on, within one segment, below the high watermark (or last stable offset).

    ``up_to_log_end``: for replicas. ``minimum_one``: at least one whole batch, however large. Raises OffsetOutOfRange.
    """
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
    stable = log.last_stable_offset
    upper = stable if isolation_read_committed else log.log_end_offset if up_to_log_end else log.high_watermark
    result = Read([], 0, log.high_watermark, stable, log.log_start_offset)
    if offset >= upper:
        return result
    place = locate(log.segments, log.tail, offset, upper, log.log_end_offset)
    if place is None:
        return result
    limit = max(max_bytes, place.first_batch_size) if minimum_one else max_bytes
    size = min(limit, place.end - place.position)
    if size > 0:
        result.chunks.append(FileRange(log.segments[place.segment].file, place.position, size))
        result.size_bytes = size
        result.first_batch_cut = size < place.first_batch_size
    if isolation_read_committed:
        result.aborted = aborted_in(log.segments, place, offset, size, log.log_end_offset)
    return result


def locate(
    segments: Segments, tail: TailPositions, offset: int, upper_offset: int, log_end_offset: int
) -> Place | None:
    """The place of the batch with ``offset``, and the end of what precedes ``upper_offset`` in its segment."""
    last = len(segments) - 1
    index = segments.floor(offset)
    while index <= last:
        segment = segments[index]
        if index == last and (cached := tail.find(offset, segment.size_bytes)) is not None:
            position, size = cached
        else:
            batch = segment.find(offset)
            if batch is None:
                index += 1
                continue
            position, size = batch[0], batch[1].size_bytes
        end = _end_position(segments, tail, index, position, upper_offset, log_end_offset)
        return Place(index, position, size, end)
    return None


def _end_position(
    segments: Segments, tail: TailPositions, index: int, position: int, upper_offset: int, log_end_offset: int
) -> int:
    segment = segments[index]
    if upper_offset >= segments.end_of(index, log_end_offset):
        return segment.size_bytes
    if index == len(segments) - 1 and (cached := tail.position_of(upper_offset)) is not None:
        return cached
    batch = segment.find(upper_offset, position)
    return segment.size_bytes if batch is None else batch[0]


def aborted_in(
    segments: Segments, place: Place, first_offset: int, size_bytes: int, log_end_offset: int
) -> list[tuple[int, int]]:
    """Aborted transactions that overlap a located range, from the index of every segment that may have some."""
    index = place.segment
    upper: int | None = None
    overlaps: list[AbortedTransaction] = []
    for later in range(index, len(segments)):
        entries = segments[later].aborted
        if entries:
            if upper is None:  # only when needed: it reads the file
                upper = segments[index].bound_from(place.position + size_bytes)
                upper = segments.end_of(index, log_end_offset) if upper is None else upper
            more, complete = overlapping(entries, first_offset, upper)
            overlaps += more
            if complete:
                break
    return [(entry.producer_id, entry.first_offset) for entry in overlaps]


Scan = Generator[None, None, "TimestampOffset | None"]
"""Searches the bytes of one batch, with pauses: a batch of a megabyte may have millions of records."""
Search = Generator[Scan, "TimestampOffset | None", "TimestampOffset | None"]
"""Searches a log: yields every scan that may be long, and is sent its result."""
RECORDS_PER_STEP: Final = 5000
INLINE_RECORDS: Final = 500
INLINE_SCAN_BYTES: Final = 64 * KIB
"""Decompressed size up to which a batch is scanned within the search."""


def _run_scan(scan: Scan) -> TimestampOffset | None:
    while True:
        try:
            next(scan)
        except StopIteration as end:
            record: TimestampOffset | None = end.value
            return record


def search_timestamp(log: PartitionLog, timestamp: int) -> Search:
    """The first record at or after ``timestamp`` (milliseconds), or None. Raises OSError, also if its files were
    removed meanwhile, and RecordTooLarge."""
    log_start_offset, max_decompressed_bytes = log.log_start_offset, log.storage.max_decompressed_bytes

    def matches(record: Record) -> bool:
        return record.timestamp >= timestamp and record.offset >= log_start_offset

    for segment in log.segments:
        if segment.may_hide(timestamp):
            yield from _corrected(segment, max_decompressed_bytes)
        if segment.max_timestamp[0] < timestamp:
            continue
        start = max(segment.time_index.offset_before(timestamp), log_start_offset)
        for position, header in segment.batches(segment.start_of(start)):
            too_early = header.max_timestamp < timestamp and not hides_timestamps(header)
            if too_early or header.last_offset < log_start_offset:
                continue
            record = yield from _in_batch(log, segment, position, header, matches)
            if record is not None:
                return record
    return None


def search_max_timestamp(log: PartitionLog) -> Search:
    """The first record with the log's largest timestamp, or None. Raises as :func:`search_timestamp`."""
    segments, max_decompressed_bytes = log.segments, log.storage.max_decompressed_bytes
    for segment in segments:
        if segment.seems_to_hide():
            yield from _corrected(segment, max_decompressed_bytes)
    newest = max(segments, key=lambda segment: segment.max_timestamp[0])
    timestamp, last_offset = newest.max_timestamp
    if timestamp < 0:
        return None

    def matches(record: Record) -> bool:
        return record.timestamp == timestamp

    for position, header in newest.batches(newest.start_of(last_offset)):
        if header.max_timestamp == timestamp or header.last_offset == last_offset:
            record = yield from _in_batch(log, newest, position, header, matches)
            if record is not None:
                return record
    return None


def _corrected(segment: Segment, max_bytes: int) -> Search:
    """Correct the segment's largest timestamp, which headers may hide."""

    def scan() -> Scan:
        timestamp, offset = yield from segment.true_max_timestamp(max_bytes)
        return TimestampOffset(timestamp, offset, NO_LEADER_EPOCH)

    latest = yield scan()
    if latest is not None:
        segment.set_true_max_timestamp((latest.timestamp, latest.offset))
    return None


def _in_batch(
    log: PartitionLog, segment: Segment, position: int, header: BatchHeader, matches: Callable[[Record], bool]
) -> Search:
    """The first matching record of a batch, as far as its records can be decoded."""
    data = segment.file.read(position, header.size_bytes)
    limits = log.storage.max_decompressed_bytes, log.config.max_decompressed_message_bytes
    scan = _scan(data, header, *limits, matches)
    if header.record_count > INLINE_RECORDS:
        return (yield scan)
    try:
        records_data(data, 0, header, INLINE_SCAN_BYTES)
    except TooMuchOutput:
        return (yield scan)
    except CorruptBatch:
        return None
    return _run_scan(scan)


def _scan(
    data: bytes, header: BatchHeader, max_bytes: int, max_record_bytes: int, matches: Callable[[Record], bool]
) -> Scan:
    with contextlib.suppress(CorruptBatch):
        body = records_data(data, 0, header, max_bytes)
        # A record is compared with the limit when the scan reaches it: a match before a record too large is an answer.
        checks = chain(bodies_within(body, header, max_record_bytes), repeat(None))
        for number, (_, record) in enumerate(zip(checks, records_in(body, header), strict=False), 1):
            if number % RECORDS_PER_STEP == 0:
                yield
            if matches(record):
                return TimestampOffset(record.timestamp, record.offset, _epoch(header))
    return None


def _epoch(header: BatchHeader) -> int:
    epoch = header.partition_leader_epoch
    return epoch if epoch >= 0 else NO_LEADER_EPOCH


def first_damaged(log: PartitionLog, offset: Offset, max_bytes: int) -> Offset | None:
    """The offset of the first damaged batch that a replica would fetch from ``offset`` on; None if all are sound.
    Raises OffsetOutOfRange, OSError."""
    sound_to: int | None = None
    for chunk in read_batches(log, offset, max_bytes=max_bytes, up_to_log_end=True).chunks:
        data = chunk.file.read(chunk.position, chunk.size_bytes)
        try:
            for position, header in iter_headers(data):
                if not crc_matches(data, position, header):
                    return offset if sound_to is None else Offset(sound_to)
                sound_to = header.next_offset
        except TruncatedBatch:
            return (
                offset if sound_to is None else None
            )  # the read returns the first batch whole, if its length is right
        # The first 17 bytes of a batch are in no checksum: only a wrong length or format shows.
        except CorruptBatch:
            return offset if sound_to is None else Offset(sound_to)
    return None
