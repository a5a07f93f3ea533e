"""The fields of records as arrays with one entry per record: offset, timestamp, byte ranges of key, value and headers.

Invariants, checked before a byte range is copied:

1. every field lies inside its record, in order: start ≤ key ≤ value < end (the header count needs a byte);
2. a null key or value has length −1; no other negative length exists;
3. an offset lies between its batch's first and last offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from oncelog.records.batch import CorruptBatch
from oncelog.records.columns.record_heads import read_heads
from oncelog.records.columns.record_starts import Spans
from oncelog.records.columns.varint_columns import ByteView, Integers, Positions, read_varints

# Chunks keep the intermediate arrays in the processor's cache.
_CHUNK_RECORDS: Final = 16 * 1024
_MAX_LAYOUTS: Final = 4
"""With more layouts among the heads of a chunk its varints are read one after another."""


@dataclass(frozen=True, slots=True)
class BatchHeaders:
    base_offset: Positions
    last_offset_delta: Positions
    base_timestamp: Positions
    max_timestamp: Positions
    log_append_time: npt.NDArray[np.bool_]


@dataclass(slots=True)
class Range:
    """Byte ranges, one entry per record; length −1 is null."""

    start: Positions
    length: npt.NDArray[np.int32]

    @classmethod
    def empty(cls, count: int) -> Range:
        return cls(np.empty(count, np.int64), np.empty(count, np.int32))

    def select(self, selected: npt.NDArray[np.bool_] | slice) -> Range:
        """``selected`` is a mask or a slice."""
        return Range(self.start[selected], self.length[selected])


@dataclass(slots=True)
class Fields:
    """``headers`` is the header count's position, ``end`` the record's end."""

    offset: Positions
    timestamp: Positions
    timestamp_type: npt.NDArray[np.int32]
    key: Range
    value: Range
    headers: Positions
    end: Positions

    def select(self, selected: npt.NDArray[np.bool_] | slice) -> Fields:
        """``selected`` is a mask or a slice."""
        return Fields(
            self.offset[selected],
            self.timestamp[selected],
            self.timestamp_type[selected],
            self.key.select(selected),
            self.value.select(selected),
            self.headers[selected],
            self.end[selected],
        )


def read_fields(view: ByteView, starts: Positions, spans: Spans, batch_headers: BatchHeaders) -> Fields:
    """The fields of all records. Raises CorruptBatch if a record breaks an invariant."""
    count = len(starts)
    fields = Fields(
        offset=np.repeat(batch_headers.base_offset, spans.count),
        timestamp=np.repeat(batch_headers.base_timestamp, spans.count),
        timestamp_type=np.repeat(batch_headers.log_append_time.astype(np.int32), spans.count),
        key=Range.empty(count),
        value=Range.empty(count),
        headers=np.empty(count, np.int64),
        end=_ends(starts, spans),
    )
    last_delta = np.repeat(batch_headers.last_offset_delta, spans.count)
    for first in range(0, count, _CHUNK_RECORDS):
        chunk = slice(first, first + _CHUNK_RECORDS)
        _read_chunk(view, starts[chunk], last_delta[chunk], fields, chunk)
    if batch_headers.log_append_time.any():
        appended = fields.timestamp_type == 1
        fields.timestamp[appended] = np.repeat(batch_headers.max_timestamp, spans.count)[appended]
    return fields


def _ends(starts: Positions, spans: Spans) -> Positions:
    """The end of each record: the start of the next one, or its batch's end."""
    ends = np.empty(len(starts), np.int64)
    ends[:-1] = starts[1:]
    ends[np.cumsum(spans.count) - 1] = spans.end
    return ends


def _read_chunk(view: ByteView, starts: Positions, last_delta: Positions, fields: Fields, chunk: slice) -> None:
    """Fill ``fields[chunk]``, whose offset and timestamp hold the batch's base, from the records at ``starts``."""
    end = fields.end[chunk]
    timestamp, offset, position = read_heads(view, starts, _MAX_LAYOUTS) or _read_heads_apart(view, starts)
    fields.timestamp[chunk] += timestamp
    if bool(((offset < 0) | (offset > last_delta)).any()):
        raise CorruptBatch("a record's offset is outside its batch")
    fields.offset[chunk] += offset
    read_range(view, position, end, fields.key, chunk)
    read_range(view, position, end, fields.value, chunk)
    fields.headers[chunk] = position


def _read_heads_apart(view: ByteView, starts: Positions) -> tuple[Integers, Integers, Positions]:
    """The result of ``read_heads`` for records of any layout, one varint after another."""
    _, width = read_varints(view, starts)
    position = starts + width
    position += 1  # attributes: unused
    timestamp, width = read_varints(view, position)
    position += width
    offset, width = read_varints(view, position)
    position += width
    return timestamp, offset, position


def read_range(view: ByteView, position: Positions, end: Positions, ranges: Range, target: slice | Positions) -> None:
    """Read length-prefixed bytes into ``ranges[target]`` and move ``position`` past them; they must leave a byte."""
    length, width = read_varints(view, position)
    position += width
    ranges.start[target] = position
    shortest = int(length.min(initial=0))
    sizes = length if shortest == 0 else np.maximum(length, 0)
    if shortest < -1 or bool((sizes >= end - position).any()):
        raise CorruptBatch("a field is longer than its record")
    ranges.length[target] = length
    position += sizes
