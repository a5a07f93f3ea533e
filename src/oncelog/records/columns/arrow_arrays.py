"""Byte ranges of a buffer → Arrow arrays, with one C++ copy per column.

The ranges must be checked before: ``take`` checks none. A single large range is not copied: its array is a view of the
buffer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.base.units import MIB
from oncelog.records.batch import CorruptBatch
from oncelog.records.columns.fields import Fields, Range, read_range
from oncelog.records.columns.varint_columns import ByteView, Positions, read_varint, read_varints

Array: TypeAlias = "pa.Array[Any]"

_HEADER_FIELDS: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS: Final = pa.list_(pa.field("element", _HEADER_FIELDS))
"""A record's headers in the type of Spark's Kafka connector; null for a record without headers."""

_MIN_HEADER_BYTES: Final = 2
_LARGE_BYTES: Final = MIB
"""Bytes of a single range from which a copy costs more than keeping the whole buffer for it."""
_FEW_RECORDS: Final = 8
"""Below this number of records with headers left a numpy step costs more than Python steps."""


def binary_column(view: ByteView, ranges: Range) -> Array:
    """A binary array of the bytes in ``ranges``, null for the length −1."""
    count = len(ranges.start)
    is_null = ranges.length < 0
    if is_null.all():
        return pa.nulls(count, pa.binary())
    lengths = np.maximum(ranges.length, 0)
    if count == 1 and lengths[0] >= _LARGE_BYTES:
        bounds = np.array([ranges.start[0], ranges.start[0] + lengths[0]], np.int32)
        return pa.Array.from_buffers(pa.binary(), 1, [None, _buffer(bounds), _buffer(view.bytes)])
    offsets = np.empty(2 * count + 3, np.int32)
    # An array with the offsets start0, end0, start1, end1 … over the whole buffer has the requested ranges as its even
    # elements; ``take`` of these copies exactly the requested bytes.
    # ``take`` allocates by the mean length of the array's elements, which with the gaps is half of the need: half
    # of a column would be copied twice. So a first element has the mean length of the requested ranges, and the array
    # declares only this one; an unchecked ``take`` reads the others, too.
    offsets[0], offsets[1] = 0, -(-int(lengths.sum()) // count)
    offsets[2:-1:2] = ranges.start
    np.add(ranges.start, lengths, out=offsets[3::2], casting="unsafe")
    offsets[-1] = offsets[-2]
    only_the_mean = pa.Array.from_buffers(pa.binary(), 1, [None, _buffer(offsets), _buffer(view.bytes)])
    gathered = _take(only_the_mean, _even_numbers(count))
    if not is_null.any():
        return gathered
    _, value_offsets, data = gathered.buffers()
    valid = _buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [valid, value_offsets, data])


def _take(array: Array, indices: Array) -> Array:
    # Imported on demand: Arrow's functions take 9 MB.
    from pyarrow.compute import TakeOptions, call_function

    taken: Array = call_function("array_take", [array, indices], TakeOptions(boundscheck=False))
    return taken


@lru_cache(maxsize=8)
def _even_numbers(count: int) -> Array:
    return number_column(np.arange(2, 2 * count + 2, 2, dtype=np.int32), pa.int32())


def _buffer(array: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(array.data)


def number_column(array: npt.NDArray[Any], kind: pa.DataType) -> Array:
    """An array without nulls over numpy's memory."""
    # ``pa.array`` would import pandas to check for its types: a fifth of a second and 40 MB in every task.
    return pa.Array.from_buffers(kind, len(array), [None, _buffer(array)])


def constant_string_column(text: str, count: int) -> Array:
    data = text.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), count, [None, _buffer(offsets), pa.py_buffer(data * count)])


def headers_column(view: ByteView, fields: Fields) -> Array:
    """The headers of all records. Raises CorruptBatch unless they fill the rest of their record exactly."""
    counts, width = read_varints(view, fields.headers)
    position = fields.headers + width
    if bool((counts < 0).any()) or bool((counts * _MIN_HEADER_BYTES > fields.end - position).any()):
        raise CorruptBatch("a record has a header count that does not fit")
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    keys, values = Range.empty(int(offsets[-1])), Range.empty(int(offsets[-1]))
    _read_headers(view, position, fields.end, counts.astype(np.int64), offsets, keys, values)
    if bool((position != fields.end).any()):
        raise CorruptBatch("the headers of a record do not end where the record ends")
    if bool((keys.length < 0).any()):
        raise CorruptBatch("a header has no key")
    entries = pa.StructArray.from_arrays(
        [_text_column(binary_column(view, keys)), binary_column(view, values)], fields=list(_HEADER_FIELDS)
    )
    without = counts == 0
    valid = _buffer(np.packbits(~without, bitorder="little")) if without.any() else None
    return pa.Array.from_buffers(HEADERS, len(counts), [valid, _buffer(offsets)], children=[entries])


def _read_headers(
    view: ByteView,
    position: Positions,
    end: Positions,
    counts: Positions,
    offsets: npt.NDArray[np.int32],
    keys: Range,
    values: Range,
) -> None:
    """Read header k of all records that have one, for k = 0, 1, …; the last few records with many headers one by
    one."""
    limit = end + 1  # a header, unlike a key, may end exactly where its record ends
    nth = 0
    with_more = np.flatnonzero(counts > nth)
    while len(with_more) >= _FEW_RECORDS:
        slots = offsets[with_more].astype(np.int64) + nth
        current = position[with_more]
        read_range(view, current, end[with_more], keys, slots)
        read_range(view, current, limit[with_more], values, slots)
        position[with_more] = current
        nth += 1
        with_more = with_more[counts[with_more] > nth]
    for record in with_more.tolist():
        data = view.bytes[: end[record]].data
        at = int(position[record])
        for slot in range(int(offsets[record]) + nth, int(offsets[record + 1])):
            at = _read_header_range(data, at, keys, slot)
            at = _read_header_range(data, at, values, slot)
        position[record] = at


def _read_header_range(data: memoryview, position: int, ranges: Range, slot: int) -> int:
    length, position = read_varint(data, position)
    if length < -1 or position + max(length, 0) > len(data):
        raise CorruptBatch("a header is longer than its record")
    ranges.start[slot], ranges.length[slot] = position, length
    return position + max(length, 0)


def _text_column(column: Array) -> Array:
    """Header keys as strings, with invalid UTF-8 replaced, as in the Java client."""
    if not len(column):
        return pa.nulls(0, pa.string())  # without Arrow's functions: most topics have no headers
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [bytes(key).decode(errors="replace") for key in column.to_pylist() if key is not None], pa.string()
        )
