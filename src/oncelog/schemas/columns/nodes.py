"""Nodes read one type at all positions of a cursor; here are those of types without parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.schemas.columns.cursor import Array, Cursor, Longs, Mask, array_of, bitmap, buffer_of, nulls

INT_BOUNDS: Final = (-(1 << 31), (1 << 31) - 1)


class Node(Protocol):
    """Reads values of ``type``. ``min_bytes`` is the fewest bytes of a value, ``width`` their number if all have the
    same. A node that is ``maskable`` reads only the positions of a mask, and others are null."""

    type: pa.DataType
    min_bytes: int
    width: int | None
    maskable: bool

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array: ...

    def skip(self, cursor: Cursor) -> None: ...


class Null:
    type: pa.DataType = pa.null()
    min_bytes = 0
    width: int | None = 0
    maskable = True

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        return nulls(len(cursor), pa.null())

    def skip(self, cursor: Cursor) -> None:
        pass


class Boolean:
    type: pa.DataType = pa.bool_()
    min_bytes = 1
    width: int | None = 1
    maskable = True

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        octets = cursor.octets(valid)
        cursor.mark(octets > 1, "a boolean is neither 0 nor 1")
        bits = buffer_of(np.packbits(octets, bitorder="little"))
        return pa.Array.from_buffers(self.type, len(octets), [bitmap(valid), bits])

    def skip(self, cursor: Cursor) -> None:
        self.read(cursor)


class Varint:
    """Whole numbers within ``bounds``, as ``dtype``: floats are rounded."""

    min_bytes = 1
    width: int | None = None
    maskable = True

    def __init__(self, kind: pa.DataType, dtype: Any, bounds: tuple[int, int] | None, label: str = "an int") -> None:
        self.type, self._dtype, self._bounds, self._label = kind, dtype, bounds, label

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        return array_of(self.type, self._checked(cursor, valid).astype(self._dtype, copy=False), valid)

    def skip(self, cursor: Cursor) -> None:
        self._checked(cursor, None)

    def _checked(self, cursor: Cursor, valid: Mask | None) -> Longs:
        values = cursor.longs(valid)
        if self._bounds is not None and len(values):
            low, high = self._bounds
            if int(values.min()) < low or int(values.max()) > high:
                outside = (values < low) | (values > high)
                cursor.mark(outside, f"{self._label} is outside {low} to {high}")
                values = np.where(outside, 0, values)
        return values


class Float:
    """IEEE 754 numbers of ``width`` bytes, read as ``kind`` of at least that width."""

    maskable = True

    def __init__(self, width: int, kind: pa.DataType) -> None:
        self.type, self.min_bytes = kind, width
        self.width: int | None = width
        self._native = pa.float32() if width == 4 else pa.float64()

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        array = array_of(self._native, cursor.words(self.min_bytes, valid), valid)
        return array if self.type == self._native else array.cast(self.type)

    def skip(self, cursor: Cursor) -> None:
        cursor.at = cursor.at + self.min_bytes


class Binary:
    """Bytes or text behind their length (``size`` None), or bytes of a fixed size."""

    maskable = True

    def __init__(self, kind: pa.DataType, size: int | None = None) -> None:
        self.type, self.width, self._size = kind, size, size
        self.min_bytes = 1 if size is None else size

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        data = self.gather(cursor, valid)
        if self.type == pa.string():
            data = as_text(data, cursor)
        elif self.type != pa.binary():  # of a fixed size, which damaged records lack
            data = as_fixed(data, self.type)
        return data if valid is None else _masked(data, valid)

    def gather(self, cursor: Cursor, valid: Mask | None) -> Array:
        sizes = cursor.longs(valid) if self._size is None else self._size
        return cursor.gather(*cursor.spans(sizes, valid))

    def skip(self, cursor: Cursor) -> None:
        cursor.spans(cursor.longs() if self._size is None else self._size)


def as_fixed(data: Array, kind: pa.DataType) -> Array:
    """Bytes of a fixed size; empty ones are null."""
    size: int = kind.byte_width
    content = data.buffers()[2]
    if content is not None and content.size == size * len(data) and not data.offset:
        return pa.Array.from_buffers(kind, len(data), [None, content])
    lengths = np.diff(offsets_of(data))
    complete = pa.Array.from_buffers(pa.binary(), len(data), [bitmap(lengths == size), *data.buffers()[1:]])
    return complete.cast(kind)


def offsets_of(data: Array) -> npt.NDArray[np.int32]:
    buffer = data.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(len(data) + 1, np.int32)
    return np.frombuffer(memoryview(buffer), np.int32)[data.offset : data.offset + len(data) + 1]


def content_of(data: Array) -> npt.NDArray[np.uint8]:
    buffer = data.buffers()[2]
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(memoryview(buffer), np.uint8)


def as_text(data: Array, cursor: Cursor) -> Array:
    """Binary as text. Invalid UTF-8 marks its record, and is empty."""
    content = content_of(data)
    if len(content) and int(content.max()) >= 0x80:
        try:
            data.cast(pa.string())
        except pa.ArrowInvalid:
            rows: list[Any] = data.to_pylist()
            bad = np.array([not _is_text(value) for value in rows], np.bool_)
            cursor.mark(bad, "a string is not UTF-8")
            data = pa.array(["" if wrong else value for wrong, value in zip(bad, rows, strict=True)], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(data), data.buffers(), offset=data.offset)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _masked(data: Array, valid: Mask) -> Array:
    """The array, null where ``valid`` is not set."""
    if data.null_count:
        valid = valid & np.asarray(data.is_valid())
    return pa.Array.from_buffers(data.type, len(data), [bitmap(valid), *data.buffers()[1:]])


class Enum:
    """Symbols by number. ``codes``: the writer's number → the reader's, −1 for a symbol that the reader lacks."""

    min_bytes = 1
    width: int | None = None
    maskable = True

    def __init__(self, symbols: Sequence[str], codes: Sequence[int], name: str) -> None:
        self.type: pa.DataType = pa.dictionary(pa.int32(), pa.string())
        self._symbols = pa.array(symbols, pa.string())
        self._codes = np.array(codes, np.int32)
        self._name = name

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        numbers = cursor.longs(valid)
        outside = (numbers < 0) | (numbers >= len(self._codes))
        if outside.any():
            cursor.mark(outside, f"enum {self._name} has no such number")
            numbers = np.where(outside, 0, numbers)
        codes = self._codes.take(numbers, mode="clip")
        lacking = codes < 0
        if lacking.any():
            cursor.mark(
                lacking if valid is None else lacking & valid, f"the reader's enum {self._name} lacks the symbol"
            )
            codes = np.where(lacking, 0, codes)
        return pa.DictionaryArray.from_arrays(array_of(pa.int32(), codes, valid), self._symbols)

    def skip(self, cursor: Cursor) -> None:
        self.read(cursor)


class Converted:
    """A node whose array becomes another type. ``convert`` may mark records."""

    def __init__(self, node: Node, kind: pa.DataType, convert: Callable[[Array, Cursor], Array]) -> None:
        self._node, self.type, self._convert = node, kind, convert
        self.min_bytes, self.width, self.maskable = node.min_bytes, node.width, node.maskable

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        return self._convert(self._node.read(cursor, valid), cursor)

    def skip(self, cursor: Cursor) -> None:
        self._node.skip(cursor)


class Unreadable:
    """A type that the reader's schema cannot take: its records are damaged."""

    maskable = True

    def __init__(self, node: Node, kind: pa.DataType, reason: str) -> None:
        self._node, self.type, self._reason = node, kind, reason
        self.min_bytes, self.width = node.min_bytes, node.width

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        bad = np.ones(len(cursor), np.bool_) if valid is None else valid
        cursor.mark(bad, self._reason)
        return nulls(len(cursor), self.type)

    def skip(self, cursor: Cursor) -> None:
        self._node.skip(cursor)


def lengths_to_offsets(lengths: Longs) -> Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return array_of(pa.int32(), offsets)
