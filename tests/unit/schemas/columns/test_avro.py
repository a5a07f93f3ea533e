"""Avro payloads in columns: logical types, resolution that fastavro has otherwise, and bytes that want to be costly."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from oncelog.schemas.columns.avro import AvroDecoder
from oncelog.schemas.columns.decoded import Decoded
from oncelog.schemas.schema import SchemaError
from tests.property.schemas.avro_cases import encode

UTC = timezone.utc  # noqa: UP017


def encode_varint(value: int) -> bytes:
    return encode("long", value)


def record(*fields: Any, name: str = "R") -> Any:
    return fastavro.parse_schema({"type": "record", "name": name, "fields": list(fields)})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: str, name: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decode(schema: Any, *payloads: bytes | None, reader: Any = None) -> Decoded:
    decoded = AvroDecoder(schema, reader).decode(pa.array(payloads, pa.binary()))
    decoded.values.validate(full=True)
    return decoded


def reasons(decoded: Decoded) -> list[str | None]:
    return [None] * len(decoded.values) if decoded.reasons is None else decoded.reasons.to_pylist()


# Logical types

MOMENT = datetime(2026, 11, 27, 12, 30, 0, 123456, tzinfo=UTC)
LOGICAL = [
    (logical("int", "date"), pa.date32(), date(2026, 11, 27)),
    (logical("int", "time-millis"), pa.time32("ms"), time(12, 30, 0, 123000)),
    (logical("long", "time-micros"), pa.time64("us"), time(12, 30, 0, 123456)),
    (logical("long", "timestamp-millis"), pa.timestamp("ms", "UTC"), MOMENT.replace(microsecond=123000)),
    (logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), MOMENT),
    (logical("long", "local-timestamp-micros"), pa.timestamp("us"), MOMENT.replace(tzinfo=None)),
    (logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2), Decimal("-12345.67")),
    (logical("bytes", "decimal", precision=60, scale=1), pa.decimal256(60, 1), Decimal(10**58) / 10 + Decimal(0)),
    (
        logical("fixed", "decimal", precision=20, scale=0, name="D", size=9),
        pa.decimal128(20, 0),
        Decimal(-(10**19)),
    ),
    (logical("string", "uuid"), pa.string(), "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
]


@pytest.mark.parametrize(("kind", "column", "value"), LOGICAL)
def test_logical_types_are_arrows_own(kind: Any, column: pa.DataType, value: Any) -> None:
    schema = record(field("x", kind), field("n", ["null", kind.get("name", kind)]))
    written = UUID(value) if isinstance(value, str) else value
    payloads = [encode(schema, {"x": written, "n": written}), encode(schema, {"x": written, "n": None})]
    decoded = decode(schema, *payloads)
    assert decoded.values.type.field("x").type == column
    assert reasons(decoded) == [None, None]
    assert decoded.values.to_pylist() == [{"x": value, "n": value}, {"x": value, "n": None}]


def test_uuid_of_16_bytes_is_its_text() -> None:
    schema = record(field("x", logical("fixed", "uuid", name="U", size=16)), field("n", ["null", "U"]))
    value = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
    payload = value.bytes + b"\0"
    assert decode(schema, payload).values.to_pylist() == [{"x": str(value), "n": None}]


def test_decimal_of_too_many_digits_is_damage() -> None:
    schema = record(field("x", logical("bytes", "decimal", precision=3, scale=0)))
    payloads = [
        b"\x04\x03\xe7",
        b"\x04\x03\xe8",
        b"\x04\xfc\x19",
        b"\x00",
        b"\x28" + bytes(19) + b"\x07",
        b"\x28\x01" + bytes(19),
    ]
    decoded = decode(schema, *payloads)
    assert [row and row["x"] for row in decoded.values.to_pylist()] == [999, None, -999, 0, 7, None]


def test_largest_decimals_of_38_digits_fit() -> None:
    schema = record(field("x", logical("bytes", "decimal", precision=38, scale=2)))
    largest = Decimal("9" * 36 + ".99")
    raw = [int(sign * (10**38 - 1)).to_bytes(17, "big", signed=True) for sign in (1, -1)]
    decoded = decode(schema, *(b"\x22" + value for value in raw), b"\x22" + (10**38).to_bytes(17, "big"))
    assert [row and row["x"].copy_abs() for row in decoded.values.to_pylist()] == [largest, largest, None]


def test_times_of_another_unit_are_converted() -> None:
    writer = record(field("t", logical("long", "timestamp-millis")))
    reader = record(field("t", logical("long", "timestamp-nanos")))
    payloads = [encode(writer, {"t": 1_500}), encode(writer, {"t": 1 << 62})]
    decoded = decode(writer, *payloads, reader=reader)
    assert pc.struct_field(decoded.values, "t").cast(pa.int64())[0].as_py() == 1_500_000_000
    assert reasons(decoded) == [None, "a time is outside the reader's range"]


# Resolution


def test_defaults_of_bytes_are_latin_1() -> None:
    writer, reader = record(field("a", "int")), record(field("b", "bytes", default="\u00ff\u0000"))
    assert decode(writer, b"\x02", reader=reader).values.to_pylist() == [{"b": b"\xff\x00"}]


def test_default_of_a_nested_record_fills_its_own_defaults() -> None:
    inner = {
        "type": "record",
        "name": "I",
        "fields": [field("a", "int", default=3), field("e", {"type": "enum", "name": "E", "symbols": ["X", "Y"]})],
    }
    reader = record(field("i", inner, default={"e": "Y"}), field("l", {"type": "array", "items": "I"}, default=[]))
    assert decode(record(field("z", "int")), b"\x02", reader=reader).values.to_pylist() == [
        {"i": {"a": 3, "e": "Y"}, "l": []}
    ]


@pytest.mark.parametrize(
    ("written", "expected", "message"),
    [
        ("string", "int", "field 'x' of R: string cannot be read as int"),
        ("long", "int", "long cannot be read as int"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "fixed of 2 bytes"),
        (logical("bytes", "decimal", precision=4, scale=1), logical("bytes", "decimal", precision=4, scale=2), "scale"),
        ("string", ["null", "int"], "string cannot be read as any type of the union"),
    ],
)
def test_types_that_do_not_fit_are_refused(written: Any, expected: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        AvroDecoder(record(field("x", written)), record(field("x", expected)))


def test_new_field_without_a_default_is_null() -> None:
    writer, reader = record(field("x", "int")), record(field("y", {"type": "array", "items": "int"}), field("x", "int"))
    assert decode(writer, b"\2", reader=reader).values.to_pylist() == [{"y": None, "x": 1}]


def test_branch_that_the_reader_lacks_is_damage_of_its_records_only() -> None:
    writer, reader = record(field("x", ["null", "string", "int"])), record(field("x", ["null", "long"]))
    payloads = [encode(writer, {"x": value}) for value in (None, 5, "text", 6)]
    decoded = decode(writer, *payloads, reader=reader)
    assert [row and row["x"] for row in decoded.values.to_pylist()] == [None, 5, None, 6]
    assert reasons(decoded) == [None, None, "the reader's schema has no type for the union's string", None]


def test_enum_symbol_that_the_reader_lacks_is_its_default() -> None:
    writer = record(field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}))
    with_default = record(field("e", {"type": "enum", "name": "E", "symbols": ["B", "C"], "default": "C"}))
    without = record(field("e", {"type": "enum", "name": "E", "symbols": ["B", "C"]}))
    assert decode(writer, b"\0", b"\2", reader=with_default).values.to_pylist() == [{"e": "C"}, {"e": "B"}]
    assert reasons(decode(writer, b"\0", b"\2", reader=without)) == ["the reader's enum E lacks the symbol", None]


def test_union_reads_the_same_type_before_a_promotion() -> None:
    writer, reader = record(field("x", ["int", "long"])), record(field("x", ["double", "long"]))
    payloads = [encode(writer, {"x": ("int", 1)}), encode(writer, {"x": ("long", 1 << 40)})]
    assert decode(writer, *payloads, reader=reader).values.to_pylist() == [
        {"x": {"member0": 1.0, "member1": None}},
        {"x": {"member0": None, "member1": 1 << 40}},
    ]


# Recursive types


def test_a_union_is_a_whole_schema_whose_types_name_each_other() -> None:
    inner = {"type": "record", "name": "I", "fields": [field("x", "int")]}
    names = [("A", inner), ("B", "I")]
    first, second = ({"type": "record", "name": name, "fields": [field("i", kind)]} for name, kind in names)
    schema = fastavro.parse_schema([first, second, "I"])
    decoded = decode(schema, b"\0\2", b"\2\4", b"\4\6")
    empty = {"member0": None, "member1": None, "member2": None}
    assert decoded.values.to_pylist() == [
        {**empty, "member0": {"i": {"x": 1}}},
        {**empty, "member1": {"i": {"x": 2}}},
        {**empty, "member2": {"x": 3}},
    ]


def test_record_within_itself_is_json() -> None:
    schema = record(field("v", "int"), field("next", ["null", "R"]))
    payloads = [
        encode(schema, {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}),
        encode(schema, {"v": 1, "next": None}),
    ]
    rows = decode(schema, *payloads).values.to_pylist()
    assert json.loads(rows[0]["next"]) == {"v": 2, "next": {"v": 3, "next": None}}
    assert rows[1] == {"v": 1, "next": None}


def test_defaults_within_a_record_within_itself_are_values() -> None:
    price = logical("bytes", "decimal", precision=4, scale=2)
    at = field("at", logical("long", "timestamp-millis"), default=0)
    inner = {
        "type": "record",
        "name": "I",
        "fields": [field("x", "int", default=1), field("price", price, default="\1"), at],
    }
    more = [field("inner", inner, default={"x": 2}), field("raw", "bytes", default="ÿ"), field("lacking", "string")]
    written = field("next", ["null", "R"])
    decoded = decode(record(written), b"\2\0", reader=record(written, *more))
    assert reasons(decoded) == [None]
    value: Any = decoded.values.to_pylist()[0]
    assert json.loads(value["next"]) == {
        "next": None,
        "inner": {"x": 2, "price": "0.01", "at": "1970-01-01T00:00:00+00:00"},
        "raw": "ÿ",
        "lacking": None,
    }
    assert value["inner"] == {"x": 2, "price": Decimal("0.01"), "at": datetime(1970, 1, 1, tzinfo=UTC)}


def test_depth_of_recursive_values_is_bounded() -> None:
    schema = record(field("v", "int"), field("next", ["null", "R"]))
    deep = b"\2\2" * 100_000 + b"\2\0"
    assert reasons(decode(schema, deep, b"\2\0")) == ["it is nested deeper than 100 levels", None]


NODE = record(
    field("s", "string"),
    field("e", {"type": "enum", "name": "E", "symbols": ["A"]}),
    field("d", logical("int", "date")),
    field("f", "double"),
    field("next", ["null", "R"]),
)


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (b"\x02\xff\0\0" + bytes(9), "a value within itself is not readable: UnicodeDecodeError"),
        (b"\0\x08\0" + bytes(9), "its enum has no symbol 4"),
        (b"\0\0\xfe\xff\xff\xff\x0f" + bytes(9), "a value within itself is not readable: OverflowError"),
    ],
)
def test_bad_value_within_itself_is_damage_of_its_record_alone(inner: bytes, reason: str) -> None:
    head = b"\0\0\0" + bytes(8) + b"\2"
    decoded = decode(NODE, head + inner, head + bytes(12))
    bad, good = reasons(decoded)
    assert bad is not None
    assert reason in bad
    assert good is None
    assert decoded.values.to_pylist()[0] is None


def test_long_decimal_within_itself_costs_nothing() -> None:
    schema = record(field("d", logical("bytes", "decimal", precision=4, scale=2)), field("next", ["null", "R"]))
    inner = encode_varint(1 << 20) + b"\x7f" * (1 << 20) + b"\0"
    assert reasons(decode(schema, b"\0\2" + inner)) == ["a decimal in it has more than 4096 bytes"]


def test_number_that_json_lacks_is_text_within_itself() -> None:
    value = {"s": "", "e": "A", "d": date(1970, 1, 1), "f": 1.0, "next": None}
    row = decode(NODE, encode(NODE, {**value, "next": {**value, "f": float("-inf")}})).values.to_pylist()[0]
    assert json.loads(row["next"], parse_constant=pytest.fail)["f"] == "-Infinity"


def test_trees_may_have_many_children() -> None:
    schema = record(field("v", "int"), field("children", {"type": "array", "items": "R"}))
    value = {"v": 0, "children": [{"v": number, "children": []} for number in range(3_000)]}
    row = decode(schema, encode(schema, value)).values.to_pylist()[0]
    assert [json.loads(child)["v"] for child in row["children"]] == list(range(3_000))


# Long and hostile arrays


def test_few_long_arrays_beside_short_ones() -> None:
    item = {"type": "record", "name": "I", "fields": [field("s", "string"), field("n", ["null", "long"])]}
    schema = record(field("a", {"type": "array", "items": item}), field("m", {"type": "map", "values": "I"}))

    def value(count: int) -> dict[str, Any]:
        items = [{"s": "x" * (number % 3), "n": None if number % 7 else number} for number in range(count)]
        return {"a": items, "m": {str(number): item for number, item in enumerate(items)}}

    values = [value(count) for count in (0, 2_000, 1, 300, 0, 2)]
    decoded = decode(schema, *(encode(schema, row) for row in values))
    assert decoded.values.to_pylist(maps_as_pydicts="strict") == values


def test_many_blocks_of_one_item_with_and_without_sizes() -> None:
    schema = record(field("a", {"type": "array", "items": "string"}), field("z", "int"))
    plain = b"\x02\x02x" * 500 + b"\0\x0a"
    sized = b"\x01\x04\x02y" * 500 + b"\0\x0a"
    rows = decode(schema, plain, sized, b"\0\x0a").values.to_pylist()
    assert rows == [{"a": ["x"] * 500, "z": 5}, {"a": ["y"] * 500, "z": 5}, {"a": [], "z": 5}]


@pytest.mark.parametrize("items", ["null", "int", "string", {"type": "record", "name": "E", "fields": []}])
def test_count_that_the_bytes_cannot_hold_allocates_nothing(items: Any) -> None:
    schema = record(field("a", {"type": "array", "items": items}))
    bomb = encode_varint(1 << 40) + b"\0\0"
    smallest = encode_varint(-(1 << 63)) + b"\0\0\0"
    decoded = decode(schema, bomb, smallest, b"\0")
    assert reasons(decoded) == ["an array has more items than its bytes can hold"] * 2 + [None]
    assert decoded.values.to_pylist()[2] == {"a": []}


def test_blocks_of_items_without_bytes_are_bounded_in_sum() -> None:
    schema = record(field("a", {"type": "array", "items": "null"}))
    many = encode_varint(1_000) * 5_000 + b"\0"
    assert reasons(decode(schema, many)) == ["an array has more items than its bytes can hold"]


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("records", [1, 20])
def test_items_without_bytes_in_arrays_of_arrays_are_bounded_in_sum(records: int, is_read: bool) -> None:
    nested = {"type": "array", "items": {"type": "array", "items": "null"}}
    schema = record(field("a", nested), field("i", "int"))
    reader = schema if is_read else record(field("i", "int"))
    bomb = encode_varint(100_000) + (encode_varint(1_000) + b"\0") * 100_000 + b"\0\2"
    few = encode_varint(3) + (encode_varint(300) + b"\0") * 3 + b"\0\2"
    decoded = decode(schema, *[bomb] * records, few, reader=reader)
    assert reasons(decoded) == ["an array has more items than its bytes can hold"] * records + [None]
    assert decoded.values.to_pylist()[-1]["i"] == 1


def test_items_without_bytes_are_bounded_in_recursive_values() -> None:
    nested = {"type": "array", "items": {"type": "array", "items": "null"}}
    schema = record(field("a", nested), field("next", ["null", "R"]))
    bomb = encode_varint(100_000) + (encode_varint(1_000) + b"\0") * 100_000 + b"\0\0"
    assert reasons(decode(schema, b"\0\2" + bomb)) == ["it announces more than 16 values for each of its bytes"]


def test_schema_that_multiplies_its_columns_is_refused() -> None:
    kind: Any = "int"
    for level in range(20):
        kind = {
            "type": "record",
            "name": f"L{level}",
            "fields": [field("a", kind), field("b", f"L{level - 1}" if level else "int")],
        }
    with pytest.raises(SchemaError, match="more than 5,000 types"):
        AvroDecoder(fastavro.parse_schema(kind))


# Rows


def test_records_without_a_value_are_null_without_a_reason() -> None:
    schema = record(field("a", "int"))
    decoded = decode(schema, None, b"\2", None, b"\x80")
    assert decoded.values.to_pylist() == [None, {"a": 1}, None, None]
    assert reasons(decoded) == [None, None, None, "the bytes end within a value"]


def test_schema_need_not_be_a_record() -> None:
    assert decode(fastavro.parse_schema("string"), b"\2x", b"\4x", None).values.to_pylist() == ["x", None, None]


def test_a_name_within_an_array_that_is_the_schema_is_known() -> None:
    pair = record(field("a", {"type": "enum", "name": "E", "symbols": ["x"]}), field("b", "E"))
    decoded = decode(fastavro.parse_schema({"type": "array", "items": dict(pair)}), b"\2\0\0\0")
    assert decoded.values.to_pylist() == [[{"a": "x", "b": "x"}]]


def test_slices_of_arrays_and_prefixes_of_payloads() -> None:
    schema = record(field("a", "string"))
    payloads = pa.array([b"12345\2x", b"\4yy", b"123\2z", b"x"], pa.binary()).slice(1, 2)
    decoded = AvroDecoder(schema).decode(payloads, np.array([0, 3]))
    assert decoded.values.to_pylist() == [{"a": "yy"}, {"a": "z"}]


def test_text_that_is_not_utf_8_is_damage_even_across_neighbours() -> None:
    schema = record(field("a", "string"), field("b", ["null", "string"]))
    whole = "é".encode()
    payloads = [b"\2" + whole[:1] + b"\0", b"\2" + whole[1:] + b"\0", b"\4" + whole + b"\2\4" + whole]
    decoded = decode(schema, *payloads)
    assert reasons(decoded) == ["a string is not UTF-8"] * 2 + [None]
    assert decoded.values.to_pylist()[2] == {"a": "é", "b": "é"}


def test_times_and_ints_outside_their_range_are_damage() -> None:
    schema = record(field("t", logical("int", "time-millis")), field("i", "int"))
    payloads = [encode_varint(86_400_000) + b"\0", b"\0" + encode_varint(1 << 31), b"\0\0"]
    assert reasons(decode(schema, *payloads)) == [
        "a time of day is outside 0 to 86399999",
        "an int is outside -2147483648 to 2147483647",
        None,
    ]
