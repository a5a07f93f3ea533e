"""``oncelog consume -s`` and ``produce --value-schema``: values by a registry, beside confluent-kafka's serializers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from oncelog.client.blocking import Client, Producer
from oncelog.testing import Broker
from tests.interop.cli.conftest import Run
from tests.unit.schemas.fake_registry import FakeRegistry, fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
CONTEXT = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry(MemoryRegistry()) as fake:
        yield fake


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return path


def test_json_lines_go_into_a_topic_and_come_out_again(run: Run, registry: FakeRegistry, schema: Path) -> None:
    options = ("--registry", registry.url)
    lines = '{"id":1,"price":"12.50"}\n{"id":2,"price":3,"note":"né"}\n'
    refused = run("produce", "orders", "--value-schema", str(schema), *options, stdin=lines.encode())
    assert refused.code == 1
    assert (
        f"{schema} is not registered as orders-value; --register registers it: registry {registry.url}" in refused.err
    )
    assert (
        run("produce", "orders", "--value-schema", str(schema), "--register", *options, stdin=lines.encode()).code == 0
    )
    ran = run("consume", "orders", "-e", "-s", "value=registry", *options)
    assert (ran.code, ran.out.splitlines()) == (
        0,
        ['{"id":1,"price":"12.50","note":null}', '{"id":2,"price":"3.00","note":"né"}'],
    )
    envelopes = run("consume", "orders", "-e", "--json", "-s", "value=registry", *options)
    records = [json.loads(line) for line in envelopes.out.splitlines()]
    assert [(record["payload"]["id"], record["value_schema_id"]) for record in records] == [(1, 1), (2, 1)]
    copied = run(
        "produce", "copy", "--json", "--value-schema", "orders-value@1", *options, stdin=envelopes.out.encode()
    )
    assert (copied.code, copied.err) == (0, "")
    assert run("consume", "copy", "-e", "-s", "registry", *options, "-f", "%s\\n").out == ran.out


def test_values_are_those_of_other_serializers(run: Run, registry: FakeRegistry, oncelog_broker: Broker) -> None:
    options = ("-X", f"schema.registry.url={registry.url}")
    with SchemaRegistryClient({"url": registry.url}) as peer:
        written = AvroSerializer(peer, json.dumps(ORDER))({"id": 5, "price": Decimal("0.01")}, CONTEXT)
        with Client(oncelog_broker.bootstrap_servers) as client, Producer(client, create_topics=True) as producer:
            producer.send("orders", written, key=b"k")
        ran = run("consume", "orders", "-e", "-s", "value=avro", *options, "-f", "%k %s\\n")
        assert (ran.code, ran.out) == (0, 'k {"id":5,"price":"0.01","note":null}\n')
        run("produce", "orders", "--value-schema", "orders-value", *options, stdin=b'{"id":6,"price":"0.07"}\n')
        raw = run("consume", "orders", "-e", "--json", "--base64", "-o", "1")
        value = base64.b64decode(json.loads(raw.out)["payload"])
        assert AvroDeserializer(peer)(value, CONTEXT) == {"id": 6, "price": Decimal("0.07"), "note": None}


def test_values_that_cannot_be_decoded_are_shown_and_counted(run: Run, registry: FakeRegistry, schema: Path) -> None:
    options = ("--registry", registry.url)
    run("produce", "orders", "--value-schema", str(schema), "--register", *options, stdin=b'{"id":1,"price":"1.00"}\n')
    run("produce", "orders", stdin=b"plain text\n")
    ran = run("consume", "orders", "-e", "-s", "value=registry", *options)
    assert (ran.code, ran.out.splitlines()[1]) == (1, "plain text")
    assert "orders-0 at offset 1: the value cannot be decoded: it names no schema" in ran.err
    assert "1 key or value could not be decoded" in ran.err
    ran = run("consume", "orders", "-e", "--json", "-s", "registry", *options)
    record = json.loads(ran.out.splitlines()[1])
    assert (record["payload"], record["payload_error"].split(":")[0]) == ("plain text", "it names no schema")
    again = run("produce", "copy", "--json", "--value-schema", "orders-value", *options, stdin=ran.out.encode())
    assert (again.code, "record 2 of the input: its 'payload' is bytes" in again.err) == (1, True)


def test_ids_in_headers_and_tombstones(run: Run, registry: FakeRegistry, schema: Path) -> None:
    options = ("--registry", registry.url)
    lines = 'a:{"id":1,"price":"1.00"}\nb:-\n'
    arguments = ("--value-schema", str(schema), "--register", "--schema-id-in-header", "-K", ":", "-Z", "-")
    assert run("produce", "orders", *arguments, *options, stdin=lines.encode()).code == 0
    ran = run("consume", "orders", "-e", "-s", "value=registry", *options, "-f", "%k=%s %S\\n", "-Z", "null")
    assert ran.out.splitlines() == ['a={"id":1,"price":"1.00","note":null} 35', "b=null -1"]


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("consume", "t", "-s", "registry"), "name the schema registry: --registry http://HOST:PORT", 2),
        (("consume", "t", "-s", "value=json", "-r", "http://x"), "is not registry, key=registry or value=registry", 2),
        (("consume", "t", "-s", "registry", "-r", "x"), "the registry's URL 'x' is not valid", 2),
        (("consume", "t", "-s", "registry", "-r", "http://x", "--base64"), "give --base64 or -s, not both", 2),
        (("produce", "t", "--register"), "need --value-schema or --key-schema", 2),
        (("produce", "t", "--value-schema", "s"), "name the schema registry", 2),
    ],
)
def test_wrong_options(run: Run, arguments: tuple[str, ...], message: str, code: int) -> None:
    ran = run(*arguments)
    assert (ran.code, message in ran.err) == (code, True), ran.err


def test_a_value_that_does_not_fit_ends_the_input(run: Run, registry: FakeRegistry, schema: Path) -> None:
    lines = '{"id":1,"price":"1.00"}\n{"id":"x","price":"1.00"}\n'
    options = ("--value-schema", str(schema), "--register", "--registry", registry.url)
    ran = run("produce", "orders", *options, stdin=lines.encode())
    assert ran.code == 1
    assert "record 2 of the input: the value does not fit its schema: the value.id is 'x'" in ran.err
    assert "the 1 before it are written" in ran.err
