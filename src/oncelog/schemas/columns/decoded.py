"""Values of a batch of records as one array, and the reasons of those that cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.schemas.columns.cursor import Array, Cursor, Damage, Longs, Mask, Payloads, bitmap, joined, with_nulls
from oncelog.schemas.columns.nodes import content_of, offsets_of

# So many are decoded at once that positions and bytes stay in the processor's cache.
_ROWS: Final = 16_384
_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class Decoded:
    """A value for each record; null for one without bytes, and for a damaged one. ``reasons`` has the damaged ones'
    reasons and null elsewhere; None: no record is damaged."""

    values: Array
    reasons: Array | None


class Decoder(Protocol):
    """Decodes payloads of one schema to arrays of ``type``."""

    @property
    def type(self) -> pa.DataType: ...

    def decode(self, payloads: Array, starts: Longs | None = None) -> Decoded:
        """``payloads``: a binary array. ``starts``: bytes before each payload that are not part of it."""
        ...


def decode_in_pieces(
    read: Callable[[Cursor], Array], kind: pa.DataType, payloads: Array, starts: Longs | None
) -> Decoded:
    """Decode pieces of a batch by ``read``."""
    present = np.asarray(payloads.is_valid()) if payloads.null_count else None
    offsets = offsets_of(payloads).astype(np.int64)
    at, ends = offsets[:-1], offsets[1:]
    if starts is not None:
        at = at + starts
    if present is not None:
        at, ends = at[present], ends[present]
    arrays, reasons = [], []
    damaged = False
    for piece in _pieces(at, ends):
        values, damage = _decode_piece(read, content_of(payloads), at[piece], ends[piece])
        arrays.append(values)
        reasons.append(damage.reasons())
        damaged |= damage.any
    index = None if present is None else np.flatnonzero(present)
    whole = joined(arrays, kind)
    why = pa.concat_arrays([text.cast(pa.string()) for text in reasons]) if damaged else None
    if index is None:
        return Decoded(whole, why)
    count = len(payloads)
    return Decoded(with_nulls(whole, index, count), None if why is None else with_nulls(why, index, count))


def _pieces(at: Longs, ends: Longs) -> Iterator[slice]:
    first = 0
    while first < len(at):
        last = int(np.searchsorted(ends, at[first] + _BYTES, "right"))
        last = min(max(last, first + 1), first + _ROWS)
        yield slice(first, last)
        first = last


def _decode_piece(
    read: Callable[[Cursor], Array],
    content: npt.NDArray[np.uint8],
    at: Longs,
    ends: Longs,
) -> tuple[Array, Damage]:
    base = int(min(at[0], ends[0]))
    damage = Damage(len(at))
    cursor = Cursor(Payloads(content[base : ends[-1]]), at - base, ends - base, np.arange(len(at)), damage)
    values = read(cursor)
    cursor.finish()
    if damage.any:
        values = without(values, damage.mask)
    return values, damage


def without(values: Any, bad: Mask) -> Array:
    """The values, null where they are bad."""
    valid = ~bad
    if values.null_count:
        valid &= np.asarray(values.is_valid())
    if pa.types.is_struct(values.type) and not values.offset:
        children = [values.field(number) for number in range(values.type.num_fields)]
        return pa.Array.from_buffers(values.type, len(values), [bitmap(valid)], children=children)
    return with_nulls(values.filter(pa.array(valid)), np.flatnonzero(valid), len(values))
