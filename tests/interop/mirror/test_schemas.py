"""A mirror with `--schemas`: copies of records are readable by their ids, with confluent-kafka's own deserializers.

The command is that of docs/mirror.md.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from oncelog.cli.main import invoke
from oncelog.client.blocking.producer import Producer
from oncelog.mirror.engine import Engine
from oncelog.mirror.errors import MirrorIncomplete
from oncelog.mirror.settings import Naming
from oncelog.registry.mirroring import Naming as SchemaNaming
from oncelog.registry.mirroring import SchemaCopy
from oncelog.testing import Broker
from tests.interop.mirror.conftest import Side, settings_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def record_schema(*names: str) -> str:
    fields = [{"name": name, "type": "long", "default": 0} for name in names]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


@pytest.fixture
def sides() -> Iterator[dict[str, Side]]:
    with Broker(registry=True) as a, Broker(registry=True) as b, Broker(registry=True) as c:
        clusters = {"a": Side(a), "b": Side(b), "c": Side(c)}
        for side in clusters.values():
            side.create("orders" if side is not clusters["c"] else "own")
        yield clusters
        for side in clusters.values():
            side.client.close()


def registry_of(side: Side) -> SchemaRegistryClient:
    """For a with block."""
    return SchemaRegistryClient({"url": side.broker.registry_url})


def write(side: Side, schema: str, value: dict[str, int], topic: str = "orders") -> None:
    with registry_of(side) as registry:
        data = AvroSerializer(registry, schema)(value, SerializationContext(topic, MessageField.VALUE))
    assert data is not None
    with Producer(side.client) as producer:
        producer.send(topic, data, partition=0)


def read(side: Side, topic: str) -> list[object]:
    context = SerializationContext(topic, MessageField.VALUE)
    with registry_of(side) as registry:
        deserializer = AvroDeserializer(registry)
        return [deserializer(record.value or b"", context) for record in side.records(topic)]


def mirrored(source: Side, target: Side, alias: str, *options: str) -> int:
    at = ["--source", f"{alias}={source.broker.bootstrap_servers}", "--target", target.broker.bootstrap_servers]
    return invoke(["mirror", *at, "--topics", "orders|_schemas", "--exit", "--quiet", "--schemas", *options])


def test_two_sources_with_the_same_ids_are_readable_by_unchanged_readers(sides: dict[str, Side]) -> None:
    a, b, c = sides["a"], sides["b"], sides["c"]
    write(a, record_schema("x"), {"x": 1})
    write(a, record_schema("x", "y"), {"x": 2, "y": 3})
    write(b, record_schema("z"), {"z": 4})
    write(c, record_schema("own"), {"own": 5}, "own")
    for alias in ("a", "b"):
        assert mirrored(sides[alias], c, alias) == 0
    assert read(c, "a.orders") == [{"x": 1}, {"x": 2, "y": 3}]
    assert read(c, "b.orders") == [{"z": 4}]
    assert read(c, "own") == [{"own": 5}]
    write(a, record_schema("x", "y", "w"), {"x": 6, "y": 7, "w": 8})
    assert mirrored(a, c, "a") == 0
    assert read(c, "a.orders")[2:] == [{"x": 6, "y": 7, "w": 8}]
    assert {name for name in c.client.metadata(None) if name.endswith("schemas")} == {"_schemas"}
    at = ["--bootstrap-server", c.broker.bootstrap_servers, "-e", "-s", "value=registry"]
    assert invoke(["consume", "b.orders", *at, "--registry", f"{c.broker.registry_url}/contexts/.b"]) == 0


def test_an_id_that_means_another_schema_is_reported_and_not_overwritten(
    sides: dict[str, Side], capsys: pytest.CaptureFixture[str]
) -> None:
    a, c = sides["a"], sides["c"]
    write(a, record_schema("x"), {"x": 1})
    with registry_of(a) as registry:
        registry.register_schema("free", Schema('"long"', "AVRO"))
    write(c, record_schema("own"), {"own": 5}, "own")
    assert mirrored(a, c, "a", "--naming", "identity") == 1
    error = capsys.readouterr().err
    assert "version 1 of orders-value is not copied from a: the id 1 belongs to another schema" in error
    with registry_of(c) as registry:
        assert registry.get_schema(2).schema_str == '"long"'
        assert sorted(registry.get_subjects()) == ["free", "own-value"]
    assert read(c, "own") == [{"own": 5}]
    assert c.values("orders")


def test_a_record_is_visible_only_after_its_schema(sides: dict[str, Side]) -> None:
    """A mirror runs while schemas grow; a reader without patience decodes everything at once."""
    a, c = sides["a"], sides["c"]
    naming = SchemaNaming()
    engine = Engine(
        settings_of(a, c, naming=Naming.identity, sync_schemas=True, refresh_interval_ms=60_000),
        schemas=lambda source, target: SchemaCopy(source, target, naming),
    )
    running = threading.Thread(target=lambda: asyncio.run(engine.run()))
    running.start()
    try:
        wait_until(lambda: "orders" in c.client.metadata(None), "the topic is mirrored")
        names = [f"f{number}" for number in range(8)]
        for number in range(len(names)):
            write(a, record_schema(*names[: number + 1]), {names[number]: number})
            wait_until(lambda expected=number: len(read(c, "orders")) > expected, "the record is copied")  # type: ignore[misc]
        for number, value in enumerate(read(c, "orders")):
            assert isinstance(value, dict)
            assert value[names[number]] == number
    finally:
        engine.stop()
        running.join(30)


def test_conflicts_are_in_the_report_of_a_mirror(sides: dict[str, Side]) -> None:
    a, c = sides["a"], sides["c"]
    for side, name in ((a, "x"), (c, "y")):
        with registry_of(side) as registry:
            registry.register_schema("s", Schema(record_schema(name), "AVRO"))
    engine = Engine(
        settings_of(a, c, naming=Naming.identity, sync_schemas=True),
        until_caught_up=True,
        schemas=lambda source, target: SchemaCopy(source, target, SchemaNaming()),
    )
    with pytest.raises(MirrorIncomplete, match="version 1 of s is not copied from a: the target has another schema"):
        asyncio.run(engine.run())
    assert [row.topic for row in engine.progress.refused()] == ["_schemas"]
