"""Values by a registry: encoded as confluent-kafka's serializers do, decoded as its deserializers do, within bounds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from oncelog.schemas import (
    Decoder,
    Encoder,
    NotReadable,
    NotWritable,
    Reference,
    Registry,
    RegistryUnavailable,
    Schema,
    SchemaError,
    SchemaType,
    decode,
    encode,
)
from oncelog.schemas.values.json_output import as_json
from tests.unit.schemas.fake_registry import FakeRegistry, fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

RECORD = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "hour", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string", "int"]}},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}
VALUE = {
    "id": 2**40,
    "price": Decimal("12.50"),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    "day": date(2026, 2, 3),
    "hour": time(1, 2, 3),
    "key": UUID("12345678-1234-5678-1234-567812345678"),
    "raw": b"\xff\x00",
    "state": "PAID",
    "tags": {"a": None, "b": "x", "c": 3},
    "next": None,
}
JSON = (
    '{"id":1099511627776,"price":"12.50","at":"2026-01-02T03:04:05.678000+00:00","day":"2026-02-03","hour":"01:02:03",'
    '"key":"12345678-1234-5678-1234-567812345678","raw":"ÿ\\u0000","state":"PAID","tags":{"a":null,"b":"x","c":3},'
    '"next":null}'
)
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "common.proto";
message Order {
  message Line { string name = 1; repeated int64 counts = 2; }
  oneof by { string name = 1; int32 number = 2; }
  google.protobuf.Timestamp at = 3;
  map<string, Line> lines = 4;
  shop.Common common = 5;
  bytes raw = 6;
}
message Other { bool flag = 1; }
"""


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with fake_registry(MemoryRegistry()) as fake:
        yield fake


@pytest.fixture
def registry(server: FakeRegistry) -> Iterator[Registry]:
    with Registry(server.url) as client:
        yield client


def avro(document: Any, *references: Reference) -> Schema:
    return Schema(json.dumps(document), references=references)


def test_avro_with_every_kind_of_type_as_python_values_and_as_json(registry: Registry) -> None:
    encoder = Encoder(registry, "orders-value", avro(RECORD), register=True)
    encoded = encoder.encode(VALUE)
    assert encoded.data[:5] == b"\0\0\0\0\1"
    decoded = Decoder(registry).decode(encoded.data)
    assert decoded.value == VALUE
    assert (decoded.schema_id, decoded.schema.type) == ("1", SchemaType.AVRO)
    assert as_json(decoded) == JSON
    assert encoder.encode(json.loads(JSON)) == encoded
    assert decode(registry, encode(registry, "orders-value@1", VALUE)) == VALUE


def test_branches_of_unions(registry: Registry) -> None:
    point = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
    line = {"type": "record", "name": "L", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}
    encoder = Encoder(registry, "u", avro(["null", "int", "double", "string", point, line]), register=True)
    for value, expected in [
        (None, None),
        (3, 3),
        (3.5, 3.5),
        ({"double": 3}, 3.0),
        ({"x": 1, "y": 2}, {"x": 1, "y": 2}),
        ({"P": {"x": 1}}, {"x": 1}),
    ]:
        assert decode(registry, encoder.encode(value).data) == expected


def test_named_types_of_a_schema_that_is_no_record(registry: Registry) -> None:
    node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    values = [{"next": {"next": None}}]
    for subject, document, value in (
        ("array", {"type": "array", "items": node}, values),
        ("map", {"type": "map", "values": node}, {"a": values[0]}),
        ("union", ["null", {"type": "array", "items": node}], values),
    ):
        encoded = Encoder(registry, subject, avro(document), register=True).encode(value)
        assert decode(registry, encoded.data) == value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "7"}, "the value.id is '7', and its type is long"),
        ({"id": 2**63}, "its type is long"),
        ({"id": True}, "its type is long"),
        ({"price": "12.505"}, "Scale"),
        ({"price": "1e999999999"}, r"its type is bytes \(decimal\)"),
        ({"price": float("nan")}, r"its type is bytes \(decimal\)"),
        ({"day": "tomorrow"}, r"its type is int \(date\)"),
        ({"raw": "abc"}, "its type is shop.Raw"),
        ({"raw": "€€"}, "its type is shop.Raw"),
        ({"state": "GONE"}, "its type is shop.State"),
        ({"tags": {"a": 1.5}}, "the value.tags.a is 1.5, which fits none of null, string, int"),
        ({"next": {}}, "the value.next has no field 'id', which shop.Order declares without a default"),
        ({"extra": 1}, "the value has the field 'extra', which shop.Order does not declare"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(
    registry: Registry, change: dict[str, Any], message: str
) -> None:
    encoder = Encoder(registry, "orders-value", avro(RECORD), register=True)
    with pytest.raises(NotWritable, match=message):
        encoder.encode(VALUE | change)


def test_values_are_read_as_another_version(registry: Registry) -> None:
    old = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}, {"name": "gone", "type": "int"}]}
    new = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "string", "default": "?"}],
    }
    data = Encoder(registry, "a", avro(old), register=True).encode({"x": 1, "gone": 2}).data
    Encoder(registry, "a", avro(new), register=True)
    assert Decoder(registry).decode(data).value == {"x": 1, "gone": 2}
    for reader in ("a", "a@2", avro(new)):
        assert Decoder(registry, reader=reader).decode(data).value == {"x": 1, "y": "?"}
    incompatible = avro({"type": "record", "name": "A", "fields": [{"name": "z", "type": "int"}]})
    with pytest.raises(NotReadable, match="schema 1: SchemaResolutionError"):
        Decoder(registry, reader=incompatible).decode(data)


def test_references(registry: Registry) -> None:
    common = {"type": "record", "name": "Common", "namespace": "shop", "fields": [{"name": "n", "type": "int"}]}
    registry.register("common", avro(common))
    user = {"type": "record", "name": "U", "fields": [{"name": "c", "type": "shop.Common"}]}
    schema = avro(["null", user], Reference("shop.Common", "common", 1))
    data = Encoder(registry, "u", schema, register=True).encode({"c": {"n": 1}}).data
    assert Decoder(registry).decode(data).value == {"c": {"n": 1}}


def test_protobuf_with_nested_messages_oneof_maps_references_and_well_known_types(registry: Registry) -> None:
    common = Schema('syntax = "proto3"; package shop; message Common { double d = 1; }', SchemaType.PROTOBUF)
    registry.register("common", common)
    schema = Schema(PROTO, SchemaType.PROTOBUF, (Reference("common.proto", "common", 1),))
    value = {
        "number": 7,
        "at": "2026-01-02T03:04:05Z",
        "lines": {"a": {"name": "né", "counts": ["1", "2"]}},
        "common": {"d": 1.5},
        "raw": "/wA=",
    }
    data = Encoder(registry, "p", schema, register=True).encode(value).data
    assert data[:6] == b"\0\0\0\0\2\0"
    decoded = Decoder(registry).decode(data)
    assert (decoded.value, decoded.note) == (value, "shop.Order")
    inner = Encoder(registry, "p", message="shop.Order.Line").encode({"name": "x"}).data
    assert inner[5:8] == b"\4\0\0"
    assert Decoder(registry).decode(inner).value == {"name": "x"}
    other = Encoder(registry, "p", message="shop.Other", in_header=True).encode({"flag": True})
    assert other.data == b"\x08\x01"
    assert Decoder(registry).decode(other.data, other.headers).value == {"flag": True}
    with pytest.raises(SchemaError, match='no message "shop'):
        Encoder(registry, "p", message="shop.None")
    with pytest.raises(NotWritable, match="it is no shop"):
        Encoder(registry, "p").encode({"numbers": 1})
    for wrong, reason in [(data[:5] + b"\2\x64", "no message at the indexes"), (data[:-1], "does not parse")]:
        with pytest.raises(NotReadable, match=reason):
            Decoder(registry).decode(wrong)


def test_protobuf_is_read_as_another_version(registry: Registry) -> None:
    old = Schema('syntax = "proto3"; message A { int32 x = 1; string gone = 2; }', SchemaType.PROTOBUF)
    new = Schema('syntax = "proto3"; message A { int32 renamed = 1; }', SchemaType.PROTOBUF)
    data = Encoder(registry, "a", old, register=True).encode({"x": 1, "gone": "y"}).data
    decoded = Decoder(registry, reader=new).decode(data)
    assert (decoded.value, decoded.note) == ({"renamed": 1}, "A, 1 fields are not in its schema")


def test_json_is_validated_and_keeps_its_digits(registry: Registry) -> None:
    registry.register("kinds", Schema('{"type": "integer", "minimum": 1}', SchemaType.JSON))
    text = '{"$id": "http://x/y.json", "type": "object", "properties": {"a": {"$ref": "kinds.json"}}}'
    schema = Schema(text, SchemaType.JSON, (Reference("kinds.json", "kinds", 1),))
    encoder = Encoder(registry, "j", schema, register=True)
    assert decode(registry, encoder.encode({"a": 5, "ü": None}).data) == {"a": 5, "ü": None}
    with pytest.raises(NotWritable, match="/a: 0 is less than the minimum of 1"):
        encoder.encode({"a": 0})
    with pytest.raises(NotWritable, match="not JSON"):
        encoder.encode({"a": float("nan")})
    data = encoder.encode({}).data[:5] + b'{"a": 12345678901234567.890, "a": 1}'
    assert as_json(Decoder(registry).decode(data)) == '{"a":12345678901234567.890,"a":1}'
    for wrong in (b"{", b"NaN", b"[" * 100_000, "{}".encode("utf-16")):
        with pytest.raises(NotReadable, match="not JSON"):
            Decoder(registry).decode(data[:5] + wrong)


def test_ids_in_headers(registry: Registry) -> None:
    encoded = Encoder(registry, "s", avro("string"), register=True, in_header=True, part="key").encode("x")
    assert encoded.data == b"\x02x"
    ((name, data),) = encoded.headers
    assert (name, data[:1], len(data)) == ("__key_schema_id", b"\1", 17)
    assert decode(registry, encoded.data, encoded.headers, part="key") == "x"
    assert decode(registry, encoded.data, [("__key_schema_id", b"\0\0\0\0\1")], part="key") == "x"
    with pytest.raises(NotReadable, match="it names no schema"):
        decode(registry, encoded.data, encoded.headers)


def test_numbers_that_json_has_not(registry: Registry) -> None:
    encoder = Encoder(registry, "n", avro({"type": "array", "items": ["null", "double"]}), register=True)
    decoded = Decoder(registry).decode(encoder.encode([float("nan"), float("-inf"), 1.5, None]).data)
    assert as_json(decoded) == '["NaN","-Infinity",1.5,null]'


def test_a_schema_must_be_registered_before_unless_that_is_asked_for(registry: Registry) -> None:
    from oncelog.schemas import NotRegistered

    with pytest.raises(NotRegistered):
        Encoder(registry, "s", avro("string"))
    Encoder(registry, "s", avro("string"), register=True)
    Encoder(registry, "s", avro("string"))


def test_each_schema_is_fetched_and_compiled_once(registry: Registry, server: FakeRegistry) -> None:
    data = Encoder(registry, "s", avro("string"), register=True).encode("x").data
    server.requests.clear()
    decoder = Decoder(registry)
    for _ in range(5):
        decoder.decode(data)
    assert server.requests == [("GET", "/schemas/ids/1")]
    unknown = b"\0\0\0\0\x09x"
    for _ in range(5):
        with pytest.raises(NotReadable, match="not found"):
            decoder.decode(unknown)
    assert len(server.requests) == 2


def test_an_unusable_schema_is_a_reason_each_time_and_compiled_once(registry: Registry, server: FakeRegistry) -> None:
    registry.register("bad", Schema('{"type": "record"}'))
    decoder = Decoder(registry)
    for _ in range(3):
        with pytest.raises(NotReadable, match="schema 1 is not usable"):
            decoder.decode(b"\0\0\0\0\1x")
    assert server.requests.count(("GET", "/schemas/ids/1")) == 1


def test_a_registry_that_is_gone_is_no_fault_of_the_bytes() -> None:
    with fake_registry(lambda *_: (500, {})) as server:
        url = server.url
    with Registry(url, {"max.retries": "0"}) as client, pytest.raises(RegistryUnavailable, match="does not answer"):
        Decoder(client).decode(b"\0\0\0\0\1x")


NODE = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
EMPTY = {"type": "record", "name": "E", "fields": []}
WIDE = {
    "type": "record",
    "name": "W",
    "fields": [{"name": "b", "type": "boolean"}] + [{"name": f"n{n}", "type": "null"} for n in range(200)],
}


def doubling(depth: int) -> Any:
    """A schema of few types, of which each has the next one twice."""
    document: Any = {"type": "record", "name": f"D{depth}", "fields": []}
    for level in reversed(range(depth)):
        fields = [{"name": "a", "type": document}, {"name": "b", "type": f"D{level + 1}"}]
        document = {"type": "record", "name": f"D{level}", "fields": fields}
    return document


SUIT = {"type": "enum", "name": "Suit", "symbols": ["A", "B"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


@pytest.mark.parametrize(
    ("document", "payload", "reason"),
    [
        (NODE, b"\2" * 100_000 + b"\0", "nested deeper than 100 levels"),
        ({"type": "array", "items": "null"}, bytes.fromhex("feffffffffffffffff01"), "more than 16 values"),
        ({"type": "array", "items": EMPTY}, bytes.fromhex("feffffff0f"), "more than 16 values"),
        ({"type": "array", "items": WIDE}, bytes.fromhex("d00f") + b"\1" * 1000, "more than 16 values"),
        (doubling(30), b"", "more than 16 values"),
        ({"type": "array", "items": {"type": "array", "items": "null"}}, b"\3", "ends too early"),
        ({"type": "map", "values": "null"}, b"\x08\2a\2b", "ends too early"),
        ({"type": "map", "values": "null"}, b"\x02\1a", "a length in it is negative: -1"),
        (["null", NODE], b"\x06", "its union has no branch 3"),
        (DECIMAL, b"\x80\x80\x80\1" + bytes(1 << 20), "a decimal in it has more than 4096 bytes"),
        ("bytes", b"\1", "a length in it is negative: -1"),
        ("bytes", b"\2", "ends too early"),
        (["null", "long"], b"\1", "its union has no branch -1"),
        (SUIT, b"\1", "its enum has no symbol -1"),
        (SUIT, b"\4", "its enum has no symbol 2"),
        ("boolean", b"\2", "a boolean in it is 2, neither 0 nor 1"),
        ("int", bytes.fromhex("8080808010"), "an int in it is outside 32 bits: 2147483648"),
        ("long", b"\x80" * 10 + b"\0", "a whole number in it has more than 10 bytes"),
        ("string", bytes.fromhex("feffffff0f"), "ends too early"),
        ("string", b"\2\xff", "not UTF-8"),
        ("int", b"\2\2", "bytes left over: 1"),
    ],
)
def test_hostile_data_is_bounded(registry: Registry, document: Any, payload: bytes, reason: str) -> None:
    registry.register("h", avro(document))
    with pytest.raises(NotReadable, match=reason):
        Decoder(registry).decode(b"\0\0\0\0\1" + payload)


def test_defaults_are_values_with_those_within_them(registry: Registry) -> None:
    inner = {
        "type": "record",
        "name": "Inner",
        "fields": [
            {"name": "x", "type": "int", "default": 1},
            {"name": "raw", "type": "bytes", "default": "ÿ"},
            {"name": "price", "type": DECIMAL, "default": "\u0001"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
            {"name": "suit", "type": SUIT, "default": "B"},
        ],
    }
    fields = [
        {"name": "inner", "type": inner, "default": {"x": 2}},
        {"name": "more", "type": {"type": "array", "items": "Inner"}, "default": [{}]},
        {"name": "maybe", "type": ["null", "Inner"], "default": None},
        {"name": "other", "type": ["Inner", "null"], "default": {"suit": "A"}},
        {"name": "ratio", "type": "double", "default": 1},
    ]
    registry.register("d", avro({"type": "record", "name": "R", "fields": []}))
    reader = avro({"type": "record", "name": "R", "fields": fields})
    at = datetime(1970, 1, 1, tzinfo=UTC)
    plain = {"x": 1, "raw": b"\xff", "price": Decimal("0.01"), "at": at, "suit": "B"}
    assert Decoder(registry, reader=reader).decode(b"\0\0\0\0\1").value == {
        "inner": {**plain, "x": 2},
        "more": [plain],
        "maybe": None,
        "other": {**plain, "suit": "A"},
        "ratio": 1.0,
    }


def test_recursive_data_within_the_bounds(registry: Registry) -> None:
    value: Any = {"next": None}
    for _ in range(40):
        value = {"next": value}
    encoder = Encoder(registry, "n", avro(NODE), register=True)
    assert decode(registry, encoder.encode(value).data) == value
    for _ in range(100):
        value = {"next": value}
    with pytest.raises(NotWritable, match="nested deeper than 100 levels"):
        encoder.encode(value)


def test_a_decoder_serves_several_threads(registry: Registry) -> None:
    data = Encoder(registry, "s", avro(RECORD), register=True).encode(VALUE).data
    decoder, values = Decoder(registry), []
    threads = [threading.Thread(target=lambda: values.append(decoder.decode(data).value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [VALUE] * 4
