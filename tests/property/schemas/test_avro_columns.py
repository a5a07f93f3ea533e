"""Columns of many Avro payloads are what fastavro reads from each of them, or the payload's row has a reason."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.schemas.columns.avro import AvroDecoder
from oncelog.schemas.formats.avro.schema import parse_avro
from oncelog.schemas.schema import Schema
from oncelog.schemas.values.avro import AvroCodec
from oncelog.schemas.values.errors import NotReadable
from tests.property.schemas.avro_cases import avro_schemas, encode, evolved, in_columns, read, values

# The only bound that differs from the rows'.
_STRICTER = "an array has more items"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_columns_have_the_values_that_fastavro_reads(data: st.DataObject) -> None:
    schema = data.draw(avro_schemas())
    parsed = fastavro.parse_schema(schema)
    payloads = [encode(parsed, value) for value in data.draw(st.lists(values(schema), min_size=1, max_size=30))]
    decoded = AvroDecoder(parsed).decode(pa.array(payloads, pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.reasons is None
    assert decoded.values.to_pylist() == [in_columns(schema, read(payload, parsed)) for payload in payloads]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_readers_schema_resolves_as_in_fastavro(data: st.DataObject) -> None:
    schema = data.draw(avro_schemas())
    expected = data.draw(evolved(schema))
    writer, reader = fastavro.parse_schema(schema), fastavro.parse_schema(expected)
    payloads = [encode(writer, value) for value in data.draw(st.lists(values(schema), min_size=1, max_size=10))]
    decoded = AvroDecoder(writer, reader).decode(pa.array(payloads, pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.reasons is None
    assert decoded.values.to_pylist() == [in_columns(expected, read(payload, writer, reader)) for payload in payloads]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_payload_has_a_reason_and_leaves_its_neighbours_alone(data: st.DataObject) -> None:
    schema = data.draw(avro_schemas())
    parsed = fastavro.parse_schema(schema)
    payloads = [encode(parsed, value) for value in data.draw(st.lists(values(schema), min_size=2, max_size=6))]
    intact = AvroDecoder(parsed).decode(pa.array(payloads, pa.binary())).values.to_pylist()
    victim = data.draw(st.integers(0, len(payloads) - 1))
    payloads[victim] = _damaged(data, payloads[victim])
    decoded = AvroDecoder(parsed).decode(pa.array(payloads, pa.binary()))
    decoded.values.validate(full=True)
    rows = decoded.values.to_pylist()
    reasons = [None] * len(rows) if decoded.reasons is None else decoded.reasons.to_pylist()
    for row in range(len(rows)):
        if row != victim:
            assert (repr(rows[row]), reasons[row]) == (repr(intact[row]), None)
    _check_verdict(schema, parsed, payloads[victim], rows[victim], reasons[victim])


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (["null", "long"], b"\1"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\1"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\4"),
        ("boolean", b"\2"),
        ("int", bytes.fromhex("8080808010")),
        ("long", b"\x80" * 10 + b"\0"),
        ("bytes", b"\1"),
        ({"type": "array", "items": "boolean"}, b"\2\2\0"),
        ({"type": "map", "values": "int"}, b"\2\0" + bytes.fromhex("8080808010") + b"\0"),
    ],
)
def test_odd_encodings_are_refused_by_columns_and_rows_also_where_they_are_left_out(
    kind: Any, payload: bytes, reads: bool
) -> None:
    written = {"type": "record", "name": "R", "fields": [{"name": "odd", "type": kind}]}
    within = {
        "type": "record",
        "name": "Node",
        "fields": [*written["fields"], {"name": "next", "type": ["null", "Node"]}],
    }
    for writer, data in ((written, payload), (within, payload + b"\0")):
        reader = writer if reads else {**writer, "fields": []}
        columns = AvroDecoder(fastavro.parse_schema(writer, {}), fastavro.parse_schema(reader, {}))
        assert columns.decode(pa.array([data], pa.binary())).reasons is not None
        with pytest.raises(NotReadable):
            _codec(writer, reader).read(data)


def _codec(writer: Any, reader: Any = None) -> AvroCodec:
    parsed = [None if schema is None else parse_avro(Schema(json.dumps(schema)), {}) for schema in (writer, reader)]
    assert parsed[0] is not None
    return AvroCodec(parsed[0], parsed[1])


def _damaged(data: st.DataObject, payload: bytes) -> bytes:
    at = data.draw(st.integers(0, len(payload)))
    match data.draw(st.sampled_from(["cut", "replace", "insert"])):
        case "cut":
            return payload[:at]
        case "replace":
            return payload[:at] + bytes([data.draw(st.integers(0, 255))]) + payload[at + 1 :]
    return payload[:at] + data.draw(st.binary(min_size=1, max_size=11)) + payload[at:]


def _check_verdict(schema: Any, parsed: Any, payload: bytes, row: Any, reason: str | None) -> None:
    if reason is not None:
        assert row is None
        if reason.startswith(_STRICTER):
            return
    try:
        value = _codec(schema).read(payload)
    except (NotReadable, UnicodeDecodeError) as error:
        if reason is None:
            pytest.fail(f"{payload!r} has no reason, but rows have: {error}")
        return
    if reason is None:
        assert repr(_without_duplicates(row)) == repr(_without_duplicates(in_columns(schema, value)))
    else:
        pytest.fail(f"{payload!r} is {value!r}, but refused: {reason}")


def _without_duplicates(value: Any) -> Any:
    """A value without entries of maps that a later one of the same key replaces, as in a dict."""
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return sorted({key: repr(_without_duplicates(item)) for key, item in value}.items())
        return [_without_duplicates(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_duplicates(item) for key, item in value.items()}
    return value
