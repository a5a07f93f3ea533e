"""Joins small pieces, keys and values of many records by one C++ copy.

A *binary view* is 16 bytes: a length, and either the bytes (up to 12) or a buffer and a position in it. Pieces are
written for all records at once as byte columns of a matrix, and become the views' own bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array: TypeAlias = "pa.Array[Any]"
Longs: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint32]

INLINE: Final = 12
NONE_LENGTH: Final = 1
"""The length −1 as a zigzag varint."""
_ROOM: Final = 24
"""Bytes of a piece: two full ones that turn out not to fit, and the overflow of the last varint."""
_TABLE_SIZE: Final = 1 << 14
_NUMBERS: Final = np.arange(_TABLE_SIZE, dtype=np.uint32)
_TABLE: Final = np.where(_NUMBERS < 128, _NUMBERS, (_NUMBERS & 127) | 128 | ((_NUMBERS >> 7) << 8)).astype(np.uint32)
"""Unsigned number below 2¹⁴ → its varint, little endian."""
_KEEP: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint32)


def zigzag(numbers: Longs) -> Longs:
    """Signed → unsigned, as in varints."""
    return (numbers << 1) ^ (numbers >> 63)


def varint_width(unsigned: Longs) -> Longs:
    """Bytes of each varint, at most four here."""
    highest = int(unsigned.max()) if len(unsigned) else 0
    widths = np.ones(len(unsigned), np.int64)
    for bits in (7, 14, 21):
        if highest >> bits:
            widths += unsigned >= (1 << bits)
    return widths


def _encoded(unsigned: Longs) -> Words:
    if not len(unsigned) or int(unsigned.max()) < _TABLE_SIZE:
        return _TABLE[unsigned]
    z = unsigned.astype(np.uint32)
    words = (z & 127) | ((z >> 7) & 127) << 8 | ((z >> 14) & 127) << 16 | (z >> 21) << 24
    for bits, flag in ((7, 0x80), (14, 0x8000), (21, 0x800000)):
        words |= np.where(z >= 1 << bits, np.uint32(flag), np.uint32(0))
    return words.astype(np.uint32)


class Field:
    """A binary column in memory; for null ``lengths`` has −1, ``sizes`` 0."""

    __slots__ = ("data", "lengths", "sizes", "starts")

    def __init__(self, starts: Longs, lengths: Longs, sizes: Longs, data: pa.Buffer) -> None:
        self.starts, self.lengths, self.sizes, self.data = starts, lengths, sizes, data

    @property
    def longest(self) -> int:
        return int(self.sizes.max()) if len(self.sizes) else 0

    def slice(self, start: int, end: int) -> Field:
        return Field(self.starts[start:end], self.lengths[start:end], self.sizes[start:end], self.data)

    def views(self, into: Words, column: int, buffer: int) -> None:
        """Write the views of this column of the matrix (records, columns, 4 words)."""
        lengths = self.sizes
        into[:, column, 0] = lengths
        into[:, column, 2] = buffer
        into[:, column, 3] = self.starts
        data = bytes_of(self.data)
        if len(data) < 4:
            data = np.concatenate([data, np.zeros(4, np.uint8)])
        words: Words = np.ndarray(len(data) - 3, "<u4", data.data, 0, (1,))
        into[:, column, 1] = words[np.minimum(self.starts, len(words) - 1)]
        short = np.flatnonzero(lengths <= INLINE)
        if not len(short):
            return
        starts, left = self.starts[short], lengths[short]
        if int(starts.max()) + INLINE + 4 > len(data):  # the last ones reach past the end: read a padded copy of them
            low = int(starts.min())
            data = np.concatenate([data[low:], np.zeros(INLINE + 4, np.uint8)])
            words, starts = np.ndarray(len(data) - 3, "<u4", data.data, 0, (1,)), starts - low
        for word in range(3):
            kept = _KEEP[np.clip(left - 4 * word, 0, 4)]
            into[short, column, 1 + word] = words[np.minimum(starts + 4 * word, len(words) - 1)] & kept


def bytes_of(data: pa.Buffer) -> npt.NDArray[np.uint8]:
    return np.frombuffer(memoryview(data), np.uint8) if data.size else np.zeros(0, np.uint8)


def field_of(column: Array) -> Field:
    """The field of a binary or string array, without a copy of its bytes."""
    buffers = column.buffers()
    count = len(column)
    if buffers[1] is None:
        zeros = np.zeros(count, np.int64)
        return Field(zeros, zeros - (1 if column.null_count else 0), zeros, pa.py_buffer(b""))
    offsets = np.frombuffer(memoryview(buffers[1]), np.int32)[column.offset : column.offset + count + 1].astype(
        np.int64
    )
    sizes = np.diff(offsets)
    lengths = sizes
    if column.null_count:
        null = ~np.asarray(column.is_valid())
        sizes = np.where(null, 0, sizes)
        lengths = np.where(null, -1, sizes)
    return Field(offsets[:-1], lengths, sizes, buffers[2] if buffers[2] is not None else pa.py_buffer(b""))


class Pieces:
    """A few bytes of each record, written one after another."""

    __slots__ = ("_at", "_flat", "_words", "bytes", "widths")

    def __init__(self, count: int) -> None:
        self.bytes = np.zeros((count, _ROOM), np.uint8)
        self.widths = np.zeros(count, np.int64)
        self._flat = self.bytes.reshape(-1)
        self._words: Words = np.ndarray(max(0, count * _ROOM - 3), "<u4", self._flat.data, 0, (1,))
        self._at = np.arange(0, count * _ROOM, _ROOM)
        """The position of each record's next byte."""

    def byte(self, value: int) -> None:
        if value:
            self._flat[self._at] = value
        self._at += 1
        self.widths += 1

    def varint(self, unsigned: Longs, widths: Longs) -> None:
        """Append to each piece a varint of at most four bytes, with its ``varint_width``."""
        self._words[self._at] = _encoded(unsigned)
        self._at += widths
        self.widths += widths

    @staticmethod
    def merged(first: Pieces, second: Pieces) -> list[Pieces]:
        """Both merged into one if they fit for all records, else both unchanged."""
        if not len(first.widths) or int((first.widths + second.widths).max()) > INLINE:
            return [first, second]
        words = np.ascontiguousarray(second.bytes[:, :INLINE]).view("<u4")
        for word in range(-(-int(second.widths.max()) // 4)):
            first._words[first._at + 4 * word] = words[:, word]
        first.widths += second.widths
        first._at += second.widths
        return [first]

    def views(self, into: Words, column: int, buffer: int) -> None:
        """Write the views of this column of the matrix, which contain their bytes."""
        into[:, column, 0] = self.widths
        into[:, column, 1:4] = np.ascontiguousarray(self.bytes[:, :INLINE]).view("<u4")

    @staticmethod
    def join(columns: Sequence[Pieces | Field], count: int) -> pa.Buffer:
        """All records' columns one after another, and a zero."""
        matrix = np.zeros(count * len(columns) * 4 + 4, np.uint32)
        views = matrix[:-4].reshape(count, len(columns), 4)
        matrix[-4] = 1
        buffers: list[pa.Buffer] = []
        for number, column in enumerate(columns):
            column.views(views, number, len(buffers))
            if isinstance(column, Field):
                buffers.append(column.data)
        total = count * len(columns) + 1
        joined = pa.Array.from_buffers(pa.binary_view(), total, [None, pa.py_buffer(matrix.data), *buffers])
        data = joined.cast(pa.binary()).buffers()[2]
        assert data is not None  # at least the zero is there
        return data
