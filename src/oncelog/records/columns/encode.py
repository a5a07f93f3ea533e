"""Arrow columns → record batches (format v2), in numpy and pyarrow, without a Python step per record.

1. Lengths give every record's size, and so the cuts between batches; varints are written for all records at once.
2. A matrix of *binary views* has a row per record: the bytes before the key, the key, the bytes before the value, the
   value. One cast to a binary array copies everything into place (``binary_views``).
3. CRC and header follow once producer and sequence are known (``sealed_header``), which a retry may repeat.

The result is byte for byte that of ``records.builder``, which also encodes records that this path cannot: with headers,
fields of 128 MB and more, timestamps 37 hours apart in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.base.ids import NO_LEADER_EPOCH
from oncelog.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from oncelog.records.builder import append_record
from oncelog.records.checksum import crc32c
from oncelog.records.columns.binary_views import NONE_LENGTH, Field, Pieces, field_of, varint_width, zigzag
from oncelog.records.compression import Codec, compress
from oncelog.records.record import Record

Array: TypeAlias = "pa.Array[Any]"
Longs: TypeAlias = npt.NDArray[np.int64]

CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Bytes encoded at once: these arrays stay near the cache's size, and offsets far from 32 bits."""
CHUNK_ROWS: Final = 1 << 17
_WIDEST: Final = 1 << 28
_RECORD_OVERHEAD: Final = 12


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of one partition: binary arrays (null: a null key or value), timestamps in milliseconds.

    ``headers`` has for each record a list of (key, value), or is None.
    """

    keys: Array | None
    values: Array
    timestamps: Longs
    headers: list[tuple[tuple[str, bytes | None], ...]] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, end: int) -> Rows:
        return Rows(
            None if self.keys is None else self.keys.slice(start, end - start),
            self.values.slice(start, end - start),
            self.timestamps[start:end],
            None if self.headers is None else self.headers[start:end],
        )


class Body(NamedTuple):
    """The records of a batch, compressed if requested, and the other data for its header."""

    records: int
    base_timestamp: int
    max_timestamp: int
    codec: Codec
    data: bytes | memoryview


def encode(rows: Rows, *, batch_bytes: int, codec: Codec = Codec.NONE, level: int | None = None) -> Iterator[Body]:
    """The rows in order, in batches of about ``batch_bytes`` before compression; a larger record is alone."""
    if not len(rows):
        return
    keys = None if rows.keys is None else field_of(rows.keys)
    values = field_of(rows.values)
    sizes = values.sizes + (_RECORD_OVERHEAD if keys is None else keys.sizes + _RECORD_OVERHEAD)
    if rows.headers is not None:
        sizes = sizes + np.fromiter(map(_size_of_headers, rows.headers), np.int64, len(rows))
    cumulative = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(sizes, out=cumulative[1:])
    for start, end in _cut(cumulative, CHUNK_BYTES, CHUNK_ROWS):
        cuts = [cut for cut, _ in _cut(cumulative[start : end + 1], batch_bytes, CHUNK_ROWS)]
        part = rows.slice(start, end)
        for body in _encode_chunk(part, keys and keys.slice(start, end), values.slice(start, end), cuts):
            yield body if codec is Codec.NONE else body._replace(codec=codec, data=compress(codec, body.data, level))


def _size_of_headers(headers: tuple[tuple[str, bytes | None], ...]) -> int:
    return sum(_RECORD_OVERHEAD + 4 * len(key) + len(value or b"") for key, value in headers)


def sealed_header(
    body: Body, *, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1, transactional: bool = False
) -> bytearray:
    """The header of a batch with base offset 0; followed by ``body.data`` it is the whole batch."""
    header = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        header,
        0,
        0,
        HEADER_SIZE - LENGTH_PREFIX + len(body.data),
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        int(body.codec) | TRANSACTIONAL * transactional,
        body.records - 1,
        body.base_timestamp,
        body.max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        body.records,
    )
    # The header is sent before the records, which are not copied again.
    crc = crc32c(body.data, crc32c(header[ATTRIBUTES_POSITION:]))
    header[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return header


def _cut(cumulative: Longs, limit_bytes: int, limit_rows: int) -> Iterator[tuple[int, int]]:
    """Consecutive spans within the bounds of bytes and rows, at least one row each; ``cumulative`` is the running sum
    of sizes."""
    count, start = len(cumulative) - 1, 0
    while start < count:
        fits = int(np.searchsorted(cumulative, cumulative[start] + limit_bytes, side="right")) - 1
        end = min(max(start + 1, fits), start + limit_rows, count)
        yield start, end
        start = end


def _encode_chunk(rows: Rows, keys: Field | None, values: Field, cuts: list[int]) -> Iterator[Body]:
    starts = np.array(cuts)
    counts = np.diff(starts, append=len(rows))
    base = rows.timestamps[starts]
    latest = np.maximum(np.maximum.reduceat(rows.timestamps, starts), NO_TIMESTAMP)
    deltas = rows.timestamps - np.repeat(base, counts)
    numbers = np.arange(len(rows)) - np.repeat(starts, counts)
    span = int(rows.timestamps.max()) - int(rows.timestamps.min())
    widest = max(values.longest, keys.longest if keys is not None else 0, 2 * span)
    if rows.headers is not None or 4 * widest >= _WIDEST:
        for at, (start, count) in enumerate(zip(cuts, counts.tolist(), strict=True)):
            slow = _one_by_one(rows.slice(start, start + count), int(base[at]))
            yield Body(count, int(base[at]), int(latest[at]), Codec.NONE, slow)
        return
    data, ends = _gather(keys, values, deltas, numbers)
    whole = memoryview(data)
    for at, (start, count) in enumerate(zip(cuts, counts.tolist(), strict=True)):
        first, last = int(ends[start]), int(ends[start + count])
        yield Body(count, int(base[at]), int(latest[at]), Codec.NONE, whole[first + 1 : last + 1])


def _gather(keys: Field | None, values: Field, deltas: Longs, numbers: Longs) -> tuple[pa.Buffer, Longs]:
    """All records one after another, and the end of each. A zero precedes the first record."""
    count = len(values.lengths)
    times, offsets, value_lengths = zigzag(deltas), zigzag(numbers), zigzag(values.lengths)
    time_widths, offset_widths, value_widths = (varint_width(unsigned) for unsigned in (times, offsets, value_lengths))
    head, rest, before_value = Pieces(count), Pieces(count), Pieces(count if keys is not None else 0)
    rest.varint(offsets, offset_widths)
    sizes = time_widths + offset_widths + value_widths + values.sizes
    if keys is None:
        sizes += 3  # attributes, the key's length of −1, the header count
        rest.byte(NONE_LENGTH)
        rest.varint(value_lengths, value_widths)
    else:
        key_lengths = zigzag(keys.lengths)
        key_widths = varint_width(key_lengths)
        sizes += key_widths + keys.sizes + 2
        rest.varint(key_lengths, key_widths)
        before_value.varint(value_lengths, value_widths)
    lengths = zigzag(sizes)
    length_widths = varint_width(lengths)
    head.byte(0)
    head.varint(lengths, length_widths)
    head.byte(0)
    head.varint(times, time_widths)
    # The zero that ends a record without headers begins the next record's first piece: without a key a record takes
    # two views.
    last = [values] if keys is None else [keys, before_value, values]
    data = Pieces.join([*Pieces.merged(head, rest), *last], count)
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(sizes + length_widths, out=ends[1:])
    return data, ends


def _one_by_one(rows: Rows, base_timestamp: int) -> bytes:
    """For columns that the fast path cannot express."""
    body = bytearray()
    keys = [None] * len(rows) if rows.keys is None else rows.keys.to_pylist()
    headers = rows.headers or [()] * len(rows)
    columns = zip(keys, rows.values.to_pylist(), rows.timestamps.tolist(), headers, strict=True)
    for number, (key, value, timestamp, record_headers) in enumerate(columns):
        append_record(body, Record(-1, timestamp, key, value, record_headers), number, timestamp - base_timestamp)
    return bytes(body)


__all__ = ["Body", "Rows", "encode", "sealed_header"]
