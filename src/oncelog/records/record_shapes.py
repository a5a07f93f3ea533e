"""The shape of a record, and columns: the same byte of many equally shaped records."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.base.units import INT64_MAX
from oncelog.records.errors import CorruptBatch, TooMuchWork
from oncelog.records.varint import read_varint, read_varlong

TWO_BYTES: Final = 1 << 14
"""Zigzag integers below have one or two bytes as varints."""
SEGMENT: Final = 1 << 13
"""Offset deltas with the same quotient by this have the same third byte."""
ONE_BYTE_DELTAS: Final = 64
_THREE_BYTE_DELTAS: Final = 1 << 20
_FIRST_BYTES: Final = bytes(delta << 1 & 0x7F | 0x80 for delta in range(SEGMENT))
_SECOND_BYTES: Final = bytes(delta >> 6 for delta in range(SEGMENT))
_SECOND_OF_THREE: Final = bytes(byte | 0x80 for byte in _SECOND_BYTES)
_ONLY_BYTES: Final = bytes(range(0, 2 * ONE_BYTE_DELTAS, 2))
_ENDS: Final = bytes(range(0x80))
"""Last bytes of an integer."""
_CONTINUES: Final = bytes(range(0x80, 0x100))


def offset_bytes(number: int) -> int:
    return 1 if number < ONE_BYTE_DELTAS else 2 if number < SEGMENT else 3 if number < _THREE_BYTE_DELTAS else 4


def same_bytes_until(number: int) -> int:
    """The number from which offset deltas have more bytes than that of ``number``, or another third byte."""
    return ONE_BYTE_DELTAS if number < ONE_BYTE_DELTAS else number - number % SEGMENT + SEGMENT


def same_width(columns: list[bytes]) -> int:
    """The number of leading integers that have as many bytes as there are columns."""
    count = len(columns[0])
    for column in columns[:-1]:
        count = min(count, len(column) - len(column.lstrip(_CONTINUES)))
    if not columns[-1].isascii():
        count = min(count, len(columns[-1]) - len(columns[-1].lstrip(_ENDS)))
    return count


def count_from(number: int, columns: list[bytes]) -> bool:
    """True if the offset deltas in these byte columns are ``number`` and its successors."""
    count = len(columns[0])
    if len(columns) == 1:
        return columns[0] == _ONLY_BYTES[number : number + count]
    within = number % SEGMENT
    if columns[0] != _FIRST_BYTES[within : within + count]:
        return False
    if len(columns) == 2:
        return columns[1] == _SECOND_BYTES[within : within + count]
    third = number // SEGMENT
    return columns[1] == _SECOND_OF_THREE[within : within + count] and columns[2] == bytes((third,)) * count


def after_headers(data: bytes, at: int, count: int) -> int:
    """The position after a record's headers; some other position if their integers are unusually long."""
    if count & 1 or count > 127:
        return -1
    for _ in range(count >> 1):
        name = data[at]
        if name & 1 or name > 127:
            return -1
        at += 1 + (name >> 1)
        value = data[at]
        at += 1
        if value > 127:
            value = value & 127 | data[at] << 7
            at += 1
            if value >= TWO_BYTES:
                return -1
        if not value & 1:
            at += value >> 1
    return at


class Shape(NamedTuple):
    """Positions count from the record's first byte."""

    end: int
    """The position after the record, from the beginning of the data."""
    timestamp: int
    """Zigzag, as encoded."""
    timestamp_at: int
    timestamp_bytes: int
    offset_delta: int
    offset_at: int
    offset_bytes: int
    keyless: bool
    lengths: list[int]
    """Positions of the bytes of lengths."""


def read_shape(data: bytes, start: int, effort: int = INT64_MAX) -> Shape:
    """Read one record's structure, without the bytes of keys, values and headers. Raises CorruptBatch, and TooMuchWork
    for more than ``effort`` headers."""
    length, at = read_varint(data, start)
    end = at + length
    if length < 0 or end > len(data):
        raise CorruptBatch(f"record of {length} bytes at {at}, {len(data) - at} left")
    lengths = list(range(at - start))
    timestamp_at = at + 1
    timestamp, offset_at = read_timestamp(data, timestamp_at)
    offset_delta, key_at = read_varint(data, offset_at)
    key, at = _skip(data, key_at, end, lengths, start)
    _, at = _skip(data, at, end, lengths, start)
    count, after = read_varint(data, at)
    lengths += range(at - start, after - start)
    at = after
    if count < 0 or 2 * count > end - at:
        raise CorruptBatch(f"{count} record headers declared, {end - at} bytes left")
    if effort <= 0 or count > effort:
        raise TooMuchWork
    for _ in range(count):
        name, at = _skip(data, at, end, lengths, start)
        if name < 0:
            raise CorruptBatch("record header without a name")
        _, at = _skip(data, at, end, lengths, start)
    if at != end:
        raise CorruptBatch(f"record ends at {at}, its length says {end}")
    return Shape(
        end,
        timestamp,
        timestamp_at - start,
        offset_at - timestamp_at,
        offset_delta,
        offset_at - start,
        key_at - offset_at,
        key < 0,
        lengths,
    )


def read_timestamp(data: bytes, at: int) -> tuple[int, int]:
    """A timestamp delta, zigzag as encoded, and the position after it."""
    byte = data[at] if at < len(data) else 0xFF
    if byte < 0x80:
        return byte, at + 1
    delta, after = read_varlong(data, at)
    return (delta << 1 if delta >= 0 else (-delta << 1) - 1), after


def _skip(data: bytes, at: int, end: int, lengths: list[int], start: int) -> tuple[int, int]:
    """The length of a field, negative for null, and the position after it."""
    byte = data[at] if at < end else 0xFF
    if byte < 0x80:  # nearly always
        size, after = (byte >> 1) ^ -(byte & 1), at + 1
        lengths.append(at - start)
    else:
        size, after = read_varint(data, at)
        lengths += range(at - start, after - start)
    following = after + size if size > 0 else after
    if following > end:
        raise CorruptBatch(f"field of {size} bytes at {after}, record ends at {end}")
    return size, following
