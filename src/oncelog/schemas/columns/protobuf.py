"""Protobuf payloads of one message type to columns.

A message's fields are read by their numbers: of all records, those whose next field has the smallest number come first.
Writers put fields in this order, so a field is read once for all of them. Records that have fields twice where that
means something (a message, members of a oneof, a key of a map) are rewritten by Protobuf's library and read again.

An absent field is null where its presence is tracked, otherwise its type's default. ``Timestamp`` and ``Duration``
become Arrow's in microseconds, wrappers nullable values. Arrow has no recursive types: a message within itself, and
``Struct``, ``Value`` and ``ListValue``, are JSON text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from oncelog.schemas.columns.cursor import (
    TOO_SHORT,
    Array,
    Cursor,
    Damage,
    Indexes,
    Longs,
    Mask,
    Payloads,
    array_of,
    joined,
    nulls,
    taken,
    with_nulls,
)
from oncelog.schemas.columns.decoded import Decoded, decode_in_pieces
from oncelog.schemas.columns.nested import struct_of
from oncelog.schemas.columns.protobuf_fields import (
    END_GROUP,
    FIXED32,
    FIXED64,
    LENGTH,
    REPEATED,
    VARINT,
    Scalar,
    packed_places,
    read_spans,
)
from oncelog.schemas.columns.repeated import Items, list_of
from oncelog.schemas.columns.wire_walk import walk_message
from oncelog.schemas.schema import SchemaError

_MAX_FIELDS: Final = 5_000
"""Fields within fields, each as often as it is used: few lines can define millions."""
_FEW: Final = 16
_END: Final = np.uint64(2**64 - 1)
_NOT_A_FIELD: Final = "the bytes are not a field of a message"
_JSON: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DURATION: Final = "google.protobuf.Duration"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_MAX_DURATION_S: Final = 315_576_000_000


class ProtobufDecoder:
    """Decodes payloads of a message. Raises SchemaError for one with too many fields."""

    def __init__(self, message: Descriptor) -> None:
        self._class = GetMessageClass(message)
        self._message = _Message(message, (), [0])

    @property
    def type(self) -> pa.DataType:
        return self._message.type

    def decode(self, payloads: Array, starts: Longs | None = None) -> Decoded:
        decoded = decode_in_pieces(self._message.read, self.type, payloads, starts)
        if decoded.reasons is None:
            return decoded
        again = np.flatnonzero([reason == REPEATED for reason in decoded.reasons.to_pylist()])
        return self._rewritten(decoded, payloads, starts, again) if len(again) else decoded

    def _rewritten(self, decoded: Decoded, payloads: Array, starts: Longs | None, rows: Indexes) -> Decoded:
        """The records ``rows`` from bytes that Protobuf's library writes, in which no field is repeated."""
        values: list[bytes] = []
        for row in rows.tolist():
            message = self._class()
            try:
                message.ParseFromString(payloads[row].as_py()[0 if starts is None else int(starts[row]) :])
                message.DiscardUnknownFields()
                values.append(message.SerializePartialToString())
            except (DecodeError, ValueError):
                values.append(b"\0")  # no message
        once = decode_in_pieces(self._message.read, self.type, pa.array(values, pa.binary()), None)
        order = np.arange(len(payloads))
        order[rows] = len(payloads) + np.arange(len(rows))
        reasons = nulls(len(rows), pa.string()) if once.reasons is None else once.reasons
        assert decoded.reasons is not None
        places: Any = pa.array(order)
        whole = joined([decoded.values, once.values], self.type).take(places)
        why = joined([decoded.reasons, reasons], pa.string()).take(places)
        return Decoded(whole, why if why.null_count < len(why) else None)


class _Message:
    """Reads a message as a struct of its fields, in the order of their declaration."""

    def __init__(self, message: Descriptor, inside: tuple[str, ...], fields: list[int]) -> None:
        within = (*inside, message.full_name)
        fields[0] += len(message.fields)
        if fields[0] > _MAX_FIELDS:
            raise SchemaError(f"the schema has more than {_MAX_FIELDS:,} fields within fields; use fewer columns")
        self.fields = [_Field(field, within, fields) for field in message.fields]
        self._by_number = {field.number: place for place, field in enumerate(self.fields)}
        self.type: pa.DataType = pa.struct([(field.name, field.type) for field in self.fields])

    def read(self, cursor: Cursor) -> Array:
        return struct_of(self.type, self.read_columns(cursor), len(cursor))

    def read_columns(self, cursor: Cursor) -> list[Array]:
        reading = _Reading(self, cursor)
        reading.run()
        return reading.columns()

    def field(self, number: int) -> int | None:
        return self._by_number.get(number)


class _Reading:
    """A message read in many records: the next tag of each, and the values so far."""

    def __init__(self, message: _Message, cursor: Cursor) -> None:
        self._message, self._cursor = message, cursor
        self._values = [field.values(len(cursor)) for field in message.fields]
        self._chosen: dict[str, Mask] = {}
        self._tags = np.full(len(cursor), _END)

    def run(self) -> None:
        cursor = self._cursor
        self._next_tags(np.arange(len(cursor)))
        turns, many = 0, 2 * len(self._message.fields) + _FEW
        while len(cursor) and (tag := self._tags.min()) != _END:
            index = np.flatnonzero(self._tags == tag)
            if turns > many and len(index) <= _FEW:
                active = np.flatnonzero(self._tags != _END)
                if len(active) <= _FEW:
                    self._read_one_by_one(active)
                    return
            part = cursor.subset(index)
            self._read_field(int(tag), part, index)
            cursor.at[index] = part.at
            self._next_tags(index)
            turns += 1

    def columns(self) -> list[Array]:
        return [values.column(self._cursor) for values in self._values]

    def _next_tags(self, index: Indexes) -> None:
        cursor = self._cursor
        part = cursor.subset(index)
        part.mark(part.at > part.ends, TOO_SHORT)
        going = part.at < part.ends
        if not going.all():
            self._tags[index] = _END
            index = index[going]
            part = cursor.subset(index)
        if not len(index):
            return
        tags = part.unsigned()
        bad = (tags < 8) | (tags > 0xFFFFFFFF) | ((tags & np.uint64(7)) > FIXED32) | (part.at > part.ends)
        bad |= (tags & np.uint64(7)) == END_GROUP
        if bad.any():
            part.mark(bad, _NOT_A_FIELD)
            tags = tags * ~bad + bad * _END
        self._tags[index] = tags
        cursor.at[index] = part.at

    def _read_field(self, tag: int, part: Cursor, index: Indexes) -> None:
        number, wire_type = tag >> 3, tag & 7
        place = self._message.field(number)
        if place is None or not self._message.fields[place].takes(wire_type):
            _skip(part, tag)
            return
        field = self._message.fields[place]
        if field.oneof is not None:
            chosen = self._chosen.setdefault(field.oneof, np.zeros(len(self._cursor), np.bool_))
            part.mark(chosen[index], REPEATED)
            chosen[index] = True
        field.read(part, index, wire_type, self._values[place])

    def _read_one_by_one(self, active: Indexes) -> None:
        """Find the rest of a few records' fields without numpy, and read those of each kind at once."""
        cursor = self._cursor
        places: dict[int, list[tuple[int, int]]] = {}
        for row in active.tolist():
            start, end = int(cursor.at[row]), int(cursor.ends[row])
            data = cursor.payloads.bytes[start:end].tobytes() if start < end else b""
            fields, reason = walk_message(data, int(self._tags[row]))
            if reason is not None:
                cursor.damage.mark(cursor.rows[row : row + 1], reason)
                cursor.at[row] = end
                continue
            tags = {field.tag for field in fields}
            if len({tag >> 3 for tag in tags}) < len(tags):  # packed values among others, whose order would be lost
                cursor.damage.mark(cursor.rows[row : row + 1], REPEATED)
            for field in fields:
                places.setdefault(field.tag, []).append((row, start + field.at))
            cursor.at[row] = end
        for tag, positions in places.items():
            rows = np.array([row for row, _ in positions])
            part = cursor.placed(rows, np.array([at for _, at in positions], np.int64))
            self._read_repeatedly(tag, part, rows)

    def _read_repeatedly(self, tag: int, part: Cursor, rows: Indexes) -> None:
        place = self._message.field(tag >> 3)
        if place is None or self._message.fields[place].is_repeated:
            self._read_field(tag, part, rows)
            return
        # A field that is there once: its last value counts, and messages have to be merged.
        last = len(rows) - 1 - np.unique(rows[::-1], return_index=True)[1]
        if len(last) < len(rows) and not self._message.fields[place].is_scalar:
            part.mark(np.bincount(rows)[rows] > 1, REPEATED)
        self._read_field(tag, part.subset(last), rows[last])


def _skip(part: Cursor, tag: int) -> None:
    wire_type = tag & 7
    if wire_type == VARINT:
        part.unsigned()
    elif wire_type == LENGTH:
        read_spans(part)
    elif wire_type in (FIXED64, FIXED32):
        part.at = part.at + (8 if wire_type == FIXED64 else 4)
    else:
        _skip_groups(part, tag)


def _skip_groups(part: Cursor, tag: int) -> None:
    """Groups are of Protobuf 1, and walked one by one."""
    at = part.at.copy()
    for row, (start, end) in enumerate(zip(part.at.tolist(), part.ends.tolist(), strict=True)):
        data = part.payloads.bytes[start:end].tobytes() if start < end else b""
        fields, reason = walk_message(data, tag, only_first=True)
        if reason is not None:
            part.damage.mark(part.rows[row : row + 1], reason)
            at[row] = end
        else:
            at[row] = start + fields[0].end
    part.at = at


class _Values:
    """The values of one field in many records, as they are read."""

    def __init__(self, field: _Field, count: int) -> None:
        self._field, self._count = field, count
        self.items = Items(count) if field.is_repeated else None
        self._arrays: list[Array] = []
        self._indexes: list[Indexes] = []
        self.seen: Mask | None = None

    def put(self, array: Array, index: Indexes) -> None:
        if self.items is not None:
            self.items.add(array, index)
            return
        self._arrays.append(array)
        self._indexes.append(index)

    def column(self, cursor: Cursor) -> Array:
        if self.items is not None:
            items, totals = self.items.joined(self._field.item_type)
            if pa.types.is_map(self._field.type):
                cursor.mark(_with_repeated_keys(items, totals), REPEATED)
            return list_of(self._field.type, items, totals)
        if not self._arrays:
            column = nulls(self._count, self._field.type)
        elif len(self._arrays) == 1 and len(self._indexes[0]) == self._count:
            column = self._arrays[0]
        else:
            column = with_nulls(joined(self._arrays, self._field.type), np.concatenate(self._indexes), self._count)
        return self._field.with_default(column)


def _with_repeated_keys(entries: Any, totals: Longs) -> Mask:
    # The records whose map has a key twice: the last value counts.
    codes = np.asarray(entries.field(0).dictionary_encode().indices).astype(np.int64)
    pairs = np.repeat(np.arange(len(totals)), totals) * (len(codes) + 1) + codes
    pairs.sort()
    mask = np.zeros(len(totals), np.bool_)
    mask[pairs[1:][pairs[1:] == pairs[:-1]] // (len(codes) + 1)] = True
    return mask


class _Field:
    """How a field is read."""

    def __init__(self, field: FieldDescriptor, inside: tuple[str, ...], fields: list[int]) -> None:
        if field.type == FieldDescriptor.TYPE_GROUP:
            raise SchemaError(f"field {field.full_name} is a group, which is not read as a column")
        self.name, self.number, self.is_repeated = field.name, field.number, field.is_repeated
        # An entry of a map has a key and a value, even if its bytes do not.
        self._is_in_map = field.containing_type.GetOptions().map_entry
        self._has_default = self._is_in_map or (not field.has_presence and not field.is_repeated)
        oneof = field.containing_oneof
        self.oneof = oneof.full_name if oneof is not None and len(oneof.fields) > 1 else None
        self._scalar: Scalar | None = None
        self._part: _Part | None = None
        if field.message_type is None:
            self._scalar = Scalar(field)
            self.item_type = self._scalar.type
        else:
            self._part = _part(field.message_type, inside, fields)
            self.item_type = self._part.type
        self.type = pa.list_(self.item_type) if self.is_repeated else self.item_type
        if self._part is not None and field.message_type.GetOptions().map_entry:
            self.type = pa.map_(self.item_type.field(0).type, self.item_type.field(1).type)

    @property
    def is_scalar(self) -> bool:
        return self._scalar is not None

    def values(self, count: int) -> _Values:
        return _Values(self, count)

    def takes(self, wire_type: int) -> bool:
        if self._scalar is None:
            return wire_type == LENGTH
        is_packed = wire_type == LENGTH and self.is_repeated and self._scalar.packable
        return wire_type == self._scalar.wire_type or is_packed

    def read(self, part: Cursor, index: Indexes, wire_type: int, values: _Values) -> None:
        if self._scalar is not None and wire_type == self._scalar.wire_type:
            values.put(self._scalar.read(part), index)
        elif self._scalar is not None:
            owners, places = packed_places(part, self._scalar)
            values.put(self._scalar.read(part.placed(owners, places)), index[owners])
        else:
            self._read_messages(part, index, values)

    def _read_messages(self, part: Cursor, index: Indexes, values: _Values) -> None:
        assert self._part is not None
        if not self.is_repeated:
            if values.seen is None:
                values.seen = np.zeros(values._count, np.bool_)
            part.mark(values.seen[index], REPEATED)
            values.seen[index] = True
        starts, lengths = read_spans(part)
        inner = Cursor(part.payloads, starts.copy(), starts + lengths, part.rows, part.damage)
        values.put(self._part.read(inner), index)

    def with_default(self, column: Array) -> Array:
        if not self._has_default or not column.null_count:
            return column
        if self._scalar is None:
            return self._with_empty_messages(column) if self._is_in_map else column
        if pa.types.is_dictionary(self.type):
            texts: Any = column.cast(pa.string())
            filled: Array = texts.fill_null(self._scalar.default).dictionary_encode()
            return filled
        default: Any = pa.scalar(self._scalar.default, self.type)
        array: Array = pc.fill_null(column, default)
        return array

    def _with_empty_messages(self, column: Array) -> Array:
        assert self._part is not None
        at = np.zeros(1, np.int64)
        empty = self._part.read(Cursor(Payloads(np.zeros(0, np.uint8)), at, at, np.arange(1), Damage(1)))
        places = np.arange(len(column))
        places[np.asarray(column.is_null())] = len(column)
        return taken(joined([column, empty], self.type), places)


class _Part:
    """Reads a message that is a field's value."""

    type: pa.DataType

    def read(self, cursor: Cursor) -> Array:
        raise NotImplementedError


def _part(message: Descriptor, inside: tuple[str, ...], fields: list[int]) -> _Part:
    name = message.full_name
    if name in inside or name in _JSON:
        return _JsonText(message)
    within = _Message(message, inside, fields)
    if name in (_TIMESTAMP, _DURATION):
        return _Moment(within, name)
    return _Wrapper(within) if name in _WRAPPERS else _Struct(within)


class _Struct(_Part):
    def __init__(self, message: _Message) -> None:
        self._message = message
        self.type = message.type

    def read(self, cursor: Cursor) -> Array:
        return self._message.read(cursor)


class _Wrapper(_Part):
    """One of Protobuf's wrappers: the value that it has."""

    def __init__(self, message: _Message) -> None:
        self._message = message
        self.type = message.fields[0].type

    def read(self, cursor: Cursor) -> Array:
        return self._message.read_columns(cursor)[0]


class _Moment(_Part):
    """Seconds and nanoseconds, as microseconds; finer digits are dropped."""

    def __init__(self, message: _Message, name: str) -> None:
        self._message = message
        self._is_timestamp = name == _TIMESTAMP
        self.type = pa.timestamp("us", "UTC") if self._is_timestamp else pa.duration("us")

    def read(self, cursor: Cursor) -> Array:
        columns: Sequence[Any] = self._message.read_columns(cursor)
        seconds, nanos = (np.asarray(column) for column in columns[:2])
        first, last = (_FIRST_SECOND, _LAST_SECOND) if self._is_timestamp else (-_MAX_DURATION_S, _MAX_DURATION_S)
        bad = (seconds < first) | (seconds > last) | (np.abs(nanos.astype(np.int64)) >= 10**9)
        if self._is_timestamp:
            bad |= nanos < 0
        cursor.mark(
            bad, "a timestamp is outside the years 1 to 9999" if self._is_timestamp else "a duration is too long"
        )
        # Rounded towards the past for a time, and towards zero for a duration, whose parts have the same sign.
        micros = seconds * 1_000_000 + (nanos // 1000 if self._is_timestamp else np.fix(nanos / 1000).astype(np.int64))
        return array_of(self.type, micros * ~bad)


class _JsonText(_Part):
    """A message as Protobuf's JSON, by its library, which bounds how deep it is nested."""

    type = pa.string()

    def __init__(self, message: Descriptor) -> None:
        self._class = GetMessageClass(message)
        self._pool = message.file.pool

    def read(self, cursor: Cursor) -> Array:
        texts: list[str | None] = []
        for row, (start, end) in enumerate(zip(cursor.at.tolist(), cursor.ends.tolist(), strict=True)):
            message = self._class()
            try:
                message.ParseFromString(cursor.payloads.bytes[start:end].tobytes())
                texts.append(json_format.MessageToJson(message, indent=None, descriptor_pool=self._pool))
            except (DecodeError, ValueError, TypeError, RecursionError, json_format.Error):
                cursor.damage.mark(cursor.rows[row : row + 1], f"a {self._class.DESCRIPTOR.full_name} is not readable")
                texts.append(None)
        cursor.at = cursor.ends
        return pa.array(texts, pa.string())
