"""JSON values into columns: exactly what the bytes say, or a bad row with its reason."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from oncelog.spark.json_values.decoder import JsonDecoder
from oncelog.spark.json_values.decoding import JsonDecoding
from oncelog.spark.session.errors import OptionError

T: Final = 1_700_000_000_000
_KINDS: Final = {
    "ARRAY<INT>": {"type": "array", "elementType": "integer", "containsNull": True},
    "MAP<STRING,INT>": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
}


def struct(**fields: Any) -> dict[str, Any]:
    """A struct in Spark's JSON; the DDL of Spark needs a JVM."""
    kinds = {name: _KINDS.get(kind, kind) if isinstance(kind, str) else kind for name, kind in fields.items()}
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()],
    }


def decode(
    values: list[bytes | None], skip_bytes: int = 0, time_path: str | None = None, **fields: Any
) -> list[dict[str, Any]]:
    """The decoded rows; ``fields`` are the schema's."""
    columns = StructType.fromJson(struct(**fields)) if fields else None
    rows: Any = pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.array([T * 1000] * len(values), pa.timestamp("us", "UTC"))],
        names=["value", "timestamp"],
    )
    decoded = JsonDecoder(JsonDecoding.parse(JsonDecoding(columns, skip_bytes, time_path).option())).decode(rows)
    assert [
        column.name for column in JsonDecoding(columns, skip_bytes, time_path).added_columns()
    ] == decoded.schema.names[2:]
    return decoded.to_pylist()


def one(value: bytes, **fields: Any) -> dict[str, Any]:
    (row,) = decode([value], **fields)
    return row


GOOD: Final[list[tuple[Any, str, Any]]] = [
    ("byte", "-128", -128),
    ("byte", "-0", 0),
    ("short", "32767", 32767),
    ("integer", "-2147483648", -(2**31)),
    ("long", "9223372036854775807", 2**63 - 1),
    ("decimal(10,2)", "1.230", Decimal("1.23")),
    ("decimal(10,2)", "12345678.9", Decimal("12345678.90")),
    ("decimal(10,2)", "1e2", Decimal("100.00")),
    ("decimal(10,2)", "-0", Decimal("0.00")),
    ("decimal(38,2)", "12345678901234567.89", Decimal("12345678901234567.89")),
    ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("decimal(38,38)", "0." + "1" * 38, Decimal("0." + "1" * 38)),
    ("decimal(4,0)", "0e999999999", Decimal(0)),
    ("decimal(4,2)", "1.5" + "0" * 5000, Decimal("1.50")),
    ("double", "0.1", 0.1),
    ("double", "1e308", 1e308),
    ("double", "5e-324", 5e-324),
    ("double", "0e-999", 0.0),
    ("double", "9007199254740993", 9007199254740992.0),
    ("double", "3", 3.0),
    ("float", "3.4e38", 3.3999999521443642e38),
    ("float", "0.5", 0.5),
    ("boolean", "true", True),
    ("string", '"\\u0000 \\ud83d\\ude00 \u2028"', "\0 \U0001f600 \u2028"),
    ("string", '""', ""),
    ("date", '"0001-01-01"', date(1, 1, 1)),
    ("date", '"2024-02-29"', date(2024, 2, 29)),
    ("timestamp", '"2013-06-01T12:30:00.123456Z"', datetime(2013, 6, 1, 12, 30, 0, 123456, UTC)),
    ("timestamp", '"2013-06-01 12:30:00+02:00"', datetime(2013, 6, 1, 10, 30, tzinfo=UTC)),
    ("timestamp", '"2013-06-01T12:30-0130"', datetime(2013, 6, 1, 14, 0, tzinfo=UTC)),
    ("timestamp", '"2013-06-01T12:30"', datetime(2013, 6, 1, 12, 30, tzinfo=UTC)),
    ("timestamp", '"2013-06-01"', datetime(2013, 6, 1, tzinfo=UTC)),
    ("timestamp", '"2013-06-01T00:00:00.123456000Z"', datetime(2013, 6, 1, 0, 0, 0, 123456, UTC)),
    ("timestamp", "1370044800000", datetime(2013, 6, 1, tzinfo=UTC)),
    ("timestamp", "1370044800000.125", datetime(2013, 6, 1, 0, 0, 0, 125, UTC)),
    ("timestamp", "-1", datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
    ("timestamp", "1.3700448e12", datetime(2013, 6, 1, tzinfo=UTC)),
    ("timestamp_ntz", '"2013-06-01T12:30:00"', datetime(2013, 6, 1, 12, 30)),  # noqa: DTZ001 - it has no zone
    ("binary", '"/+8="', b"\xff\xef"),
    ("ARRAY<INT>", "[1,null,2]", [1, None, 2]),
    ("MAP<STRING,INT>", '{"a":1,"b":null}', [("a", 1), ("b", None)]),
    (struct(x="integer"), '{"x":1}', {"x": 1}),
    (struct(x="integer"), "{}", {"x": None}),
]


@pytest.mark.parametrize(("kind", "text", "expected"), GOOD)
def test_a_value_of_its_columns_type_is_there_exactly(kind: Any, text: str, expected: Any) -> None:
    row = one(b'{"a":%s}' % text.encode(), a=kind)
    assert (row["_bad"], row["a"], row["other_fields"], row["value"]) == (None, expected, None, None)
    assert type(row["a"]) is type(expected)


OTHER_TYPES: Final[list[tuple[Any, str]]] = [
    ("byte", "200"),
    ("byte", "-129"),
    ("byte", "true"),
    ("short", "32768"),
    ("integer", "2147483648"),
    ("integer", '"1"'),
    ("integer", "1.0"),
    ("integer", "1e0"),
    ("long", "9223372036854775808"),
    ("long", "9" * 5000),
    ("long", "{}"),
    ("decimal(10,2)", "1.239"),
    ("decimal(10,2)", "123456789"),
    ("decimal(10,2)", '"1.23"'),
    ("decimal(10,2)", "1e999999999"),
    ("decimal(10,2)", "1e-999999999"),
    ("decimal(10,2)", "1e9999999999999999999999"),
    ("decimal(10,2)", "9" * 100_000),
    ("double", "1e400"),
    ("double", "-1e400"),
    ("double", "1e-400"),
    ("double", "9" * 400),
    ("double", "9" * 5000),
    ("double", '"NaN"'),
    ("double", '"1.5"'),
    ("double", "true"),
    ("float", "1e39"),
    ("float", "3.4028236e38"),
    ("float", "1e-46"),
    ("boolean", '"true"'),
    ("boolean", "1"),
    ("string", "1"),
    ("string", "1.5"),
    ("string", "{}"),
    ("string", "[]"),
    ("string", "false"),
    ("date", '"2013-6-1"'),
    ("date", '"2013-02-30"'),
    ("date", '"2013-06-01T00:00:00"'),
    ("date", '"20130601"'),
    ("date", '"\u0662\u0660\u0661\u0663-06-01"'),
    ("date", "15857"),
    ("timestamp", '"12:30:00"'),
    ("timestamp", '"T12:30:00Z"'),
    ("timestamp", '"2013"'),
    ("timestamp", '"2013-06"'),
    ("timestamp", '"now"'),
    ("timestamp", '"epoch"'),
    ("timestamp", '"1370044800000"'),
    ("timestamp", '" 2013-06-01"'),
    ("timestamp", '"2013-06-01T24:00:00Z"'),
    ("timestamp", '"2013-06-01T23:59:60Z"'),
    ("timestamp", '"2013-06-01T12:30:00.1234567Z"'),
    ("timestamp", '"2013-06-01T12:30:00+19:00"'),
    ("timestamp", '"2013-06-01T12:30:00 Europe/Berlin"'),
    ("timestamp", '"0001-01-01T00:00:00+01:00"'),
    ("timestamp", '"9999-12-31T23:59:59-01:00"'),
    ("timestamp", '"+12013-06-01"'),
    ("timestamp", "1370044800000000000"),
    ("timestamp", "1370044800000.0001"),
    ("timestamp", "1e400"),
    ("timestamp", "9" * 5000),
    ("timestamp", "true"),
    ("timestamp_ntz", '"2013-06-01T12:30:00Z"'),
    ("timestamp_ntz", "1370044800000"),
    ("binary", '"/+8"'),
    ("binary", '"/+9="'),
    ("binary", '"not base64"'),
    ("binary", "[1]"),
    ("ARRAY<INT>", "1"),
    ("ARRAY<INT>", '{"0":1}'),
    ("ARRAY<INT>", '[1,"2"]'),
    ("MAP<STRING,INT>", "[]"),
    ("MAP<STRING,INT>", '{"a":1.5}'),
    (struct(x="byte"), '{"x":300}'),
    (struct(x="byte"), '"x"'),
    (struct(x="byte"), "[]"),
]


@pytest.mark.parametrize(("kind", "text"), OTHER_TYPES, ids=lambda value: str(value)[:40])
def test_a_value_of_another_type_is_a_bad_row(kind: Any, text: str) -> None:
    value = b'{"a":%s,"b":1}' % text.encode()
    bad, good = decode([value, b'{"b":2}'], a=kind, b="integer")
    assert bad["_bad"].startswith("field a is not "), bad
    assert bad["value"] == value
    assert (good["_bad"], good["a"], good["b"], good["value"]) == (None, None, 2, None)


def test_every_field_of_another_type_is_named() -> None:
    row = one(b'{"a":"x","b":2,"c":{"d":[3,"e"]}}', a="integer", b="integer", c=struct(d="ARRAY<INT>"))
    assert row["_bad"] == "field a is not int; field c is not struct<d:array<int>>"


NOT_JSON: Final = [
    (b"", "expecting value at character 1"),
    (b"   ", "expecting value at character 1"),
    (b'{"a":1}{"a":2}', "something follows the document at character 8"),
    (b'{"a":1},{"a":2}', "something follows the document"),
    (b'{"a":1}\n{"a":2}', "something follows the document"),
    (b'{"a":1}]', "something follows the document"),
    (b'{"a":1} x', "something follows the document"),
    (b'{"a":1}\0', "something follows the document"),
    (b'{"a":1}\xc2\xa0', "something follows the document"),
    (b'\xef\xbb\xbf{"a":1}', "expecting value"),
    ('{"a":1}'.encode("utf-16"), "byte 1 is not UTF-8"),
    ('{"a":1}'.encode("utf-16-le"), "expecting property name"),
    (b'{"a":1,"s":"\xff\xfe"}', "byte 13 is not UTF-8"),
    (b'{"a":1,"s":"\xed\xa0\x80"}', "is not UTF-8"),
    (b'{"a":1,"s":"\xc0\xaf"}', "is not UTF-8"),
    (b'{"a":1,"s":"\\ud800"}', "half of a surrogate pair"),
    (b'{"a":1,"\\uDC00":2}', "half of a surrogate pair"),
    (b"{'a':1}", "expecting property name"),
    (b"{\"a\":'1'}", "expecting value"),
    (b"{a:1}", "expecting property name"),
    (b'{"a":01}', "expecting ',' delimiter"),
    (b'{"a":+1}', "expecting value"),
    (b'{"a":.5}', "expecting value"),
    (b'{"a":1.}', "expecting ',' delimiter"),
    (b'{"a":0x10}', "expecting ',' delimiter"),
    (b'{"a":1,}', "expecting property name"),
    (b'{"a":[1,]}', "expecting value"),
    (b'{"a":1/*c*/}', "expecting ',' delimiter"),
    (b'{"a":1}//c', "something follows the document"),
    (b'{"a":NaN}', "NaN is not a JSON number"),
    (b'{"b":-Infinity}', "-Infinity is not a JSON number"),
    (b'{"a":Infinity}', "Infinity is not a JSON number"),
    (b'{"a":TRUE}', "expecting value"),
    (b'{"s":"a\nb"}', "invalid control character"),
    (b'{"s":"\\x41"}', "invalid \\escape"),
    (b'{"s":"\\u12"}', "invalid \\uxxxx escape"),
    (b'{"a":1,"a":2}', "the name 'a' is twice in one object"),
    (b'{"a":1,"\\u0061":1}', "the name 'a' is twice in one object"),
    (b'{"x":[{"y":{"b":1,"c":2,"b":1}}]}', "the name 'b' is twice in one object"),
    (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "it is nested too deeply"),
    (b'{"x":' + b'{"x":' * 100_000 + b"1" + b"}" * 100_001, "it is nested too deeply"),
]


@pytest.mark.parametrize(("value", "reason"), NOT_JSON, ids=lambda value: str(value[:30]))
def test_what_is_not_one_json_document_is_a_bad_row(value: bytes, reason: str) -> None:
    good = b' \t\r\n{"a" : 7} \n'
    bad, after = decode([value, good], a="integer")
    assert bad["_bad"].startswith("not JSON: ")
    assert reason in bad["_bad"].replace("uXXXX", "uxxxx")
    assert len(bad["_bad"]) < 200
    assert bad["value"] == value
    assert (after["a"], after["_bad"]) == (7, None)


@pytest.mark.parametrize("value", [b"[]", b"1", b'"a"', b"null", b"true", b'[{"a":1}]'])
def test_a_document_that_is_no_object_is_a_bad_row(value: bytes) -> None:
    assert one(value, a="integer")["_bad"] == "not a JSON object of this schema"


def test_a_document_at_any_depth_is_a_bad_row_or_kept() -> None:
    for depth in range(200, 1400, 37):
        row = one(b'{"x":' + b"[" * depth + b"]" * depth + b"}", a="integer")
        if row["_bad"] is None:
            assert row["other_fields"] == '{"x":' + "[" * depth + "]" * depth + "}"
        else:
            assert row["_bad"] == "not JSON: it is nested too deeply"


def test_tombstones_missing_fields_and_nulls_are_nulls() -> None:
    rows = decode([None, b'{"b":1}', b'{"a":null,"b":1}'], a="integer", b="integer")
    assert [(row["a"], row["b"], row["other_fields"], row["_bad"]) for row in rows] == [
        (None, None, None, None),
        (None, 1, None, None),
        (None, 1, None, None),
    ]


def test_an_object_of_which_nothing_is_left_is_no_tombstone() -> None:
    rows = decode([b"{}", b'{"a":null}', b'{"a":null,"x":null}'], a="integer")
    assert [row["other_fields"] for row in rows] == ["{}", "{}", '{"x":null}']


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (b'{"a":1,"p":1.10}', '{"p":1.10}'),
        (b'{"a":1,"p":-0,"q":1E400,"r":12345678901234567890.10}', '{"p":-0,"q":1E400,"r":12345678901234567890.10}'),
        (b'{"a":1,"p":%s}' % (b"7" * 5000), '{"p":%s}' % ("7" * 5000)),
        (b'{ "a": 1, "p": [ {"q": "\\u00e9\\n", "b": false} ] }', '{"p":[{"q":"\u00e9\\n","b":false}]}'),
        (b'{"A":2,"a":1}', '{"A":2}'),
        (b'{"a":1,"n":{"x":1,"y":2.50}}', '{"n":{"x":1,"y":2.50}}'),
        (b'{"a":1,"n":{"x":1}}', None),
        (b'{"a":1,"l":[{"x":1},null,{"z":3}]}', '{"l":[{"x":1},null,{"z":3}]}'),
        (b'{"a":1,"m":{"k":{"x":1,"y":[]}}}', '{"m":{"k":{"x":1,"y":[]}}}'),
    ],
)
def test_what_no_column_is_for_is_kept_as_it_was_written(value: bytes, kept: str | None) -> None:
    inside = struct(x="integer")
    row = one(
        value,
        a="integer",
        n=inside,
        l={"type": "array", "elementType": inside, "containsNull": True},
        m={"type": "map", "keyType": "string", "valueType": inside, "valueContainsNull": True},
    )
    assert (row["_bad"], row["a"], row["other_fields"]) == (None, 1, kept)


def test_values_after_bytes_that_are_skipped() -> None:
    rows = decode([b'\0\0\0\0\xff{"a":1}', b"\0", None], skip_bytes=5, a="integer")
    assert [(row["a"], row["_bad"]) for row in rows] == [
        (1, None),
        (None, "not JSON: expecting value at character 1"),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("path", "value", "time_ms"),
    [
        ("$.at", b'{"at":1370044800000}', 1370044800000),
        ("$['at']", b'{"at":"2013-06-01T00:00:00Z"}', 1370044800000),
        ("$.m.at[1]", b'{"m":{"at":[0,1370044800000]}}', 1370044800000),
        ("$", b"1370044800000", 1370044800000),
        ("$['a.b']", b'{"a.b":-5}', -5),
    ],
)
def test_an_event_time_is_found(path: str, value: bytes, time_ms: int) -> None:
    row = one(value, time_path=path)
    assert row["_bad"] is None
    assert row["_time"].timestamp() * 1000 == time_ms
    assert row["value"] == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{}", "no time at $.at"),
        (b'{"at":null}', "no time at $.at"),
        (b"[]", "no time at $.at"),
        (b'{"at":1370044800000000000}', "the value at $.at is not a time in the years 1 to 9999"),
        (b'{"at":9223372036854775807}', "the value at $.at is not a time in the years 1 to 9999"),
        (b'{"at":-9223372036854775808}', "the value at $.at is not a time in the years 1 to 9999"),
        (b'{"at":1e30}', "the value at $.at is not a time in the years 1 to 9999"),
        (b'{"at":"12:30:00"}', "the value at $.at is not a time in the years 1 to 9999"),
        (b'{"at":{}}', "the value at $.at is not a time in the years 1 to 9999"),
        (b"nothing", "not JSON: expecting value at character 1"),
    ],
)
def test_a_row_without_an_event_time_is_bad(value: bytes, reason: str) -> None:
    bad, good, tombstone = decode([value, b'{"at":5}', None], time_path="$.at")
    assert (bad["_bad"], bad["_time"]) == (reason, None)
    assert (good["_bad"], tombstone["_bad"], tombstone["_time"].timestamp()) == (None, None, T / 1000)


def test_long_numbers_and_broken_values_cost_little() -> None:
    """A megabyte of digits, of openings, of one field's name: each is refused or kept without a number being made."""
    for value in (b'{"x":%s}' % (b"9" * 1_000_000), b'{"x":1%s}' % (b"0" * 1_000_000), b"[" * 1_000_000):
        decode([value], a="double")
    assert one(b'{"a":%s}' % (b"9" * 1_000_000), a="double")["_bad"] == "field a is not double"


@pytest.mark.parametrize(
    "kind",
    [
        "interval day to second",
        {"type": "map", "keyType": "integer", "valueType": "integer", "valueContainsNull": True},
        "variant",
        struct(v="variant"),
        struct(x="integer", X="integer"),
    ],
)
def test_a_type_that_json_is_not_decoded_into_is_refused(kind: Any) -> None:
    with pytest.raises(OptionError, match="the schema's field 'a"):
        decode([], a=kind)


@pytest.mark.parametrize("path", ["$.a[*]", "$.*", "$..a", "$x", "$.a b", "$['a'", "$."])
def test_a_path_that_is_not_one_place_is_refused(path: str) -> None:
    with pytest.raises(OptionError, match="the event time's path must consist of names and indexes"):
        decode([], time_path=path)


def test_documents_survive_a_round_through_their_text() -> None:
    document = {"a": [1, 2.5, 'x\u2028"\\', None, True, {}, []], "b": {"c": {"d": []}}}
    row = one(json.dumps(document).encode(), z="integer")
    assert json.loads(row["other_fields"]) == document
