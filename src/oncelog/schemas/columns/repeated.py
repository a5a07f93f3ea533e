"""Arrays and maps of Avro: blocks of items, each behind its count.

The next items of all records are read at once, then the ones after them. A few records with many more items than the
others would leave numpy little to do: their items are found one by one first, and then read at once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.schemas.columns.cursor import Array, Cursor, Indexes, Longs, Mask, array_of, nulls
from oncelog.schemas.columns.nodes import Node, lengths_to_offsets
from oncelog.schemas.values.avro_bounds import Walk, find_items

MAX_EMPTY_ITEMS: Final = 1000
"""Items without bytes, such as nulls, in all arrays of a record: their number is bounded by nothing else."""
_FEW: Final = 16
"""So few records are read on one by one once they have more items than ``_FEW`` others."""
_TOO_MANY: Final = "an array has more items than its bytes can hold"


class Repeated:
    """An array, or a map if ``kind`` is one: its items have a key and a value then."""

    maskable = False
    min_bytes = 1
    width: int | None = None

    def __init__(self, item: Node, kind: pa.DataType, walk: Walk) -> None:
        self._item, self.type, self._walk = item, kind, walk

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        items = Items(len(cursor))
        self._read_blocks(cursor, items)
        return list_of(self.type, *items.joined(self._item.type))

    def skip(self, cursor: Cursor) -> None:
        self._read_blocks(cursor, None)

    def _read_blocks(self, cursor: Cursor, items: Items | None) -> None:
        active = np.arange(len(cursor))
        blocks = 0
        while len(active):
            if blocks >= _FEW and len(active) <= _FEW:
                self._read_rest(cursor, active, items)
                return
            counts = self._counts(cursor, active)
            active, counts = active[counts > 0], counts[counts > 0]
            self._read_block(cursor, active, counts, items)
            blocks += 1

    def _counts(self, cursor: Cursor, active: Indexes) -> Longs:
        """The number of items in each record's next block; 0 at the end of an array, and of one with too many."""
        part = cursor.subset(active)
        counts = part.longs()
        with_size = counts < 0
        if with_size.any():
            counts = np.abs(counts)
            part.longs(with_size)
        if self._item.min_bytes:
            bad = counts > np.maximum(part.ends - part.at, 0) // self._item.min_bytes
        else:
            empty_items = cursor.damage.empty_items
            np.add.at(empty_items, part.rows, np.clip(counts, 0, MAX_EMPTY_ITEMS + 1))
            bad = empty_items[part.rows] > MAX_EMPTY_ITEMS
        bad |= counts < 0  # the smallest number of 64 bits has no absolute value
        part.mark(bad, _TOO_MANY)
        cursor.at[active] = part.at
        return np.where(bad, 0, counts)

    def _read_block(self, cursor: Cursor, active: Indexes, counts: Longs, items: Items | None) -> None:
        width = self._item.width
        if width is not None:
            owners, numbers = _each(active, counts)
            self._read_items(cursor.placed(owners, cursor.at[owners] + numbers * width), owners, items)
            cursor.at[active] += counts * width
            return
        done = 0
        while len(active):
            if done >= _FEW and len(active) <= _FEW:
                self._read_found(cursor, active, counts - done, items)
                return
            part = cursor.subset(active)
            self._read_items(part, active, items)
            cursor.at[active] = part.at
            done += 1
            active, counts = active[counts > done], counts[counts > done]

    def _read_items(self, part: Cursor, owners: Indexes, items: Items | None) -> None:
        if items is None:
            self._item.skip(part)
        else:
            items.add(self._item.read(part), owners)

    def _read_found(self, cursor: Cursor, active: Indexes, counts: Longs, items: Items | None) -> None:
        """The next ``counts`` items of a few records, whose places are found one by one."""
        for index, count in zip(active.tolist(), counts.tolist(), strict=True):
            self._read_places(cursor, index, items, count)

    def _read_rest(self, cursor: Cursor, active: Indexes, items: Items | None) -> None:
        """All further blocks of a few records."""
        for index in active.tolist():
            self._read_places(cursor, index, items, None)

    def _read_places(self, cursor: Cursor, index: int, items: Items | None, count: int | None) -> None:
        start, end = int(cursor.at[index]), int(cursor.ends[index])
        places, after, reason = find_items(self._walk, cursor.payloads.walked, start, max(start, end), count)
        if reason is not None:
            cursor.damage.mark(cursor.rows[index : index + 1], reason)
        cursor.at[index] = after
        if places and items is not None:
            owners = np.full(len(places), index)
            self._read_items(cursor.placed(owners, np.array(places, np.int64)), owners, items)


class Items:
    """Items as they are read, and the record of each."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._arrays: list[Array] = []
        self._owners: list[Indexes] = []

    def add(self, items: Array, owners: Indexes) -> None:
        self._arrays.append(items)
        self._owners.append(owners)

    def joined(self, kind: pa.DataType) -> tuple[Array, Longs]:
        """All items in the order of their records, and how many each record has."""
        if not self._arrays:
            return nulls(0, kind), np.zeros(self._count, np.int64)
        owners = np.concatenate(self._owners)
        totals: npt.NDArray[Any] = np.bincount(owners, minlength=self._count)
        if len(self._arrays) == 1:
            return self._arrays[0], totals
        # Items of a record come in their order, so a stable sort keeps it.
        order = np.argsort(owners, kind="stable")
        return pa.concat_arrays(self._arrays).take(array_of(pa.int64(), order)), totals


def list_of(kind: pa.DataType, values: Any, totals: Longs) -> Array:
    """A list or map array: each record has so many of the values."""
    offsets: Any = lengths_to_offsets(totals)
    array: Array
    if pa.types.is_map(kind):
        array = pa.MapArray.from_arrays(offsets, values.field(0), values.field(1))
    else:
        array = pa.ListArray.from_arrays(offsets, values)
    return array


def _each(active: Indexes, counts: Longs) -> tuple[Indexes, Longs]:
    """Each record as often as it has items, and their numbers within it."""
    owners = np.repeat(active, counts)
    firsts = np.cumsum(counts) - counts
    return owners, np.arange(len(owners)) - np.repeat(firsts, counts)
