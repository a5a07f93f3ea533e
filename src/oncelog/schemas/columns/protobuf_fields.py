"""Protobuf's scalar types, read at many positions at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from oncelog.records.columns.varint_columns import unzigzag
from oncelog.schemas.columns.cursor import Array, Cursor, Indexes, array_of
from oncelog.schemas.columns.nodes import as_text

REPEATED: Final = "a field that is there once comes twice"  # such records are rewritten and read again
VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)
Unsigned: TypeAlias = npt.NDArray[np.uint64]

_F: Final = FieldDescriptor
_LOW: Final = np.uint64(0xFFFFFFFF)
# Arrow's type, the numbers from a varint's 64 bits.
_VARINTS: Final[Mapping[int, tuple[pa.DataType, Callable[[Unsigned], npt.NDArray[Any]]]]] = {
    _F.TYPE_INT32: (pa.int32(), lambda bits: (bits & _LOW).astype(np.uint32).view(np.int32)),
    _F.TYPE_INT64: (pa.int64(), lambda bits: bits.view(np.int64)),
    _F.TYPE_UINT32: (pa.uint32(), lambda bits: (bits & _LOW).astype(np.uint32)),
    _F.TYPE_UINT64: (pa.uint64(), lambda bits: bits),
    _F.TYPE_SINT32: (pa.int32(), lambda bits: unzigzag(bits & _LOW).astype(np.int32)),
    _F.TYPE_SINT64: (pa.int64(), unzigzag),
}
_FIXED: Final[Mapping[int, pa.DataType]] = {
    _F.TYPE_FIXED32: pa.uint32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_FIXED64: pa.uint64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_DOUBLE: pa.float64(),
}


class Scalar:
    """Reads values of a scalar field, which come with ``wire_type``. ``default`` is the value of an absent one."""

    def __init__(self, field: FieldDescriptor) -> None:
        self.wire_type = VARINT
        self.packable = True
        self.default: Any = 0
        kind = field.type
        self._kind = kind
        if kind in _VARINTS:
            self.type, self._numbers = _VARINTS[kind]
        elif kind == _F.TYPE_BOOL:
            self.type, self.default = pa.bool_(), False
        elif kind == _F.TYPE_ENUM:
            assert field.enum_type is not None
            self._enum = EnumNumbers(field.enum_type)
            self.type, self.default = self._enum.type, self._enum.name(0)
        elif kind in _FIXED:
            self.type = _FIXED[kind]
            self.wire_type = FIXED32 if self.type.bit_width == 32 else FIXED64
        else:
            self.wire_type, self.packable = LENGTH, False
            self.type, self.default = (pa.string(), "") if kind == _F.TYPE_STRING else (pa.binary(), b"")

    @property
    def width(self) -> int | None:
        """The bytes of a value; None for a varint, and for text and bytes."""
        return {FIXED32: 4, FIXED64: 8}.get(self.wire_type)

    def read(self, cursor: Cursor) -> Array:
        if self.width is not None:
            return array_of(self.type, cursor.words(self.width))
        if self.wire_type == LENGTH:
            data = cursor.gather(*read_spans(cursor))
            return as_text(data, cursor) if self.type == pa.string() else data
        bits = cursor.unsigned()
        if self._kind in _VARINTS:
            return array_of(self.type, self._numbers(bits))
        if self._kind == _F.TYPE_BOOL:
            return array_of(pa.bool_(), np.packbits(bits != 0, bitorder="little"), count=len(bits))
        return self._enum.read((bits & _LOW).astype(np.uint32).view(np.int32), cursor)


class EnumNumbers:
    """An enum's values by number. A number without a name is its digits, and null in a closed enum."""

    def __init__(self, enum: EnumDescriptor) -> None:
        self.type: pa.DataType = pa.dictionary(pa.int32(), pa.string())
        names: dict[int, str] = {}
        for value in enum.values:
            names.setdefault(value.number, value.name)
        self._numbers = np.array(sorted(names), np.int32)
        self._names = [names[number] for number in sorted(names)]
        self._closed = enum.is_closed

    def name(self, number: int) -> str:
        place = int(np.searchsorted(self._numbers, number))
        is_known = place < len(self._numbers) and self._numbers[place] == number
        return self._names[place] if is_known else str(number)

    def read(self, numbers: npt.NDArray[np.int32], cursor: Cursor) -> Array:
        places = np.searchsorted(self._numbers, numbers)
        unknown = self._numbers.take(places, mode="clip") != numbers
        names, codes = self._names, places.astype(np.int32)
        missing = None
        if unknown.any():
            if self._closed:
                missing = unknown
                cursor.mark(unknown, REPEATED)
            else:
                others, others_at = np.unique(numbers[unknown], return_inverse=True)
                codes[unknown] = len(names) + others_at
                names = [*names, *(str(number) for number in others.tolist())]
        indices: Any = pa.array(codes, mask=missing)
        return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def read_spans(cursor: Cursor) -> tuple[Any, Any]:
    """Starts and lengths of bytes behind their length."""
    return cursor.spans(cursor.unsigned().view(np.int64))


def packed_places(cursor: Cursor, scalar: Scalar) -> tuple[Indexes, Any]:
    """The values of packed fields: the index of each in the cursor, and its place."""
    starts, lengths = read_spans(cursor)
    width = scalar.width
    owners = np.repeat(np.arange(len(starts)), lengths)
    places = np.arange(len(owners)) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    if width is not None:
        cursor.mark(lengths % width != 0, "packed values are cut")
        is_start = (places - starts[owners]) % width == 0
        is_start &= places + width <= (starts + lengths)[owners]
        return owners[is_start], places[is_start]
    # A varint begins behind a byte without a continuation bit.
    is_end = cursor.payloads.bytes[places] < 0x80
    is_start = np.ones(len(places), np.bool_)
    is_start[1:] = is_end[:-1] | (owners[1:] != owners[:-1])
    full = lengths > 0
    last = (starts + lengths - 1)[full]
    cut = np.zeros(len(starts), np.bool_)
    cut[full] = cursor.payloads.bytes[last] >= 0x80
    cursor.mark(cut, "packed values are cut")
    return owners[is_start], places[is_start]
