"""Bounds of Avro data, checked before fastavro reads it.

fastavro's recursion has no limit: five kilobytes of a linked list end the process. A count in a few bytes announces any
number of values that take no bytes, which it would build for hours. Most schemas exclude both; the data of others is
walked first, in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.schemas.formats.avro.types import Array, AvroType, Enum, Fixed, Map, Record, Union
from oncelog.schemas.values.errors import NotReadable

MAX_DEPTH: Final = 100
VALUES_PER_BYTE: Final = 64
MAX_DECIMAL_BYTES: Final = 4096  # Python takes two minutes for the digits of a megabyte.
FREE_VALUES: Final = 100_000
"""Values that any data may have, even if it is empty."""

_ENDS: Final = "it ends too early"
_MAX_VARINT_BYTES: Final = 10
_SIZES: Final = {"null": 0, "boolean": 1, "float": struct.calcsize("f"), "double": struct.calcsize("d")}


class _Cost(NamedTuple):
    """The fewest bytes of a value, and the most values in it apart from elements of arrays and maps."""

    bytes: int
    values: int


class _Unbounded(Exception):
    """The schema does not bound its data."""


def bounds_checker(root: AvroType) -> Callable[[bytes], None] | None:
    """A function that raises NotReadable for data beyond the bounds; None if no data of this schema can be."""
    try:
        is_bounded = _Costs().cost(root, 0).values <= FREE_VALUES
    except _Unbounded:
        is_bounded = False
    if not is_bounded:
        return lambda data: _Walk(data).check(root)
    if not _has_decimals(root, set()):
        return None
    return lambda data: _Walk(data).check(root) if len(data) > MAX_DECIMAL_BYTES else None


def _has_decimals(kind: AvroType, seen: set[int]) -> bool:
    if id(kind) in seen:
        return False
    seen.add(id(kind))
    if isinstance(kind, Record):
        return any(_has_decimals(field.type, seen) for field in kind.fields)
    if isinstance(kind, Union):
        return any(_has_decimals(branch, seen) for branch in kind.branches)
    if isinstance(kind, Array | Map):
        return _has_decimals(kind.items if isinstance(kind, Array) else kind.values, seen)
    return _is_decimal(kind)


def _is_decimal(kind: AvroType) -> bool:
    return kind.kind in ("bytes", "fixed") and kind.properties.get("logicalType") == "decimal"


class _Costs:
    def __init__(self) -> None:
        self._costs: dict[int, _Cost] = {}
        self._open: set[int] = set()

    def cost(self, kind: AvroType, depth: int) -> _Cost:
        """Raises _Unbounded for a recursive or deep type, and for one with too many values in its bytes."""
        if (earlier := self._costs.get(id(kind))) is not None:
            return earlier
        if depth > MAX_DEPTH or id(kind) in self._open:
            raise _Unbounded
        self._open.add(id(kind))
        cost = self._new_cost(kind, depth + 1)
        self._open.discard(id(kind))
        self._costs[id(kind)] = cost
        return cost

    def _new_cost(self, kind: AvroType, depth: int) -> _Cost:
        if isinstance(kind, Record):
            costs = [self.cost(field.type, depth) for field in kind.fields]
            return _Cost(sum(cost.bytes for cost in costs), 1 + sum(cost.values for cost in costs))
        if isinstance(kind, Union):
            costs = [self.cost(branch, depth) for branch in kind.branches]
            least, most = min(cost.bytes for cost in costs), max(cost.values for cost in costs)
            return _Cost(1 + least, 1 + most)
        if isinstance(kind, Array | Map):
            element = self.cost(kind.items if isinstance(kind, Array) else kind.values, depth)
            # A key of a map takes a byte at least.
            least = element.bytes + isinstance(kind, Map)
            if element.values > least * VALUES_PER_BYTE:
                raise _Unbounded
            return _Cost(1, 1)
        if isinstance(kind, Fixed):
            return _Cost(kind.size, 1)
        return _Cost(_SIZES.get(kind.kind, 1), 1)


class _Walk:
    """Passes over data as fastavro would read it, and builds nothing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._left = FREE_VALUES + VALUES_PER_BYTE * len(data)

    def check(self, root: AvroType) -> None:
        self._value(root, 0)

    def _value(self, kind: AvroType, depth: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise NotReadable(f"it announces more than {VALUES_PER_BYTE} values for each of its bytes")
        if depth > MAX_DEPTH:
            raise NotReadable(f"it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(kind, Record):
            for field in kind.fields:
                self._value(field.type, depth + 1)
        elif isinstance(kind, Union):
            index = self._long()
            if not 0 <= index < len(kind.branches):
                raise NotReadable(f"its union has no branch {index}")
            self._value(kind.branches[index], depth + 1)
        elif isinstance(kind, Array | Map):
            self._blocks(kind, depth + 1)
        elif isinstance(kind, Fixed):
            self._bytes(kind, kind.size)
        elif isinstance(kind, Enum) or kind.kind in ("int", "long"):
            self._long()
        elif kind.kind in ("bytes", "string"):
            self._bytes(kind, self._long())
        else:
            self._skip(_SIZES[kind.kind])

    def _blocks(self, kind: Array | Map, depth: int) -> None:
        while (count := self._long()) != 0:
            if count < 0:
                count = -count
                self._long()  # the size of the block, which fastavro ignores
            for _ in range(count):
                if isinstance(kind, Map):
                    self._skip(self._long())
                self._value(kind.items if isinstance(kind, Array) else kind.values, depth)

    def _bytes(self, kind: AvroType, size: int) -> None:
        if size > MAX_DECIMAL_BYTES and _is_decimal(kind):
            raise NotReadable(f"a decimal in it has more than {MAX_DECIMAL_BYTES} bytes")
        self._skip(size)

    def _skip(self, size: int) -> None:
        self._at += size
        if size < 0 or self._at > len(self._data):
            raise NotReadable(_ENDS)

    def _long(self) -> int:
        value = 0
        for number, byte in enumerate(self._data[self._at : self._at + _MAX_VARINT_BYTES]):
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                self._at += number + 1
                return (value >> 1) ^ -(value & 1)
        raise NotReadable(_ENDS)
