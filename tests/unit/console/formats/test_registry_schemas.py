"""Values by a registry's schemas: fetched by the console, decoded in the process, each with its place."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from oncelog.console.formats import decoder_process
from oncelog.console.formats.decoder_process import DecodingProcess
from oncelog.console.formats.registry_schemas import RegistrySchemas
from oncelog.console.records.decoding import Decoder, Shown
from oncelog.records.record import Headers
from oncelog.schemas import Encoder, Reference, Registry, Schema, SchemaType
from oncelog.schemas.client.registry import SubjectVersion
from oncelog.schemas.client.settings import parse_settings
from tests.unit.schemas.fake_registry import FakeRegistry, fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

pytestmark = pytest.mark.slow
ORDER = Schema('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}')
NODE = Schema('{"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}')


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with fake_registry(MemoryRegistry()) as fake:
        yield fake


@pytest.fixture
def registry(server: FakeRegistry) -> Iterator[Registry]:
    with Registry(server.url) as client:
        yield client


@pytest.fixture
def schemas(server: FakeRegistry) -> Iterator[RegistrySchemas]:
    fetching = RegistrySchemas(parse_settings(server.url))
    yield fetching
    fetching.close()


@pytest.fixture(scope="module")
def process() -> Iterator[DecodingProcess]:
    made = DecodingProcess()
    yield made
    made.close()


def shown(
    process: DecodingProcess, schemas: RegistrySchemas, data: bytes, form: str = "auto", headers: Headers = ()
) -> Shown:
    return Decoder(process, registry=schemas).value("orders", data, headers, form)


def encoded(registry: Registry, schema: Schema, value: Any, subject: str = "orders-value", **options: Any) -> bytes:
    return Encoder(registry, subject, schema, register=True, **options).encode(value).data


def test_avro_with_its_subject_and_version(
    process: DecodingProcess, registry: Registry, schemas: RegistrySchemas, server: FakeRegistry
) -> None:
    registry.register("before", ORDER)
    data = encoded(registry, ORDER, {"id": 7})
    result = shown(process, schemas, data)
    assert (result.format, result.text, result.error) == ("avro", '{\n  "id": 7\n}', None)
    assert (result.schema_id, result.place) == ("1", SubjectVersion("orders-value", 1))
    assert shown(process, schemas, data, "avro") == result
    wrong = shown(process, schemas, data, "protobuf")
    assert (wrong.format, wrong.error) == ("hex", "not protobuf: its schema is avro")
    requests = [target for method, target in server.requests if method == "GET"]
    assert requests == ["/schemas/ids/1", "/schemas/ids/1/versions"]


def test_a_guid_in_a_header(process: DecodingProcess, registry: Registry, schemas: RegistrySchemas) -> None:
    value = Encoder(registry, "orders-value", ORDER, register=True, in_header=True).encode({"id": 7})
    result = shown(process, schemas, value.data, "auto", value.headers)
    assert (result.text, result.place) == ('{\n  "id": 7\n}', None)


def test_protobuf_with_references(process: DecodingProcess, registry: Registry, schemas: RegistrySchemas) -> None:
    registry.register("c", Schema('syntax = "proto3"; message C { int32 n = 1; }', SchemaType.PROTOBUF))
    text = 'syntax = "proto3"; import "c.proto"; message A { C c = 1; } message B { string s = 1; }'
    schema = Schema(text, SchemaType.PROTOBUF, (Reference("c.proto", "c", 1),))
    result = shown(process, schemas, encoded(registry, schema, {"c": {"n": 5}}))
    assert (json.loads(str(result.text)), result.note, result.format) == ({"c": {"n": 5}}, "A", "protobuf")
    assert shown(process, schemas, encoded(registry, schema, {"s": "x"}, message="B")).note == "B"


def test_json_keeps_its_digits(process: DecodingProcess, registry: Registry, schemas: RegistrySchemas) -> None:
    data = encoded(registry, Schema("{}", SchemaType.JSON), {})[:5] + b'{"a": 1.50}'
    result = shown(process, schemas, data)
    assert (result.text, result.format, result.schema_id) == ('{\n  "a": 1.50\n}', "json", "1")
    assert shown(process, schemas, data[:-1]).error == "not json"


def test_an_unknown_id_and_a_registry_that_is_gone(process: DecodingProcess, schemas: RegistrySchemas) -> None:
    result = shown(process, schemas, b"\0\0\0\0\x09abc")
    assert (result.format, result.schema_id, "404" in str(result.error)) == ("hex", "9", True)
    gone = RegistrySchemas(parse_settings("http://127.0.0.1:9"))
    assert "does not answer" in str(shown(process, gone, b"\0\0\0\0\x09abc").error)


def test_a_process_that_was_ended_gets_the_schema_again(
    process: DecodingProcess, registry: Registry, schemas: RegistrySchemas
) -> None:
    data = encoded(registry, ORDER, {"id": 7})
    assert shown(process, schemas, data).error is None
    assert process._process is not None
    os.kill(process._process.pid, signal.SIGKILL)
    assert "crashed" in str(shown(process, schemas, data).error)
    assert shown(process, schemas, data).error is None


def test_the_process_forgets_schemas_when_there_are_many(
    process: DecodingProcess, registry: Registry, schemas: RegistrySchemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder_process, "_MAX_REGISTERED", 2)
    values = [encoded(registry, Schema(ORDER.text.replace("id", f"id{n}")), {f"id{n}": n}, f"s{n}") for n in range(4)]
    for _ in range(2):
        for number, data in enumerate(values):
            assert json.loads(str(shown(process, schemas, data).text)) == {f"id{number}": number}


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        (NODE, b"\2" * 100_000, "nested deeper than 100 levels"),
        (Schema('{"type": "record"}'), b"", "its schema is not usable"),
        (Schema("message A { B b = 1; }", SchemaType.PROTOBUF), b"\0", "its schema is not usable"),
        (Schema('{"type": "array", "items": "null"}'), b"\xfe\xff\xff\xff\x0f", "more than 16 values"),
    ],
)
def test_hostile_schemas_and_data_are_an_error_of_their_value(
    process: DecodingProcess, registry: Registry, schemas: RegistrySchemas, schema: Schema, payload: bytes, reason: str
) -> None:
    registry.register("orders-value", schema)
    for _ in range(2):
        result = shown(process, schemas, b"\0\0\0\0\1" + payload)
        assert result.format == "hex"
        assert reason in str(result.error) or "refused with an earlier value" in str(result.error)


def test_a_page_waits_only_so_long_for_the_registry() -> None:
    settings = parse_settings("http://127.0.0.1:9")
    schemas = RegistrySchemas(replace(settings, timeout_s=100.0))
    assert (schemas._registry.settings.timeout_s, schemas._registry.settings.retries) == (2.0, 0)
