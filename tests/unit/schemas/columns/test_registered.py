"""Values of several schemas of a registry in one batch, as columns of one reader's schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from oncelog.records.columns.arrow_arrays import HEADERS
from oncelog.schemas.client.errors import RegistryError
from oncelog.schemas.client.http_connections import MAX_ANSWER_BYTES
from oncelog.schemas.client.registry import Registry
from oncelog.schemas.columns.registered import MAX_LACKING, RegisteredColumns, reader_schema
from oncelog.schemas.schema import Reference, Schema, SchemaError, SchemaType
from oncelog.schemas.values.encoding import Encoder
from tests.unit.schemas.fake_registry import fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry


@contextmanager
def registry() -> Iterator[Registry]:
    with fake_registry(MemoryRegistry()) as fake, Registry(fake.url) as client:
        yield client


def avro(*fields: Any) -> Schema:
    return Schema(json.dumps({"type": "record", "name": "Order", "fields": list(fields)}))


ID: Any = {"name": "id", "type": "int"}
FIRST = avro(ID)
SECOND = avro({"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None})


def encoder(client: Registry, schema: Schema, **settings: Any) -> Encoder:
    return Encoder(client, "orders-value", schema, register=True, **settings)


def columns(client: Registry, subject: str = "orders-value", **settings: Any) -> RegisteredColumns:
    schema, context, _ = reader_schema(client, subject)
    return RegisteredColumns(client, schema, context=context, subject=subject, **settings)


def test_ids_mixed_in_a_batch_keep_their_order() -> None:
    with registry() as client:
        old, new = encoder(client, FIRST), encoder(client, SECOND)
        values = [
            old.encode({"id": 1}).data,
            new.encode({"id": 1 << 40, "note": "x"}).data,
            None,
            b"plain",
            old.encode({"id": 2}).data,
            b"\0\0\0\0\x63\2",
            new.encode({"id": 3, "note": None}).data[:-1],
            new.encode({"id": 4, "note": None}).data,
        ]
        decoded = columns(client).decode(pa.array(values, pa.binary()))
    assert decoded.values.to_pylist() == [
        {"id": 1, "note": None},
        {"id": 1 << 40, "note": "x"},
        None,
        None,
        {"id": 2, "note": None},
        None,
        None,
        {"id": 4, "note": None},
    ]
    assert decoded.reasons is not None
    assert decoded.reasons.to_pylist() == [
        None,
        None,
        None,
        "it names no schema: neither a header nor its first bytes",
        None,
        "schema 99: the registry does not have it",
        "schema 2: the bytes end within a value",
        None,
    ]


def test_ids_in_headers_come_before_those_in_values() -> None:
    with registry() as client:
        old = encoder(client, FIRST)
        header = encoder(client, SECOND, in_header=True).encode({"id": 7, "note": "h"})
        values = pa.array([header.data, old.encode({"id": 1}).data, None], pa.binary())
        named = [{"key": key, "value": value} for key, value in header.headers]
        other = [{"key": "__value_schema_id", "value": b"?"}, {"key": "x", "value": None}]
        decoded = columns(client).decode(values, pa.array([named, other, named], HEADERS))
    assert decoded.values.to_pylist() == [{"id": 7, "note": "h"}, {"id": 1, "note": None}, None]
    assert decoded.reasons is None


def test_schema_that_the_reader_cannot_take_is_a_reason_of_its_records() -> None:
    with registry() as client:
        wrong = Encoder(client, "others", avro({"name": "id", "type": "string"}), register=True)
        right = encoder(client, FIRST)
        values = [wrong.encode({"id": "x"}).data, right.encode({"id": 1}).data]
        decoded = columns(client).decode(pa.array(values, pa.binary()))
    assert decoded.values.to_pylist() == [None, {"id": 1}]
    assert decoded.reasons is not None
    assert decoded.reasons[0].as_py() == "schema 1: field 'id' of Order: string cannot be read as int"


def test_registry_that_does_not_answer_is_an_error_of_the_batch() -> None:
    answers: Any = MemoryRegistry()
    down = False

    def answer(method: str, target: str, body: Any) -> tuple[int, Any]:
        return (503, {"error_code": 503, "message": "down"}) if down else answers(method, target, body)

    with fake_registry(answer) as fake, Registry(fake.url, {"max.retries": "0"}) as client:
        value = encoder(client, FIRST).encode({"id": 1}).data
        with Registry(fake.url, {"max.retries": "0"}) as other:
            reading = columns(other)
            down = True
            with pytest.raises(RegistryError, match="503"):
                reading.decode(pa.array([value], pa.binary()))


def test_ids_that_no_registry_has_are_reasons_of_their_records() -> None:
    with registry() as client:
        write = encoder(client, FIRST)
        values = [b"\0\xff\xff\xff\xff\2", write.encode({"id": 1}).data]
        decoded = columns(client).decode(pa.array(values, pa.binary()))
    assert decoded.values.to_pylist() == [None, {"id": 1}]
    assert decoded.reasons is not None
    assert decoded.reasons.to_pylist() == ["schema 4294967295: the registry does not have it", None]


def test_an_id_that_was_absent_is_asked_for_again_by_each_batch() -> None:
    with registry() as client:
        encoder(client, FIRST)
        decoding = columns(client)
        early = pa.array([b"\0\0\0\0\2\2\0"] * 2, pa.binary())
        assert decoding.decode(early).values.to_pylist() == [None, None]
        late = encoder(client, avro(ID, {"name": "x", "type": "int"})).encode({"id": 1, "x": 2}).data
        decoded = decoding.decode(pa.array([late], pa.binary()))
        assert decoded.values.to_pylist() == [{"id": 1}]


def test_schemas_are_requests_once() -> None:
    with fake_registry(MemoryRegistry()) as fake, Registry(fake.url) as client:
        values = [encoder(client, FIRST).encode({"id": number}).data for number in range(5)]
        reading = columns(client)
        requests = len(fake.requests)
        for _ in range(3):
            reading.decode(pa.array([*values, b"\0\0\0\0\x63"], pa.binary()))
        assert len(fake.requests) == requests + 1 + 3  # the absent one by each batch


PROTO = """syntax = "proto3"; package p;
import "common.proto";
message Order { int32 id = 1; Common c = 2; message Line { string sku = 1; } }
message Other { string s = 1; }
"""


def protobuf(client: Registry) -> Schema:
    common = Schema('syntax = "proto3"; package p; message Common { string by = 1; }', SchemaType.PROTOBUF)
    client.register("common", common)
    return Schema(PROTO, SchemaType.PROTOBUF, (Reference("common.proto", "common", 1),))


def test_protobuf_messages_by_their_path() -> None:
    with registry() as client:
        schema = protobuf(client)
        order, line = encoder(client, schema), encoder(client, schema, message="p.Order.Line")
        values = [order.encode({"id": 5, "c": {"by": "me"}}).data, line.encode({"sku": "a"}).data]
        values.append(values[0][:5] + b"\x02\x00" + values[0][6:])
        decoded = columns(client).decode(pa.array(values, pa.binary()))
        lines = columns(client, message="p.Order.Line").decode(pa.array(values[:2], pa.binary()))
        with pytest.raises(SchemaError, match="no message"):
            columns(client, message="p.None")
    row = {"id": 5, "c": {"by": "me"}}
    assert decoded.values.to_pylist() == [row, None, row]
    assert decoded.reasons is not None
    assert decoded.reasons[1].as_py() == "schema 2: message p.Order.Line is not p.Order"
    assert lines.values.to_pylist() == [None, {"sku": "a"}]


JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "any": {},
        "at": {"type": "object", "properties": {"x": {"type": "number"}}},
    },
}


def test_json_by_its_schema() -> None:
    with registry() as client:
        write = encoder(client, Schema(json.dumps(JSON), SchemaType.JSON))
        good = write.encode({"id": 1, "name": "n", "tags": ["a"], "any": {"b": [1.5]}, "at": {"x": 2}, "more": 1}).data
        halves = [b'{"name": "\\ud800"}', b'{"any": ["\\udc00"]}']
        bad = [
            b'{"id": "1"}',
            b'{"id": 1.0}',
            b"{",
            b"[1]",
            b'{"at": {"x": NaN}}',
            b"\xff",
            b'{"tags": [1]}',
            *halves,
            b"null",
        ]
        values = [good, good[:5] + b"{}", *(good[:5] + text for text in bad)]
        reading = columns(client)
        decoded = reading.decode(pa.array(values, pa.binary()))
        # Without a bad one among them, columns are made all at once.
        alone = [reading.decode(pa.array([value, None], pa.binary())) for value in values]
    nothing = {"id": None, "name": None, "tags": None, "any": None, "at": None}
    row = {"id": 1, "name": "n", "tags": ["a"], "any": '{"b": [1.5]}', "at": {"x": 2.0}}
    assert decoded.values.to_pylist() == [row, nothing, *[None] * len(bad)]
    assert [single.values.to_pylist() for single in alone] == [[value, None] for value in decoded.values.to_pylist()]
    assert decoded.reasons is not None
    assert [single.reasons and single.reasons.to_pylist()[0] for single in alone] == decoded.reasons.to_pylist()
    texts = decoded.reasons.to_pylist()
    assert texts[2:4] == ["schema 1: $.id is no integer of 64 bits"] * 2
    assert texts[5] == "schema 1: $ is no object"
    assert texts[8] == "schema 1: $.tags[0] is no string"
    assert texts[9] == "schema 1: $.name has half of a surrogate pair, which is no text"
    assert all(texts[2:])


def test_nothing_at_all() -> None:
    with registry() as client:
        encoder(client, FIRST)
        assert len(columns(client).decode(pa.array([], pa.binary())).values) == 0
        assert columns(client).decode(pa.array([None], pa.binary())).values.to_pylist() == [None]


def framed(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"\2"


def test_a_batch_asks_for_few_absent_ids_and_for_those_of_most_records_first() -> None:
    with fake_registry(MemoryRegistry()) as fake, Registry(fake.url) as client:
        writer = encoder(client, FIRST)
        values = [framed(number) for number in range(1_000, 1_500)]
        values += [writer.encode({"id": 7}).data] * 2
        reading = columns(client)
        fake.requests.clear()
        decoded = reading.decode(pa.array(values, pa.binary()))
        assert len(fake.requests) == MAX_LACKING + 1
        assert decoded.values.to_pylist()[-2:] == [{"id": 7}] * 2
        assert decoded.reasons is not None
        reasons = decoded.reasons.to_pylist()
        assert sum("the registry does not have it" in (reason or "") for reason in reasons) == MAX_LACKING
        assert sum("it was not asked for" in (reason or "") for reason in reasons) == 400
        fake.requests.clear()
        reading.decode(pa.array(values[:3], pa.binary()))
        assert len(fake.requests) == 3, "an absence is asked for again by the next batch"


class Refusing(MemoryRegistry):
    """Refuses some ids, and everything once it is down."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status
        self.refused: set[str] = set()
        self.is_down = False
        self.recovers = False

    def __call__(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        last = target.rpartition("/")[2]
        if self.is_down or (target.startswith("/schemas/ids/") and last in self.refused):
            return self.status, {"error_code": self.status * 100 + 1, "message": "no"}
        if self.recovers and method == "GET":
            self.refused.clear()
        return super().__call__(method, target, body)


@pytest.mark.parametrize("status", [403, 500])
def test_an_id_that_is_refused_makes_bad_records_and_not_a_batch_that_fails_for_ever(status: int) -> None:
    served = Refusing(status)
    with fake_registry(served) as fake, Registry(fake.url, sleep=lambda _: None) as client:
        first, second = encoder(client, FIRST), encoder(client, SECOND)
        served.refused = {"2"}
        batch = pa.array([first.encode({"id": 1}).data, second.encode({"id": 2, "note": None}).data], pa.binary())
        reading = columns(client, subject="orders-value")
        fresh = RegisteredColumns(client, FIRST, subject="orders-value")
        for _ in range(2):
            decoded = fresh.decode(batch)
            assert decoded.values.to_pylist() == [{"id": 1}, None]
            assert decoded.reasons is not None
            assert f"no ({status}, error {status}01)" in decoded.reasons.to_pylist()[1]
        repeated = [target for _, target in fake.requests if target == "/schemas/ids/2"]
        assert len(repeated) <= 8
        served.is_down = True
        with pytest.raises(RegistryError, match=f"{status}, error"):
            reading.decode(batch)
        with pytest.raises(RegistryError, match=f"{status}, error"):
            RegisteredColumns(client, FIRST).decode(batch)


@pytest.mark.parametrize("answer", [b"x" * (MAX_ANSWER_BYTES + 1), b"<html>", {"schema": 7}, {"id": 1}])
@pytest.mark.parametrize("garbled", ["/schemas/ids/2", "/subjects/more/versions/1"])
def test_an_id_whose_answer_is_not_usable_makes_bad_records(garbled: str, answer: Any) -> None:
    served = MemoryRegistry()

    def answers(method: str, target: str, body: Any) -> tuple[int, Any]:
        if method == "GET" and (target.startswith(garbled) or is_down):
            return 200, answer
        return served(method, target, body)

    is_down = False
    with fake_registry(answers) as fake, Registry(fake.url) as client:
        first = encoder(client, FIRST).encode({"id": 1}).data
        client.register("more", Schema('{"type": "fixed", "name": "F", "size": 1}'))
        text = json.dumps({"type": "record", "name": "Order", "fields": [ID, {"name": "f", "type": "F"}]})
        schema_id = client.register("orders-value", Schema(text, references=(Reference("F", "more", 1),)))
        assert schema_id == 3
        values = pa.array([first, framed(2 if "ids" in garbled else 3) + b"\1"], pa.binary())
        reading = RegisteredColumns(client, FIRST, subject="orders-value")
        decoded = reading.decode(values)
        assert decoded.values.to_pylist() == [{"id": 1}, None]
        assert decoded.reasons is not None
        assert "answer" in str(decoded.reasons.to_pylist()[1])
        assert sum(target.startswith(garbled) for _, target in fake.requests) <= 4
        is_down = True
        with Registry(fake.url) as other, pytest.raises(RegistryError, match="answer"):
            RegisteredColumns(other, FIRST, subject="orders-value").decode(values)


def test_a_registry_that_recovers_loses_no_record() -> None:
    served = Refusing(500)
    with fake_registry(served) as fake, Registry(fake.url, sleep=lambda _: None) as client:
        data = encoder(client, FIRST).encode({"id": 1}).data
        served.refused, served.recovers = {"1"}, True
        reading = RegisteredColumns(client, FIRST, subject="orders-value")
        assert reading.decode(pa.array([data], pa.binary())).values.to_pylist() == [{"id": 1}]
