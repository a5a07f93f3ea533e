"""Bounds of Avro data, and its odd encodings, refused before fastavro reads it.

fastavro's recursion has no limit: five kilobytes of a linked list end the process. A count in a few bytes announces any
number of values that take no bytes, which it would build for hours. It also takes indexes of branches and symbols from
the end (-1 is the last one), any byte but 0 for true, and whole numbers of any length, which the columns' decoder and
other readers refuse. Data is therefore walked first, by functions that are made once for a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from oncelog.base.units import INT32_MAX
from oncelog.schemas.formats.avro.types import Array, AvroType, Enum, Fixed, Map, Record, Union
from oncelog.schemas.values.errors import NotReadable

MAX_DEPTH: Final = 100
VALUES_PER_BYTE: Final = 64
MAX_DECIMAL_BYTES: Final = 4096  # Python takes two minutes for the digits of a megabyte.
FREE_VALUES: Final = 100_000
"""Values that any data may have, even if it is empty."""

_ENDS: Final = "it ends too early"
_MAX_VARINT_BYTES: Final = 10
_LONG_BITS: Final = (1 << 64) - 1
_SIZES: Final = {"null": 0, "float": 4, "double": 8}


class _Data(bytes):
    """Data that is walked, and the number of items that its arrays and maps may still have."""

    left: int


_Walk: TypeAlias = Callable[[_Data, int, int], int]
"""Data, the position of a value, its depth → the position behind it. Raises NotReadable, or IndexError at the end."""


def checker(root: AvroType) -> Callable[[bytes], None]:
    """A function that raises NotReadable for data beyond the bounds, and for odd encodings."""
    walk = _Walks().of(root)

    def check(data: bytes) -> None:
        walked = _Data(data)
        walked.left = FREE_VALUES + VALUES_PER_BYTE * len(data)
        try:
            end = walk(walked, 0, 0)
        except IndexError:
            raise NotReadable(_ENDS) from None
        if end > len(data):
            raise NotReadable(_ENDS)
        if end < len(data):
            raise NotReadable(f"bytes left over: {len(data) - end}")

    return check


class _Walks:
    def __init__(self) -> None:
        self._made: dict[int, _Walk] = {}

    def of(self, kind: AvroType) -> _Walk:
        key = id(kind)
        if key not in self._made:
            # A record within itself finds its function when it is walked.
            self._made[key] = lambda data, at, depth: self._made[key](data, at, depth)
            self._made[key] = self._new(kind)
        return self._made[key]

    def _new(self, kind: AvroType) -> _Walk:
        if isinstance(kind, Record):
            return _record([self.of(field.type) for field in kind.fields])
        if isinstance(kind, Union):
            return _union([self.of(branch) for branch in kind.branches])
        if isinstance(kind, Array):
            return _blocks(self.of(kind.items))
        if isinstance(kind, Map):
            return _blocks(_record([_bytes, self.of(kind.values)]))
        if isinstance(kind, Enum):
            return _enum(len(kind.symbols))
        if isinstance(kind, Fixed):
            return _decimal(_size(kind.size)) if _is_decimal(kind) else _size(kind.size)
        if kind.kind in ("bytes", "string"):
            return _decimal(_bytes) if _is_decimal(kind) else _bytes
        return _SCALARS[kind.kind]


def _is_decimal(kind: AvroType) -> bool:
    return kind.kind in ("bytes", "fixed") and kind.properties.get("logicalType") == "decimal"


def _record(fields: Sequence[_Walk]) -> _Walk:
    def walk(data: _Data, at: int, depth: int) -> int:
        _spend(data, len(fields), depth)
        for field in fields:
            at = field(data, at, depth + 1)
        return at

    return walk


def _union(branches: Sequence[_Walk]) -> _Walk:
    def walk(data: _Data, at: int, depth: int) -> int:
        index, at = _long_at(data, at)
        if not 0 <= index < len(branches):
            raise NotReadable(f"its union has no branch {index}")
        return branches[index](data, at, depth + 1)

    return walk


def _blocks(item: _Walk) -> _Walk:
    def walk(data: _Data, at: int, depth: int) -> int:
        while True:
            count, at = _long_at(data, at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = _long_at(data, at)  # the size of the block, which fastavro ignores
            _spend(data, count, depth)
            for _ in range(count):
                at = item(data, at, depth + 1)

    return walk


def _spend(data: _Data, values: int, depth: int) -> None:
    data.left -= values
    if data.left < 0:
        raise NotReadable(f"it announces more than {VALUES_PER_BYTE} values for each of its bytes")
    if depth > MAX_DEPTH:
        raise NotReadable(f"it is nested deeper than {MAX_DEPTH} levels")


def _enum(symbols: int) -> _Walk:
    def walk(data: _Data, at: int, depth: int) -> int:
        index, at = _long_at(data, at)
        if not 0 <= index < symbols:
            raise NotReadable(f"its enum has no symbol {index}")
        return at

    return walk


def _size(size: int) -> _Walk:
    return lambda data, at, depth: at + size


def _decimal(walk: _Walk) -> _Walk:
    def walk_decimal(data: _Data, at: int, depth: int) -> int:
        end = walk(data, at, depth)
        if end - at > MAX_DECIMAL_BYTES:
            raise NotReadable(f"a decimal in it has more than {MAX_DECIMAL_BYTES} bytes")
        return end

    return walk_decimal


def _bytes(data: _Data, at: int, depth: int) -> int:
    size, at = _long_at(data, at)
    if size < 0:
        raise NotReadable(f"a length in it is negative: {size}")
    return at + size


def _boolean(data: _Data, at: int, depth: int) -> int:
    if data[at] > 1:
        raise NotReadable(f"a boolean in it is {data[at]}, neither 0 nor 1")
    return at + 1


def _int(data: _Data, at: int, depth: int) -> int:
    value, at = _long_at(data, at)
    if not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise NotReadable(f"an int in it is outside 32 bits: {value}")
    return at


def _long(data: _Data, at: int, depth: int) -> int:
    return _long_at(data, at)[1]


def _long_at(data: bytes, at: int) -> tuple[int, int]:
    """A whole number, cut to 64 bits like Java's, and the position behind it."""
    byte = data[at]
    if byte < 0x80:  # most are one byte
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = byte & 0x7F
    for number in range(1, _MAX_VARINT_BYTES):
        byte = data[at + number]
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            value &= _LONG_BITS
            return (value >> 1) ^ -(value & 1), at + number + 1
    raise NotReadable(f"a whole number in it has more than {_MAX_VARINT_BYTES} bytes")


_SCALARS: Final = {
    "null": _size(0),
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _size(4),
    "double": _size(8),
}
