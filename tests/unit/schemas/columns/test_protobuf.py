"""Protobuf payloads in columns: well-known types, odd but valid bytes, and bytes that want to be costly."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from oncelog.schemas.columns.decoded import Decoded
from oncelog.schemas.columns.protobuf import ProtobufDecoder
from oncelog.schemas.formats.parsed import parse
from oncelog.schemas.formats.protobuf.schema import ProtobufSchema
from oncelog.schemas.schema import Schema, SchemaError, SchemaType

HEAD = """
syntax = "proto3";
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto";
"""


def schema(body: str, head: str = HEAD) -> ProtobufSchema:
    parsed = parse(Schema(head + body, SchemaType.PROTOBUF))
    assert isinstance(parsed, ProtobufSchema)
    return parsed


def decoder(parsed: ProtobufSchema) -> ProtobufDecoder:
    return ProtobufDecoder(parsed.pool.FindMessageTypeByName(parsed.message_name((0,))))


def decode(parsed: ProtobufSchema, *payloads: bytes | None) -> Decoded:
    decoded = decoder(parsed).decode(pa.array(payloads, pa.binary()))
    decoded.values.validate(full=True)
    return decoded


def reasons(decoded: Decoded) -> list[str | None]:
    return [None] * len(decoded.values) if decoded.reasons is None else decoded.reasons.to_pylist()


def message(parsed: ProtobufSchema) -> Any:
    return parsed.message_class((0,))()


def test_well_known_types() -> None:
    parsed = schema(
        "message M { google.protobuf.Timestamp at = 1; google.protobuf.Duration took = 2;"
        " google.protobuf.StringValue name = 3; google.protobuf.Struct any = 4; }"
    )
    full = message(parsed)
    moment = datetime(1900, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    full.at.FromDatetime(moment)
    full.took.FromTimedelta(timedelta(seconds=-1, microseconds=-5))
    full.name.SetInParent()
    full.any.update({"a": [1, {"b": None}]})
    rows = decode(parsed, full.SerializeToString(), b"").values.to_pylist()
    assert json.loads(rows[0].pop("any")) == {"a": [1, {"b": None}]}
    assert rows[0] == {"at": moment, "took": timedelta(seconds=-1, microseconds=-5), "name": ""}
    assert rows[1] == {"at": None, "took": None, "name": None, "any": None}


@pytest.mark.parametrize(("seconds", "nanos"), [(253_402_300_800, 0), (0, -1), (0, 10**9)])
def test_timestamps_outside_their_range_are_damage(seconds: int, nanos: int) -> None:
    parsed = schema("message M { google.protobuf.Timestamp at = 1; }")
    wrong = message(parsed)
    wrong.at.seconds, wrong.at.nanos = seconds, nanos
    assert reasons(decode(parsed, wrong.SerializeToString(), b"")) == [
        "a timestamp is outside the years 1 to 9999",
        None,
    ]


def test_message_within_itself_is_json() -> None:
    parsed = schema("message M { int32 v = 1; M next = 2; repeated M more = 3; }")
    value = message(parsed)
    value.v, value.next.v, value.next.next.v = 1, 2, 3
    value.more.add().v = 4
    row = decode(parsed, value.SerializeToString()).values.to_pylist()[0]
    assert (row["v"], json.loads(row["next"])) == (1, {"v": 2, "next": {"v": 3}})
    assert [json.loads(text) for text in row["more"]] == [{"v": 4}]


def test_depth_of_recursive_messages_is_bounded() -> None:
    parsed = schema("message M { M next = 2; }")
    deep = b""
    for _ in range(300):
        size = len(deep)
        deep = b"\x12" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + deep
    assert reasons(decode(parsed, deep, b"")) == ["a M is not readable", None]


def test_long_repeated_fields_of_few_records() -> None:
    parsed = schema("message M { repeated string s = 1; repeated I i = 2; int32 z = 3; message I { int32 v = 1; } }")
    values = []
    for count in (0, 3_000, 2, 700):
        value = message(parsed)
        value.s.extend(str(number) for number in range(count))
        for number in range(count):
            value.i.add().v = number
        value.z = 7
        values.append(value)
    rows = decode(parsed, *(value.SerializeToString() for value in values)).values.to_pylist()
    assert rows == [{"s": list(value.s), "i": [{"v": item.v} for item in value.i], "z": 7} for value in values]


def test_fields_in_any_order_many_times() -> None:
    parsed = schema("message M { int32 a = 1; int32 b = 2; repeated int32 r = 3; }")
    turns = b"".join(b"\x10\x01\x08" + bytes([turn % 100]) + b"\x18\x05" for turn in range(2_000))
    assert decode(parsed, turns, b"\x08\x01").values.to_pylist() == [
        {"a": 99, "b": 1, "r": [5] * 2_000},
        {"a": 1, "b": 0, "r": []},
    ]


def test_message_in_pieces_is_merged_and_of_a_oneof_the_last_counts() -> None:
    parsed = schema("message M { I i = 1; oneof o { int32 x = 2; I y = 3; } message I { int32 a = 1; int32 b = 2; } }")
    pieces = b"\x0a\x02\x08\x01" + b"\x0a\x02\x10\x02"
    both = b"\x10\x05" + b"\x1a\x02\x08\x07"
    rows = decode(parsed, pieces, both, b"\x10\x09").values.to_pylist()
    assert rows == [
        {"i": {"a": 1, "b": 2}, "x": None, "y": None},
        {"i": None, "x": None, "y": {"a": 7, "b": 0}},
        {"i": None, "x": 9, "y": None},
    ]


def test_unknown_fields_and_groups_are_skipped() -> None:
    parsed = schema("message M { int32 a = 1; }")
    group = b"\x1b\x08\x01\x1b\x1c\x1c"
    unknown = b"\x20\x80\x01" + b"\x29" + bytes(8) + b"\x32\x02xx" + b"\x3d" + bytes(4) + group
    assert decode(parsed, unknown + b"\x08\x05", b"\x08\x06").values.to_pylist() == [{"a": 5}, {"a": 6}]
    assert reasons(decode(parsed, b"\x1b" * 10_000, b"\x1b\x24", b"\x08\x06"))[2] is None
    assert all(reasons(decode(parsed, b"\x1b" * 10_000, b"\x1b\x24")))


@pytest.mark.parametrize(
    "payload", [b"\x0a\xff\xff\xff\xff\x7f", b"\x0a" + b"\xff" * 9 + b"\x01", b"\x12\x80\x80\x80\x80\x80\x40"]
)
def test_length_beyond_the_bytes_allocates_nothing(payload: bytes) -> None:
    parsed = schema("message M { string s = 1; repeated double d = 2; }")
    damaged, neighbour = reasons(decode(parsed, payload, b"\x0a\x01x"))
    assert damaged in ("the bytes end within a value", "a length is negative")
    assert neighbour is None


def test_proto2_has_presence_and_closed_enums() -> None:
    parsed = schema(
        "message M { optional int32 a = 1 [default = 5]; optional E e = 2; repeated E es = 3;"
        " enum E { X = 1; Y = 2; } }",
        'syntax = "proto2";',
    )
    rows = decode(parsed, b"", b"\x08\x00\x10\x02\x18\x01").values.to_pylist()
    assert rows == [{"a": None, "e": None, "es": []}, {"a": 0, "e": "Y", "es": ["X"]}]
    assert decode(parsed, b"\x10\x07").values.to_pylist()[0]["e"] is None


def test_packed_values_among_others_keep_their_order() -> None:
    parsed = schema("message M { repeated int32 n = 1; }")
    payload = b"\x08\x01\x0a\x02\x02\x03" * 40
    assert decode(parsed, payload, b"").values.to_pylist() == [{"n": [1, 2, 3] * 40}, {"n": []}]


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_entries_of_maps_have_a_key_once_and_a_value(syntax: str) -> None:
    optional = "optional " if syntax == "proto2" else ""
    parsed = schema(
        f"message M {{ map<string, int32> n = 1; map<int32, In> m = 2; }} message In {{ {optional}int32 x = 1; }}",
        f'syntax = "{syntax}";',
    )
    # No key; no value; a key twice; a message that is not there.
    payload = b"\x0a\x02\x10\x07" + b"\x0a\x03\x0a\x01a" + b"\x0a\x05\x0a\x01b\x10\x01" * 2 + b"\x12\x02\x08\x05"
    row = decode(parsed, payload).values.to_pylist(maps_as_pydicts="strict")[0]
    assert row == {"n": {"": 7, "a": 0, "b": 1}, "m": {5: {"x": None if optional else 0}}}


def test_unknown_numbers_of_closed_enums_are_not_there() -> None:
    parsed = schema(
        "enum E { A = 0; B = 1; } message M { optional E e = 1; repeated E l = 2; map<int32, E> m = 3; }",
        'syntax = "proto2";',
    )
    payload = b"\x08\x01\x08\x09" + b"\x10\x01\x10\x09\x10\x00" + b"\x1a\x04\x08\x01\x10\x09"
    assert decode(parsed, payload).values.to_pylist() == [{"e": "B", "l": ["B", "A"], "m": []}]


def test_schema_that_multiplies_its_columns_is_refused() -> None:
    levels = "".join(f"message L{level} {{ L{level + 1} a = 1; L{level + 1} b = 2; }}" for level in range(16))
    with pytest.raises(SchemaError, match="more than 5,000 fields"):
        decoder(schema(levels + "message L16 { int32 a = 1; }"))


def test_records_without_a_value_are_null_and_empty_ones_defaults() -> None:
    parsed = schema("message M { int32 a = 1; string s = 2; repeated int32 r = 3; }")
    decoded = decode(parsed, None, b"", b"\x08")
    assert decoded.values.to_pylist() == [None, {"a": 0, "s": "", "r": []}, None]
    assert reasons(decoded) == [None, None, "the bytes end within a value"]
