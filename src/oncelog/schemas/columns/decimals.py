"""Decimals of big-endian two's complement to Arrow's little-endian ones, and UUIDs of 16 bytes to their text."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from oncelog.records.columns.varint_columns import Bytes
from oncelog.schemas.columns.cursor import Array, Cursor, Longs, Mask, array_of, bitmap, buffer_of
from oncelog.schemas.columns.nodes import content_of, offsets_of

MAX_PRECISION: Final = 76
_TOO_LARGE: Final = "a decimal has more digits than its precision"
_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(256, 2)
_UUID_DASHES: Final = (8, 13, 18, 23)


def decimal_type(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def decimals(data: Array, cursor: Cursor, kind: Any) -> Array:
    """Binary values as decimals. A value with too many digits marks its record."""
    width: int = kind.byte_width
    offsets = offsets_of(data).astype(np.int64)
    content = np.append(content_of(data), np.uint8(0))
    starts, ends = offsets[:-1], offsets[1:]
    lengths = ends - starts
    negative = (content.take(starts, mode="clip") >= 0x80) & (lengths > 0)
    fill = negative * np.uint8(0xFF)
    unscaled = np.empty((len(data), width), np.uint8)
    for place in range(width):
        octets = content.take(np.maximum(ends - 1 - place, 0), mode="clip")
        unscaled[:, place] = np.where(lengths > place, octets, fill)
    bad = _too_long(content, starts, lengths, fill, width)
    bad |= (unscaled[:, -1] >= 0x80) != negative
    unscaled[bad] = 0
    valid: Mask | None = np.asarray(data.is_valid()) if data.null_count else None
    array: Array = pa.Array.from_buffers(kind, len(data), [bitmap(valid), buffer_of(unscaled)])
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        largest = Decimal(10) ** (kind.precision - kind.scale)
        values: Any = array
        numbers = values.to_pylist()
        over = np.array([value is not None and value.copy_abs() >= largest for value in numbers], np.bool_)
        unscaled[over] = 0
        bad |= over
    cursor.mark(bad, _TOO_LARGE)
    return array


def _too_long(content: Bytes, starts: Longs, lengths: Longs, fill: Bytes, width: int) -> Mask:
    """Values of more bytes than ``width`` whose first ones are not only the sign."""
    bad = np.zeros(len(starts), np.bool_)
    for index in np.flatnonzero(lengths > width).tolist():
        start = int(starts[index])
        bad[index] = bool((content[start : start + int(lengths[index]) - width] != fill[index]).any())
    return bad


def uuid_texts(data: Any, cursor: Cursor) -> Array:
    """UUIDs of 16 bytes as their 36 characters."""
    count = len(data)
    valid: Mask | None = np.asarray(data.is_valid()) if data.null_count else None
    octets = np.frombuffer(memoryview(data.buffers()[1]), np.uint8)[: 16 * count].reshape(count, 16)
    text = np.full((count, 36), ord("-"), np.uint8)
    places = [place for place in range(36) if place not in _UUID_DASHES]
    text[:, places] = _HEX[octets].reshape(count, 32)
    offsets = array_of(pa.int32(), np.arange(0, 36 * count + 1, 36, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), count, [bitmap(valid), offsets.buffers()[1], buffer_of(text)])
