"""The records inside a batch, read one by one, each checked against its declared length.

Lengths are checked before anything is cut out, the number of headers cannot exceed the bytes left, and the caller
bounds decompression.

A record: length varint, attributes int8 (unused), timestamp delta varlong, offset delta varint, key and value as varint
length (−1: none) and bytes, header count varint, headers as key (never none) and value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from oncelog.records.batch import CODEC_MASK, HEADER_SIZE, LENGTH_PREFIX, BatchHeader, Buffer
from oncelog.records.compression import decompress
from oncelog.records.errors import CorruptBatch, RecordTooLarge, TooMuchOutput, TruncatedBatch
from oncelog.records.varint import read_varint, read_varlong

Headers = tuple[tuple[str, bytes | None], ...]
"""Names and values. A name may be any bytes: invalid UTF-8 reads as U+FFFD, as in Java."""

MIN_RECORD_BYTES: Final = 7
"""Length, attributes, two deltas, two lengths and a header count, a byte each."""


class Record(NamedTuple):
    """Absolute offset, milliseconds, and the producer's key, value and headers."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def records_data(buffer: Buffer, position: int, header: BatchHeader, max_bytes: int) -> bytes:
    """The decompressed records of the batch at ``position``, at most ``max_bytes``. Raises TruncatedBatch if the buffer
    ends before the batch, TooMuchOutput, or CorruptBatch."""
    start, end = position + HEADER_SIZE, position + LENGTH_PREFIX + header.batch_length
    if end > len(buffer):
        raise TruncatedBatch(f"batch of {header.size_bytes} bytes at {position}, buffer ends at {len(buffer)}")
    if not header.attributes & CODEC_MASK:
        if end - start > max_bytes:
            raise TooMuchOutput(max_bytes)
        data = bytes(buffer[start:end])  # bytes are not copied again
    else:
        data = decompress(header.codec, memoryview(buffer)[start:end], max_bytes) if end > start else b""
    if header.record_count < 0 or header.record_count * MIN_RECORD_BYTES > len(data):
        raise CorruptBatch(f"{header.record_count} records declared, {len(data)} bytes of records")
    return data


def read_records(buffer: Buffer, position: int, header: BatchHeader, max_bytes: int) -> Iterator[Record]:
    """The records of the batch at ``position``, in order; decompressed at the first ``next``. Raises as
    ``records_data``, and CorruptBatch if the records are not as many, or not as long, as declared."""
    yield from records_in(records_data(buffer, position, header, max_bytes), header)


def read_records_in_place(buffer: Buffer, position: int, header: BatchHeader) -> Iterator[Record]:
    """The records of an uncompressed batch without copying it; slower for small records. Raises CorruptBatch and
    TruncatedBatch."""
    start, end = position + HEADER_SIZE, position + LENGTH_PREFIX + header.batch_length
    if end > len(buffer) or header.attributes & CODEC_MASK:
        raise TruncatedBatch(f"batch of {header.size_bytes} bytes at {position}, buffer ends at {len(buffer)}")
    data = cast("bytes", memoryview(buffer)[start:end])  # Reading needs its items and slices alone.
    for record in records_in(data, header):
        key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
        headers = tuple((name, None if part is None else bytes(part)) for name, part in record.headers)
        yield Record(record.offset, record.timestamp, key, value, headers)


def records_in(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records of ``records_data``. Raises CorruptBatch as ``read_records``."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    at = 0
    for _ in range(header.record_count):
        at, offset_delta, timestamp_delta, key, value, headers = read_record(data, at)
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    if at != len(data):
        raise CorruptBatch(f"{len(data) - at} bytes after the last of {header.record_count} records")


def bodies_within(data: bytes, header: BatchHeader, max_bytes: int) -> Iterator[None]:
    """Raises RecordTooLarge."""
    # Sizes are compared without their length fields, and in compressed batches only, as in Apache Kafka.
    if len(data) <= max_bytes or not header.attributes & CODEC_MASK:
        return
    at = 0
    for _ in range(header.record_count):
        try:
            size, at = read_varint(data, at)
        except CorruptBatch:
            return  # other checks report it
        if size < 0:
            return
        if size > max_bytes:
            raise RecordTooLarge(size, max_bytes)
        yield
        at += size


def record_tails(data: bytes, header: BatchHeader) -> Iterator[bytes]:
    """The encoded keys, values and headers of the records of ``records_data``, for copies. Raises CorruptBatch for a
    length beyond the data."""
    at = 0
    for _ in range(header.record_count):
        length, at = read_varint(data, at)
        end = at + length
        if length < MIN_RECORD_BYTES - 1 or end > len(data):
            raise CorruptBatch(f"record of {length} bytes at {at}, {len(data) - at} left")
        # The attributes byte is unused.
        _, at = read_varlong(data, at + 1)
        _, at = read_varint(data, at)
        yield data[at:end]
        at = end


def read_keys_and_values(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int
) -> list[tuple[bytes | None, bytes | None]]:
    """All keys and values of the batch at ``position``, for a replay of an internal topic. Raises as ``read_records``,
    but before it returns any."""
    data = records_data(buffer, position, header, max_bytes)
    pairs: list[tuple[bytes | None, bytes | None]] = []
    at = 0
    try:
        for _ in range(header.record_count):
            at, _offset, _timestamp, key, value, _headers = _read_record(data, at)
            pairs.append((key, value))
    except IndexError:
        raise CorruptBatch(f"record at {at} reaches past the end") from None
    if at != len(data):
        raise CorruptBatch(f"{len(data) - at} bytes after the last of {header.record_count} records")
    return pairs


def read_record(data: bytes, at: int) -> tuple[int, int, int, bytes | None, bytes | None, Headers]:
    """The record at ``at``: position after it, offset delta, timestamp delta, key, value, headers."""
    try:
        return _read_record(data, at)
    except IndexError:
        raise CorruptBatch(f"record at {at} reaches past the end") from None


def _read_record(data: bytes, at: int) -> tuple[int, int, int, bytes | None, bytes | None, Headers]:
    # Varints of one byte, which are most of them, are decoded inline: this is the hot path of a batch.
    byte = data[at]
    length, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 0x80 else read_varint(data, at)
    end = at + length
    if length < MIN_RECORD_BYTES - 1 or end > len(data):
        raise CorruptBatch(f"record of {length} bytes at {at}, {len(data) - at} left")
    byte = data[at + 1]
    timestamp_delta, at = ((byte >> 1) ^ -(byte & 1), at + 2) if byte < 0x80 else read_varlong(data, at + 1)
    byte = data[at]
    offset_delta, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 0x80 else read_varint(data, at)
    key: bytes | None = None
    byte = data[at]
    size, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 0x80 else read_varint(data, at)
    if size >= 0:
        key = data[at : at + size]
        at += size
    value: bytes | None = None
    byte = data[at]
    size, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 0x80 else read_varint(data, at)
    if size >= 0:
        value = data[at : at + size]
        at += size
    headers: Headers = ()
    if at < end and data[at] == 0:
        at += 1
    else:
        headers, at = _read_headers(data, at, end)
    if at != end:
        raise CorruptBatch(f"record ends at {at}, its length says {end}")
    return end, offset_delta, timestamp_delta, key, value, headers


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    if size < 0:
        return None, at
    following = at + size
    if following > end:
        raise CorruptBatch(f"field of {size} bytes at {at}, record ends at {end}")
    return data[at:following], following


def _read_headers(data: bytes, at: int, end: int) -> tuple[Headers, int]:
    count, at = read_varint(data, at)
    if count < 0 or 2 * count > end - at:
        raise CorruptBatch(f"{count} record headers declared, {end - at} bytes left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, at = _read_bytes(data, at, end)
        if key is None:
            raise CorruptBatch("record header without a key")
        value, at = _read_bytes(data, at, end)
        headers.append((str(key, "utf-8", "replace"), value))
    return tuple(headers), at
