"""The ends of single values of Avro, found one by one without reading them: a function for each type of a writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from oncelog.base.units import INT32_MAX
from oncelog.records.columns.varint_columns import read_varint
from oncelog.records.errors import CorruptBatch
from oncelog.schemas.values.avro_bounds import MAX_DECIMAL_BYTES


class Walked(bytes):
    empty_items = 0  # items without bytes that were found in these


Walk: TypeAlias = Callable[[Walked, int, int], int]
"""Bytes, the position of a value in them, the depth of nesting → the position behind it. Raises Unwalkable."""

MAX_DEPTH: Final = 64
MAX_EMPTY_ITEMS: Final = 1000
"""Items without bytes, such as nulls, in all arrays of a record: their number is bounded by nothing else."""


class Unwalkable(ValueError):
    """Bytes that are no value of the type."""


def find_items(data: bytes, walk: Walk, min_bytes: int, count: int | None) -> tuple[list[int], int, str | None]:
    """Positions of the next ``count`` items of an array, or of those in all its further blocks. Returns them, the
    position behind them, and a reason if the bytes are damaged: the positions are those before the damage then."""
    places: list[int] = []
    data = Walked(data)
    try:
        if count is not None:
            return places, _walk_items(data, 0, count, walk, 0, places), None
        return places, _walk_blocks(data, 0, walk, min_bytes, 0, places), None
    except Unwalkable as error:
        return places, len(data), str(error)


def _walk_blocks(data: Walked, at: int, walk: Walk, min_bytes: int, depth: int, places: list[int] | None) -> int:
    while True:
        count, at = long_at(data, at)
        if count == 0:
            return at
        if count < 0:
            count = -count
            _, at = long_at(data, at)
        if min_bytes:
            too_many = count > (len(data) - at) // min_bytes
        else:
            data.empty_items += count
            too_many = data.empty_items > MAX_EMPTY_ITEMS
        if too_many:
            raise Unwalkable("an array has more items than its bytes can hold")
        at = _walk_items(data, at, count, walk, depth, places)


def _walk_items(data: Walked, at: int, count: int, walk: Walk, depth: int, places: list[int] | None) -> int:
    for _ in range(count):
        if places is not None:
            places.append(at)
        at = walk(data, at, depth)
    return at


def long_at(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:  # most are one byte
        byte = data[at]
        return (byte >> 1) ^ -(byte & 1), at + 1
    try:
        return read_varint(data, at)
    except CorruptBatch as error:
        raise Unwalkable("a variable-length integer does not end") from error


def walk_long(data: Walked, at: int, depth: int) -> int:
    return long_at(data, at)[1]


def walk_int(data: Walked, at: int, depth: int) -> int:
    value, at = long_at(data, at)
    if not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise Unwalkable(f"an int is outside {-INT32_MAX - 1} to {INT32_MAX}")
    return at


def walk_boolean(data: Walked, at: int, depth: int) -> int:
    end = walk_fixed(1)(data, at, depth)
    if data[at] > 1:
        raise Unwalkable("a boolean is neither 0 nor 1")
    return end


def walk_enum(symbols: int) -> Walk:
    def walk(data: Walked, at: int, depth: int) -> int:
        index, at = long_at(data, at)
        if not 0 <= index < symbols:
            raise Unwalkable("an enum has no such symbol")
        return at

    return walk


def walk_bytes(data: Walked, at: int, depth: int) -> int:
    size, at = long_at(data, at)
    if not 0 <= size <= len(data) - at:
        raise Unwalkable("the bytes end within a value")
    return at + size


def walk_decimal(data: Walked, at: int, depth: int) -> int:
    end = walk_bytes(data, at, depth)
    if end - at > MAX_DECIMAL_BYTES:
        raise Unwalkable(f"a decimal has more than {MAX_DECIMAL_BYTES} bytes")
    return end


def walk_fixed(size: int) -> Walk:
    def walk(data: Walked, at: int, depth: int) -> int:
        if size > len(data) - at:
            raise Unwalkable("the bytes end within a value")
        return at + size

    return walk


def walk_fields(walks: Sequence[Walk]) -> Walk:
    def walk(data: Walked, at: int, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise Unwalkable(f"values are nested more than {MAX_DEPTH} deep")
        for field in walks:
            at = field(data, at, depth + 1)
        return at

    return walk


def walk_union(walks: Sequence[Walk]) -> Walk:
    def walk(data: Walked, at: int, depth: int) -> int:
        branch, at = long_at(data, at)
        if not 0 <= branch < len(walks):
            raise Unwalkable("a union has no such branch")
        return walks[branch](data, at, depth)

    return walk


def walk_blocks(item: Walk, min_bytes: int) -> Walk:
    def walk(data: Walked, at: int, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise Unwalkable(f"values are nested more than {MAX_DEPTH} deep")
        return _walk_blocks(data, at, item, min_bytes, depth + 1, None)

    return walk


def walk_named(walks: Mapping[str, Walk], name: str) -> Walk:
    """A type within itself: its function is there once the whole schema is known."""

    def walk(data: Walked, at: int, depth: int) -> int:
        return walks[name](data, at, depth)

    return walk
