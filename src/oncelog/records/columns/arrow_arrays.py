"""Byte ranges of a buffer → Arrow arrays, one C++ copy a column.

The trick: in an array with the offsets start0, end0, start1, end1 … over the whole buffer the even elements are the
wanted ranges and the odd ones what lies between them; ``take`` of the even ones copies exactly the wanted bytes. It
needs ranges that were checked before: ``take`` checks none.

How much room ``take`` gets first is its guess: the mean length of the array's elements. From all of them that would be
half of what is needed, and half of a column would be copied twice. So one element goes before, as long as the mean of
the wanted ones, and the array is said to have that one only; ``take`` without its check of bounds reads the others too.

A single large range is not copied: its array is a view of the buffer.
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
"""A record's headers as Spark's Kafka connector types them; null for a record without headers."""

_MIN_HEADER_BYTES: Final = 2
_LARGE_BYTES: Final = MIB
"""Bytes of a single range from which on a copy costs more than keeping the whole buffer for it."""
_FEW_RECORDS: Final = 8
"""Records with more headers to read below which a numpy step costs more than Python steps."""


def binary_column(view: ByteView, ranges: Range) -> Array:
    """A binary array of the bytes in ``ranges``, null where the length is −1."""
    count = len(ranges.start)
    is_null = ranges.length < 0
    if is_null.all():
        return pa.nulls(count, pa.binary())
    lengths = np.maximum(ranges.length, 0)
    if count == 1 and lengths[0] >= _LARGE_BYTES:
        bounds = np.array([ranges.start[0], ranges.start[0] + lengths[0]], np.int32)
        return pa.Array.from_buffers(pa.binary(), 1, [None, _buffer(bounds), _buffer(view.bytes)])
    offsets = np.empty(2 * count + 3, np.int32)
    offsets[0], offsets[1] = 0, -(-int(lengths.sum()) // count)
    offsets[2:-1:2] = ranges.start
    np.add(ranges.start, lengths, out=offsets[3::2], casting="unsafe")
    offsets[-1] = offsets[-2]
    only_the_mean = pa.Array.from_buffers(pa.binary(), 1, [None, _buffer(offsets), _buffer(view.bytes)])
    gathered = _taken(only_the_mean, _even_numbers(count))
    if not is_null.any():
        return gathered
    _, value_offsets, data = gathered.buffers()
    valid = _buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [valid, value_offsets, data])


def _taken(array: Array, indices: Array) -> Array:
    """The elements at some indices, which are not checked. Arrow's functions are imported where there are some to take:
    they cost 9 MB."""
    from pyarrow.compute import TakeOptions, call_function

    taken: Array = call_function("array_take", [array, indices], TakeOptions(boundscheck=False))
    return taken


@lru_cache(maxsize=8)
def _even_numbers(count: int) -> Array:
    return number_column(np.arange(2, 2 * count + 2, 2, dtype=np.int32), pa.int32())


def _buffer(array: npt.NDArray[Any]) -> pa.Buffer:
    """The memory of an array as an Arrow buffer; nothing is copied."""
    return pa.py_buffer(array.data)


def number_column(array: npt.NDArray[Any], kind: pa.DataType) -> Array:
    """An array without nulls over numpy's memory. ``pa.array`` would do, but imports pandas to look whether it is one:
    a fifth of a second and 40 MB in every task."""
    return pa.Array.from_buffers(kind, len(array), [None, _buffer(array)])


def constant_string_column(text: str, count: int) -> Array:
    """``text``, ``count`` times."""
    data = text.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), count, [None, _buffer(offsets), pa.py_buffer(data * count)])


def headers_column(view: ByteView, fields: Fields) -> Array:
    """The headers of all records. Raises CorruptBatch when they do not fill the rest of their record exactly."""
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
    """Header k of all records that have one, for k = 0, 1, …; the last few records with many headers one by one."""
    limit = end + 1  # a header, unlike a key, may end exactly where its record ends
    nth = 0
    having = np.flatnonzero(counts > nth)
    while len(having) >= _FEW_RECORDS:
        slots = offsets[having].astype(np.int64) + nth
        current = position[having]
        read_range(view, current, end[having], keys, slots)
        read_range(view, current, limit[having], values, slots)
        position[having] = current
        nth += 1
        having = having[counts[having] > nth]
    for record in having.tolist():
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
    """Header keys as strings; bytes that are no UTF-8 are replaced, as the Java client does."""
    if not len(column):
        return pa.nulls(0, pa.string())  # Without Arrow's functions, as most topics have no headers.
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [bytes(key).decode(errors="replace") for key in column.to_pylist() if key is not None], pa.string()
        )
