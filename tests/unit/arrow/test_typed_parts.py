"""``oncelog.read_arrow`` with a schema registry, as docs/schemas.md has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import oncelog
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.client.errors import ConfigError
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.schemas import Encoder, NotRegistered, Registry, Schema
from oncelog.testing import Broker
from tests.unit.schemas.fake_registry import fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry


def avro(*fields: Any) -> Schema:
    return Schema(json.dumps({"type": "record", "name": "Order", "fields": list(fields)}))


FIRST = avro({"name": "id", "type": "int"})
SECOND = avro({"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None})


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[str, str]]:
    """A broker with the topic ``orders``, and a registry."""
    with Broker() as broker, fake_registry(MemoryRegistry()) as fake, Registry(fake.url) as registry:
        old = Encoder(registry, "orders-value", FIRST, register=True)
        new = Encoder(registry, "orders-value", SECOND, register=True, in_header=True)
        header = new.encode({"id": 2, "note": "n"})
        with Client(broker.bootstrap_servers) as client:
            create_topic(client, NewTopic("orders", 1))
            records = [
                Record(-1, 0, None, old.encode({"id": 1}).data),
                Record(-1, 0, None, header.data, tuple(header.headers)),
                Record(-1, 0, None, b"bad"),
                Record(-1, 0, None, None),
            ]
            client.produce(TopicPartition(TopicName("orders"), 0), build_batch(records))
        yield broker.bootstrap_servers, fake.url


def test_values_are_typed_by_the_latest_schema(place: tuple[str, str]) -> None:
    servers, url = place
    reader = oncelog.read_arrow("orders", bootstrap_servers=servers, registry=url)
    assert reader.schema.field("value").type == pa.struct([("id", pa.int64()), ("note", pa.string())])
    table = reader.to_table()
    assert table.schema == reader.schema
    assert table.column("value").to_pylist() == [{"id": 1, "note": None}, {"id": 2, "note": "n"}, None, None]
    reason = "it names no schema: neither a header nor its first bytes"
    assert table.column("value_error").to_pylist() == [None, None, reason, None]
    assert table.column("value_bytes").to_pylist() == [None, None, b"bad", None]


def test_schema_of_a_version_or_given(place: tuple[str, str]) -> None:
    servers, url = place
    with Registry(url) as registry:
        for schema in ("orders-value@1", FIRST):
            reader = oncelog.read_arrow(
                "orders", bootstrap_servers=servers, registry=registry, value_schema=schema, include_headers=True
            )
            rows = reader.to_table()
            assert rows.column("value").to_pylist()[0] == {"id": 1}
            assert rows.column_names[-3:] == ["headers", "value_error", "value_bytes"]


def test_what_is_missing_is_said_before_a_broker_is_asked(place: tuple[str, str]) -> None:
    _, url = place
    with pytest.raises(ConfigError, match="need a registry"):
        oncelog.read_arrow("orders", value_schema="orders-value")
    with pytest.raises(ConfigError, match="give a subject"):
        oncelog.read_arrow(["a", "b"], registry=url)
    with pytest.raises(NotRegistered, match="none-value"):
        oncelog.read_arrow("none", registry=url)
