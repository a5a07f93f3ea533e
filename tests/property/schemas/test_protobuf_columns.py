"""Columns of many Protobuf payloads have what Protobuf's own parser reads from each, or the row has a reason."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.schemas.columns.protobuf import ProtobufDecoder
from oncelog.schemas.formats.parsed import parse
from oncelog.schemas.formats.protobuf.schema import ProtobufSchema
from oncelog.schemas.schema import Schema, SchemaType

TEXT = """
syntax = "proto3";
package p;
import "google/protobuf/wrappers.proto";
enum Colour { RED = 0; GREEN = 2; BLUE = -1; }
message Inner { sint32 a = 1; optional string b = 2; repeated sint64 c = 3; }
message All {
  int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; sint64 s64 = 6;
  bool flag = 7; Colour colour = 8; fixed32 f32 = 9; fixed64 f64 = 10; sfixed32 sf32 = 11; sfixed64 sf64 = 12;
  float f = 13; double d = 14; string text = 15; bytes data = 16;
  optional int32 maybe = 17; Inner inner = 18;
  oneof choice { string left = 19; Inner right = 20; int64 middle = 21; }
  repeated int32 packed = 22; repeated string texts = 23; repeated Inner inners = 24;
  repeated int32 unpacked = 25 [packed = false]; repeated double doubles = 26; repeated bool flags = 27;
  map<string, int64> counts = 28; map<int32, Inner> by_number = 29; repeated Colour colours = 30;
  google.protobuf.Int64Value wrapped = 31; reserved 40; Inner last = 2000;
}
"""
SCHEMA = parse(Schema(TEXT, SchemaType.PROTOBUF))
assert isinstance(SCHEMA, ProtobufSchema)
ALL = SCHEMA.pool.FindMessageTypeByName("p.All")
MESSAGE = SCHEMA.message_class((1,))
DECODER = ProtobufDecoder(ALL)
_F = FieldDescriptor
_RANGES = {
    _F.TYPE_INT32: 32, _F.TYPE_SINT32: 32, _F.TYPE_SFIXED32: 32, _F.TYPE_INT64: 64, _F.TYPE_SINT64: 64,
    _F.TYPE_SFIXED64: 64,
}  # fmt: skip


def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type in _RANGES:
        half = 1 << (_RANGES[field.type] - 1)
        return st.integers(-half, half - 1)
    match field.type:
        case _F.TYPE_UINT32 | _F.TYPE_FIXED32:
            return st.integers(0, (1 << 32) - 1)
        case _F.TYPE_UINT64 | _F.TYPE_FIXED64:
            return st.integers(0, (1 << 64) - 1)
        case _F.TYPE_BOOL:
            return st.booleans()
        case _F.TYPE_ENUM:
            return st.sampled_from([0, 2, -1, 7])
        case _F.TYPE_FLOAT:
            return st.floats(width=32, allow_nan=False)
        case _F.TYPE_DOUBLE:
            return st.floats(allow_nan=False)
        case _F.TYPE_BYTES:
            return st.binary(max_size=8)
    return st.text(max_size=6)


def fill(draw: Any, message: Any) -> Any:
    """Set some fields of a message."""
    names = draw(st.lists(st.sampled_from([field.name for field in message.DESCRIPTOR.fields]), max_size=8))
    for name in names:
        field = message.DESCRIPTOR.fields_by_name[name]
        value = getattr(message, name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key = draw(scalars(field.message_type.fields_by_name["key"]))
            held = field.message_type.fields_by_name["value"]
            if held.message_type is None:
                value[key] = draw(scalars(held))
            else:
                fill(draw, value[key])
        elif field.is_repeated and field.message_type is not None:
            fill(draw, value.add())
        elif field.is_repeated:
            value.extend(draw(st.lists(scalars(field), max_size=5)))
        elif field.message_type is not None:
            value.SetInParent()
            fill(draw, value)
        else:
            setattr(message, name, draw(scalars(field)))
    return message


def in_columns(message: Any) -> dict[str, Any]:
    """A message as the columns have it."""
    return {field.name: field_value(message, field) for field in message.DESCRIPTOR.fields}


def field_value(message: Any, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        held = field.message_type.fields_by_name["value"]
        return {key: scalar(held, value[key]) for key in value}
    if field.is_repeated:
        return [scalar(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return scalar(field, value)


def scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return value.value if field.message_type.name == "Int64Value" else in_columns(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return value


def with_maps(row: Any) -> Any:
    """A row whose maps are dicts: of two entries with one key the last counts."""
    if row is None:
        return None
    maps = {name: dict(row[name]) for name in ("counts", "by_number")}
    return {**row, **maps}


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_columns_have_the_values_that_protobuf_reads(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    messages = [fill(data.draw, MESSAGE()) for _ in range(count)]
    decoded = DECODER.decode(pa.array([message.SerializeToString() for message in messages], pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.reasons is None
    assert [with_maps(row) for row in decoded.values.to_pylist()] == [in_columns(message) for message in messages]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_odd_and_damaged_payloads_are_judged_as_by_protobuf(data: st.DataObject) -> None:
    pieces = [fill(data.draw, MESSAGE()).SerializeToString() for _ in range(data.draw(st.integers(2, 5)))]
    # Messages one behind the other are one message, whose fields are repeated and out of order.
    payloads = [*pieces, b"".join(pieces)]
    victim = data.draw(st.integers(0, len(payloads) - 1))
    at = data.draw(st.integers(0, len(payloads[victim])))
    change = data.draw(st.one_of(st.just(b""), st.binary(min_size=1, max_size=11)))
    drop = data.draw(st.integers(0, 3))
    payloads[victim] = payloads[victim][:at] + change + payloads[victim][at + drop :]
    decoded = DECODER.decode(pa.array(payloads, pa.binary()))
    decoded.values.validate(full=True)
    reasons = [None] * len(payloads) if decoded.reasons is None else decoded.reasons.to_pylist()
    for payload, row, reason in zip(payloads, decoded.values.to_pylist(), reasons, strict=True):
        _check(payload, row, reason)


def _check(payload: bytes, row: Any, reason: str | None) -> None:
    message = MESSAGE()
    try:
        message.ParseFromString(payload)
    except DecodeError:
        if reason is None:
            pytest.fail(f"{payload!r} has no reason, but Protobuf refuses it")
        return
    if reason is not None:
        pytest.fail(f"{payload!r} is {message}, but refused: {reason}")
    assert repr(with_maps(row)) == repr(_in_order(row, in_columns(message)))


def _in_order(row: Any, expected: dict[str, Any]) -> dict[str, Any]:
    """The expected row with the entries of maps in the row's order."""
    maps = {name: {key: expected[name].get(key) for key, _ in row[name]} for name in ("counts", "by_number")}
    assert all(len(maps[name]) == len(expected[name]) for name in maps)
    return {**expected, **maps}
