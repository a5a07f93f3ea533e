"""Bounds of Avro data, and its odd encodings, refused before fastavro reads it.

fastavro's recursion has no limit: five kilobytes of a linked list end the process. A count in a few bytes announces any
number of values that take no bytes, which it would build for hours. It also takes indexes of branches and symbols from
the end (-1 is the last one), any byte but 0 for true, and whole numbers of any length, which the columns' decoder and
other readers refuse. Data is therefore walked first, by steps that are made once for a schema. Columns find the items
of long arrays, and records within themselves, by the same walk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from oncelog.base.units import INT32_MAX
from oncelog.schemas.values.errors import NotReadable

MAX_DEPTH: Final = 100
VALUES_PER_BYTE: Final = 16
MAX_DECIMAL_BYTES: Final = 4096  # Python takes two minutes for the digits of a megabyte.
FREE_VALUES: Final = 1_000
"""Values that any data may have, even if it is empty."""

_ENDS: Final = "it ends too early"
_MAX_VARINT_BYTES: Final = 10
_LONG_BITS: Final = (1 << 64) - 1


class Walked(bytes):
    """Data that is walked, and the number of values that it may still have."""

    left: int


Walk: TypeAlias = Callable[[Walked, int, int], int]
"""Data, the position of a value, its depth → the position behind it. Raises NotReadable, or IndexError at the end."""
# A schema, or a type in one, as fastavro.parse_schema returns it.
Parsed: TypeAlias = Any
_Step: TypeAlias = tuple[int, Any]
"""A kind of value, and what the kind needs: a size, the steps of a union's branches, a function."""

_SIZE, _NUMBER, _BYTES, _UNION, _WALK = range(5)
_FEW_BYTES: Final = 4
"""Bytes of a whole number that is within 32 bits, however it is written."""
_SCALARS: Final[dict[str, _Step]] = {
    "null": (_SIZE, 0),
    "boolean": (_WALK, lambda data, at, depth: _boolean(data, at)),
    "float": (_SIZE, 4),
    "double": (_SIZE, 8),
    "int": (_NUMBER, _FEW_BYTES),
    "long": (_NUMBER, _MAX_VARINT_BYTES),
    "bytes": (_BYTES, None),
    "string": (_BYTES, None),
}


def checker(parsed: Parsed) -> Callable[[bytes], None]:
    """A function that raises NotReadable for data beyond the bounds, and for odd encodings."""
    walk = Walks(named_types(parsed)).of(parsed)

    def check(data: bytes) -> None:
        if left := len(data) - walk_value(walk, Walked(data), 0, len(data)):
            raise NotReadable(f"bytes left over: {left}")

    return check


def walk_value(walk: Walk, data: Walked, at: int, end: int) -> int:
    """The position behind a value, which has to be within ``end``. Raises NotReadable."""
    data.left = FREE_VALUES + VALUES_PER_BYTE * (end - at)
    try:
        at = walk(data, at, 0)
    except IndexError:
        raise NotReadable(_ENDS) from None
    if at > end:
        raise NotReadable(_ENDS)
    return at


def find_items(item: Walk, data: Walked, at: int, end: int, count: int | None) -> tuple[list[int], int, str | None]:
    """Positions of the next ``count`` items of an array, or of those in all its further blocks. Returns them, the
    position behind them, and a reason if the bytes are damaged: the positions are those before the damage then."""
    places: list[int] = []

    def located(data: Walked, at: int, depth: int) -> int:
        if at > end:
            raise NotReadable(_ENDS)
        places.append(at)
        return item(data, at, depth)

    def counted(data: Walked, at: int, depth: int) -> int:
        for _ in range(count or 0):
            at = located(data, at, depth)
        return at

    try:
        return places, walk_value(_blocks((_WALK, located)) if count is None else counted, data, at, end), None
    except NotReadable as error:
        return places, end, str(error)


def named_types(parsed: Parsed) -> dict[str, Any]:
    """Named types by full name."""
    named: dict[str, Any] = {}
    _add_named(parsed, named)
    return named


def _add_named(schema: Parsed, named: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for branch in schema:
            _add_named(branch, named)
    elif isinstance(schema, Mapping):
        # fastavro adds these to a record that is a whole schema or a branch of one, but not to an array or a map.
        named |= schema.get("__named_schemas", {})
        if "name" in schema:
            named.setdefault(schema["name"], schema)
        for part in ("type", "items", "values"):
            _add_named(schema.get(part), named)
        for field in schema.get("fields", ()):
            _add_named(field["type"], named)


class Walks:
    """The walks of types, a record's made once."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._records: dict[str, Walk] = {}

    def of(self, schema: Parsed) -> Walk:
        return _function(self._step(schema))

    def entry(self, values: Parsed) -> Walk:
        return _in_turn([_SCALARS["string"], self._step(values)], 2)

    def _step(self, schema: Parsed) -> _Step:
        if isinstance(schema, list):
            return _UNION, [self._step(branch) for branch in schema]
        if isinstance(schema, str):
            return _SCALARS[schema] if schema in _SCALARS else self._step(self._named[schema])
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return _WALK, self._record(schema)
            case "array":
                return _WALK, _blocks(self._step(schema["items"]))
            case "map":
                return _WALK, _blocks((_WALK, self.entry(schema["values"])))
            case "enum":
                return _WALK, _enum(len(schema["symbols"]))
            case "bytes" | "fixed":
                step = (_SIZE, schema["size"]) if kind == "fixed" else _SCALARS[kind]
                is_decimal = schema.get("logicalType") == "decimal"
                return (_WALK, _decimal(_function(step))) if is_decimal else step
        return self._step(kind)

    def _record(self, schema: Mapping[str, Any]) -> Walk:
        name, fields = schema["name"], schema["fields"]
        if name not in self._records:
            # A record within itself finds its function when it is walked.
            self._records[name] = lambda data, at, depth: self._records[name](data, at, depth)
            self._records[name] = _in_turn([self._step(field["type"]) for field in fields], len(fields))
        return self._records[name]


def _function(step: _Step) -> Walk:
    return step[1] if step[0] == _WALK else _in_turn([step])


def _in_turn(steps: Sequence[_Step], values: int = 0) -> Walk:
    """Walks a value of each step in one call: a call for each value would take longer than fastavro. ``values`` counts
    against the bound."""

    def walk(data: Walked, at: int, depth: int) -> int:
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


def _blocks(item: _Step) -> Walk:
    kind, needs = item
    walk_item = _function(item)

    def walk(data: Walked, at: int, depth: int) -> int:
        while True:
            count, at = _long_at(data, at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = _long_at(data, at)  # the size of the block, which fastavro ignores
            _spend(data, count, depth)
            if kind == _SIZE:  # so few bytes announce so many that a loop would take minutes
                at += count * needs
                continue
            for _ in range(count):
                at = walk_item(data, at, depth + 1)

    return walk


def _spend(data: Walked, values: int, depth: int) -> None:
    data.left -= values
    if data.left < 0:
        raise NotReadable(f"it announces more than {VALUES_PER_BYTE} values for each of its bytes")
    if depth > MAX_DEPTH:
        raise NotReadable(f"it is nested deeper than {MAX_DEPTH} levels")


def _enum(symbols: int) -> Walk:
    def walk(data: Walked, at: int, depth: int) -> int:
        index, at = _long_at(data, at)
        if not 0 <= index < symbols:
            raise NotReadable(f"its enum has no symbol {index}")
        return at

    return walk


def _decimal(walk: Walk) -> Walk:
    def walk_decimal(data: Walked, at: int, depth: int) -> int:
        end = walk(data, at, depth)
        if end - at > MAX_DECIMAL_BYTES:
            raise NotReadable(f"a decimal in it has more than {MAX_DECIMAL_BYTES} bytes")
        return end

    return walk_decimal


def _boolean(data: bytes, at: int) -> int:
    if data[at] > 1:
        raise NotReadable(f"a boolean in it is {data[at]}, neither 0 nor 1")
    return at + 1


def _behind_bytes(data: Walked, at: int) -> int:
    size, at = _long_at(data, at)
    if size < 0:
        raise NotReadable(f"a length in it is negative: {size}")
    return at + size


def _check_number(data: Walked, at: int, most_bytes: int) -> None:
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
