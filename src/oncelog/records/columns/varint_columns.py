"""Zigzag varints at many positions of a buffer at once.

A :class:`ByteView` must have ``GUARD_BYTES`` readable bytes after the last position: callers check a field's end
*after* reading it.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from oncelog.records.batch import CorruptBatch

Bytes: TypeAlias = npt.NDArray[np.uint8]
Positions: TypeAlias = npt.NDArray[np.int64]
Integers: TypeAlias = npt.NDArray[np.signedinteger[Any]]

GUARD_BYTES: Final = 64
"""Readable bytes behind a buffer: the head of a record (length, attributes, timestamp, offset and key length) takes 41
at most."""

MAX_VARINT_BYTES: Final = 10


def _tables() -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """``VALUE`` and ``WIDTH``."""
    # Small types, and no temporaries are kept: with 64-bit numbers this would be 5 MB in each of Spark's workers.
    pair = np.arange(1 << 16, dtype=np.uint16)
    is_one_byte = pair & 0x80 == 0
    is_two_bytes = ~is_one_byte & (pair < 0x8000)
    unsigned = np.where(is_one_byte, pair & 0x7F, (pair & 0x7F) | (pair >> 8 << 7))
    unsigned[~(is_one_byte | is_two_bytes)] = 0
    value = (unsigned >> 1).astype(np.int32)
    np.invert(value, out=value, where=unsigned & 1 == 1)
    return value, is_one_byte + is_two_bytes * np.uint8(2)


_VALUE, _WIDTH = _tables()
VALUE: Final = _VALUE
"""Two bytes (little endian) → value of the varint that begins there, if it has at most two bytes."""
WIDTH: Final = _WIDTH
"""Two bytes → width of that varint; 0: longer than two bytes."""

_CONTINUATION_BITS: Final = np.uint64(0x8080808080808080)
_U1: Final = np.uint64(1)


class ByteView:
    """A buffer with the two and the eight bytes that begin at every position."""

    __slots__ = ("bytes", "pairs", "words")

    def __init__(self, data: Bytes) -> None:
        self.bytes = data
        self.pairs: npt.NDArray[np.uint16] = np.ndarray(len(data) - 1, "<u2", data, 0, (1,))
        self.words: npt.NDArray[np.uint64] = np.ndarray(len(data) - 7, "<u8", data, 0, (1,))


# Most varints of a record have one or two bytes: a table from two bytes to value and width answers them with one
# look-up. Longer ones are decoded from the eight bytes at their position.
def read_varints(view: ByteView, positions: Positions) -> tuple[Integers, npt.NDArray[np.uint8]]:
    """Values and widths. Raises CorruptBatch for one longer than ten bytes."""
    pairs = view.pairs[positions]
    widths = WIDTH[pairs]
    if widths.all():
        return VALUE[pairs], widths
    values = VALUE[pairs].astype(np.int64)
    wide = np.flatnonzero(widths == 0)
    unsigned, widths[wide] = read_unsigned(view, positions[wide])
    if not widths.all():
        raise CorruptBatch("a variable-length integer does not end")
    values[wide] = unzigzag(unsigned)
    return values, widths


def unzigzag(unsigned: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return (unsigned >> _U1).astype(np.int64) ^ -(unsigned & _U1).astype(np.int64)


def read_unsigned(view: ByteView, positions: Positions) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
    """The same without zigzag. Width 0: longer than ten bytes."""
    words = view.words[positions]
    ends = ~words & _CONTINUATION_BITS
    # The last byte of a varint is the first of the eight without a continuation bit.
    first_end = ends & (~ends + _U1)
    words &= (first_end << _U1) - _U1
    unsigned = words & np.uint64(0x7F)
    for byte in range(1, 8):
        unsigned |= (words & np.uint64(0x7F << (8 * byte))) >> np.uint64(byte)
    widths = ((np.bitwise_count(first_end - _U1) + 1) >> 3).astype(np.uint8)
    longer = np.flatnonzero(ends == 0)
    if len(longer):
        ninth, tenth = (view.bytes[positions[longer] + byte].astype(np.uint64) for byte in (8, 9))
        is_nine, is_ten = ninth < 0x80, (ninth >= 0x80) & (tenth < 0x80)
        unsigned[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        unsigned[longer] |= (tenth * is_ten) << np.uint64(63)
        widths[longer] = is_nine * 9 + is_ten * 10
    return unsigned, widths


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The varint at ``position`` → (value, position after it), cut to 64 bits like Java's long."""
    unsigned = 0
    for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        unsigned |= (byte & 0x7F) << shift
        if byte < 0x80:
            unsigned &= (1 << 64) - 1
            return (unsigned >> 1) ^ -(unsigned & 1), position
    raise CorruptBatch("a variable-length integer does not end")
