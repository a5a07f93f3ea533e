"""Bounds of Avro data, and its odd encodings, refused before fastavro reads it.

fastavro's recursion has no limit: five kilobytes of a linked list end the process. A count in a few bytes announces any
number of values that take no bytes, which it would build for hours. It also takes indexes of branches and symbols from
the end (-1 is the last one), any byte but 0 for true, and whole numbers of any length, which the columns' decoder and
other readers refuse. Data is therefore walked first, by steps that are made once for a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

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


class _Data(bytes):
    """Data that is walked, and the number of items that its arrays and maps may still have."""

    left: int


_Walk: TypeAlias = Callable[[_Data, int, int], int]
"""Data, the position of a value, its depth → the position behind it. Raises NotReadable, or IndexError at the end."""
_Step: TypeAlias = tuple[int, Any]
"""A kind of value, and what the kind needs: a size, the steps of a union's branches, a function."""

_SIZE, _NUMBER, _BYTES, _UNION, _WALK = range(5)
_FEW_BYTES: Final = 4
"""Bytes of a whole number that is within 32 bits, however it is written."""
_SCALARS: Final[dict[str, _Step]] = {
    "null": (_SIZE, 0),
    "float": (_SIZE, 4),
    "double": (_SIZE, 8),
    "int": (_NUMBER, _FEW_BYTES),
    "long": (_NUMBER, _MAX_VARINT_BYTES),
    "bytes": (_BYTES, None),
    "string": (_BYTES, None),
}


def checker(root: AvroType) -> Callable[[bytes], None]:
    """A function that raises NotReadable for data beyond the bounds, and for odd encodings."""
    walk = _function(_Steps().of(root))

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


class _Steps:
    def __init__(self) -> None:
        self._records: dict[int, _Walk] = {}

    def of(self, kind: AvroType) -> _Step:
        if isinstance(kind, Record):
            return _WALK, self._record(kind)
        if isinstance(kind, Union):
            return _UNION, [self.of(branch) for branch in kind.branches]
        if isinstance(kind, Array):
            return _WALK, _blocks(_function(self.of(kind.items)))
        if isinstance(kind, Map):
            return _WALK, _blocks(_in_turn([_SCALARS["string"], self.of(kind.values)], 2))
        if isinstance(kind, Enum):
            return _WALK, _enum(len(kind.symbols))
        if kind.kind == "boolean":
            return _WALK, _boolean
        step = (_SIZE, kind.size) if isinstance(kind, Fixed) else _SCALARS[kind.kind]
        is_decimal = kind.kind in ("bytes", "fixed") and kind.properties.get("logicalType") == "decimal"
        return (_WALK, _decimal(_function(step))) if is_decimal else step

    def _record(self, kind: Record) -> _Walk:
        key = id(kind)
        if key not in self._records:
            # A record within itself finds its function when it is walked.
            self._records[key] = lambda data, at, depth: self._records[key](data, at, depth)
            self._records[key] = _in_turn([self.of(field.type) for field in kind.fields], len(kind.fields))
        return self._records[key]


def _function(step: _Step) -> _Walk:
    return step[1] if step[0] == _WALK else _in_turn([step])


def _in_turn(steps: Sequence[_Step], values: int = 0) -> _Walk:
    """Walks a value of each step in one call: a call for each value would take longer than fastavro. ``values`` counts
    against the bound."""

    def walk(data: _Data, at: int, depth: int) -> int:
        _spend(data, values, depth)
        for kind, needs in steps:
            if kind == _UNION:
                index, at = _long_at(data, at)
                if not 0 <= index < len(needs):
                    raise NotReadable(f"its union has no branch {index}")
                kind, needs = needs[index]
                if kind == _WALK:
                    at = needs(data, at, depth + 2)
                    continue
            if kind == _NUMBER:
                start = at
                while data[at] > 0x7F:
                    at += 1
                at += 1
                if at - start > needs:
                    _check_number(data, start, needs)
            elif kind == _BYTES:
                size = data[at]
                at = at + 1 + (size >> 1) if size < 0x80 and not size & 1 else _behind_bytes(data, at)
            elif kind == _SIZE:
                at += needs
            else:
                at = needs(data, at, depth + 1)
        return at

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


def _decimal(walk: _Walk) -> _Walk:
    def walk_decimal(data: _Data, at: int, depth: int) -> int:
        end = walk(data, at, depth)
        if end - at > MAX_DECIMAL_BYTES:
            raise NotReadable(f"a decimal in it has more than {MAX_DECIMAL_BYTES} bytes")
        return end

    return walk_decimal


def _boolean(data: _Data, at: int, depth: int) -> int:
    if data[at] > 1:
        raise NotReadable(f"a boolean in it is {data[at]}, neither 0 nor 1")
    return at + 1


def _behind_bytes(data: _Data, at: int) -> int:
    size, at = _long_at(data, at)
    if size < 0:
        raise NotReadable(f"a length in it is negative: {size}")
    return at + size


def _check_number(data: _Data, at: int, most_bytes: int) -> None:
    """A whole number of more than ``most_bytes``, which an int may have if its value is within 32 bits."""
    value, _ = _long_at(data, at)
    if most_bytes == _FEW_BYTES and not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise NotReadable(f"an int in it is outside 32 bits: {value}")


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
