"""Positions in many records, read all at once.

Positions only advance, each within the bytes of its own record: a read beyond its end marks the record as damaged. A
damaged record is read on with values that mean nothing, and dropped at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.records.columns.varint_columns import GUARD_BYTES, VALUE, WIDTH, ByteView, read_unsigned, unzigzag
from oncelog.schemas.values.avro_bounds import Walked

Array: TypeAlias = "pa.Array[Any]"
Longs: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Indexes: TypeAlias = npt.NDArray[np.intp]

_ONE_BYTE: Final = unzigzag(np.arange(256, dtype=np.uint64))
"""Byte → value of the zigzag varint that it is."""
TOO_SHORT: Final = "the bytes end within a value"
NO_VARINT: Final = "a variable-length integer has more than ten bytes"


class Damage:
    """Why records cannot be decoded: the first reason of each."""

    __slots__ = ("_codes", "_reasons", "empty_items")

    def __init__(self, count: int) -> None:
        self.empty_items = np.zeros(count, np.int64)  # items without bytes, of each record
        self._codes = np.zeros(count, np.int32)
        self._reasons: dict[str, int] = {}

    def mark(self, rows: Indexes | Longs, reason: str) -> None:
        if len(rows):
            code = self._reasons.setdefault(reason, len(self._reasons) + 1)
            self._codes[rows[self._codes[rows] == 0]] = code

    @property
    def any(self) -> bool:
        return bool(self._reasons)

    @property
    def mask(self) -> Mask:
        mask: Mask = self._codes != 0
        return mask

    def reasons(self) -> Array:
        """A dictionary array: each record's reason, or null."""
        intact = ~self.mask
        codes: Any = pa.array(self._codes - 1, mask=intact)
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(self._reasons), pa.string()))


class Payloads:
    """The bytes of records, one after another, with a guard behind them so that reads need no bounds."""

    __slots__ = ("_walked", "buffer", "bytes", "limit", "view")

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self._walked: Walked | None = None
        self.bytes = np.zeros(len(data) + GUARD_BYTES, np.uint8)
        self.bytes[: len(data)] = data
        self.buffer = buffer_of(self.bytes)
        self.view = ByteView(self.bytes)
        self.limit = len(data)

    @property
    def walked(self) -> Walked:
        # Copied once: arrays may have any number of values to walk.
        if self._walked is None:
            self._walked = Walked(self.bytes)
        return self._walked


class Cursor:
    """A position ``at`` in each of some records (or in several places of one), and the end of its record.

    ``rows`` has the number of each position's record. Reads advance the positions. A mask ``valid`` selects those to
    read: others stay, and their values are 0 or empty.
    """

    __slots__ = ("at", "damage", "ends", "payloads", "rows")

    def __init__(self, payloads: Payloads, at: Longs, ends: Longs, rows: Indexes, damage: Damage) -> None:
        self.payloads, self.at, self.ends, self.rows, self.damage = payloads, at, ends, rows, damage

    def __len__(self) -> int:
        return len(self.at)

    def subset(self, index: Indexes) -> Cursor:
        return Cursor(self.payloads, self.at[index], self.ends[index], self.rows[index], self.damage)

    def placed(self, index: Indexes, at: Longs) -> Cursor:
        """Positions ``at`` in the records of the positions ``index``, which may repeat."""
        return Cursor(self.payloads, at, self.ends[index], self.rows[index], self.damage)

    def mark(self, bad: Mask, reason: str) -> None:
        if bad.any():
            self.damage.mark(self.rows[bad], reason)

    # Reading

    def longs(self, valid: Mask | None = None) -> Longs:
        """Zigzag varints."""
        first = self._first_bytes()
        if not len(first) or int(first.max()) < 0x80:
            values = _ONE_BYTE.take(first)
            self.at = self.at + (1 if valid is None else valid)
        else:
            values, widths = self._longs(valid)
            self.at = self.at + (widths if valid is None else widths * valid)
        return values if valid is None else values * valid

    def unsigned(self) -> npt.NDArray[np.uint64]:
        """Varints without zigzag."""
        first = self._first_bytes()
        if not len(first) or int(first.max()) < 0x80:
            self.at = self.at + 1
            return first.astype(np.uint64)
        values, widths = self._unsigned(None)
        self.at = self.at + widths
        return values

    def _first_bytes(self) -> npt.NDArray[np.uint8]:
        return self.payloads.bytes.take(self.at, mode="clip")

    def _longs(self, valid: Mask | None) -> tuple[Longs, npt.NDArray[np.uint8]]:
        pairs = self.payloads.view.pairs[np.minimum(self.at, self.payloads.limit)]
        widths = WIDTH.take(pairs)
        wide = np.flatnonzero(widths == 0)
        if 2 * len(wide) > len(widths):
            unsigned, widths = self._unsigned(valid)
            return unzigzag(unsigned), widths
        values = VALUE.take(pairs).astype(np.int64)
        if len(wide):
            part = self.subset(wide)
            unsigned, widths[wide] = part._unsigned(None if valid is None else valid[wide])
            values[wide] = unzigzag(unsigned)
        return values, widths

    def _unsigned(self, valid: Mask | None) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        values, widths = read_unsigned(self.payloads.view, np.minimum(self.at, self.payloads.limit))
        endless = widths == 0
        if endless.any():
            self.mark(endless if valid is None else endless & valid, NO_VARINT)
            widths[endless] = 1
        return values, widths

    def octets(self, valid: Mask | None = None) -> npt.NDArray[np.uint8]:
        values = self._first_bytes()
        self.at = self.at + (1 if valid is None else valid)
        return values if valid is None else values * valid

    def words(self, size: int, valid: Mask | None = None) -> npt.NDArray[np.unsignedinteger[Any]]:
        """Four or eight bytes, little endian."""
        view = self.payloads.view
        at = np.minimum(self.at, self.payloads.limit)
        source = view.words if size == 8 else np.ndarray(len(view.bytes) - 3, "<u4", view.bytes.data, 0, (1,))
        values: npt.NDArray[np.unsignedinteger[Any]] = source[at]
        self.at = self.at + (size if valid is None else valid * size)
        return values if valid is None else values * valid

    def spans(self, lengths: Longs | int, valid: Mask | None = None) -> tuple[Longs, Longs]:
        """Starts and lengths of the next bytes. A length that does not fit marks its record, and is 0."""
        expected = np.full(len(self.at), lengths, np.int64) if isinstance(lengths, int) else lengths
        if valid is not None and isinstance(lengths, int):
            expected = expected * valid
        room = self.ends - self.at
        # One comparison for both bounds: a negative length is a huge unsigned number.
        bad = (expected.view(np.uint64) > np.maximum(room, 0).view(np.uint64)) | (room < 0)
        if bad.any():
            self.mark(
                (bad & (expected < 0)) if valid is None else (bad & valid & (expected < 0)), "a length is negative"
            )
            self.mark(bad if valid is None else bad & valid, TOO_SHORT)
            expected = np.where(bad, 0, expected)
        starts = np.minimum(self.at, self.ends) if bad.any() else self.at
        self.at = self.at + expected
        return starts, expected

    def gather(self, starts: Longs, lengths: Longs) -> Array:
        """The spans as a binary array. They are in the order of the bytes, and do not overlap."""
        count = len(starts)
        # Spans and the gaps between them are one binary array over all bytes: every second value is a span, and Arrow
        # copies those.
        offsets = np.empty(2 * count + 1, np.int32)
        offsets[0 : 2 * count : 2] = starts
        offsets[1::2] = starts + lengths
        offsets[2 * count] = offsets[2 * count - 1] if count else 0
        spans = pa.Array.from_buffers(pa.binary(), 2 * count, [None, buffer_of(offsets), self.payloads.buffer])
        return taken(spans, np.arange(0, 2 * count, 2, dtype=np.int32))

    def finish(self) -> None:
        """Mark records with bytes that were not read, and those read beyond their end."""
        if bool((self.at != self.ends).any()):
            self.mark(self.at > self.ends, TOO_SHORT)
            self.mark(self.at < self.ends, "bytes are left over behind the value")


def buffer_of(values: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(values.data)


def bitmap(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None else buffer_of(np.packbits(valid, bitorder="little"))


def array_of(kind: pa.DataType, values: npt.NDArray[Any], valid: Mask | None = None, count: int | None = None) -> Array:
    """Values of a fixed width as an array; ``count`` of them if they are bits."""
    return pa.Array.from_buffers(
        kind, len(values) if count is None else count, [bitmap(valid), buffer_of(np.ascontiguousarray(values))]
    )


def with_nulls(array: Array, index: Indexes, count: int) -> Array:
    """``count`` values: those of the array at ``index``, null elsewhere."""
    places = np.zeros(count, np.int32)
    places[index] = np.arange(len(index), dtype=np.int32)
    missing = np.ones(count, np.bool_)
    missing[index] = False
    return taken(array, places, missing)


def taken(array: Array, places: npt.NDArray[Any], missing: Mask | None = None) -> Array:
    """The values at these places of an array, and null where ``missing`` is set."""
    indices: Any = pa.array(places, mask=missing)
    return array.take(indices)


def nulls(count: int, kind: Any) -> Array:
    array: Array = pa.nulls(count, kind)
    return array


def joined(arrays: Sequence[Array], kind: pa.DataType) -> Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(list(arrays)) if arrays else nulls(0, kind)
