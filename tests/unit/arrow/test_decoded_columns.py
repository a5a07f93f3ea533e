"""``oncelog.read_arrow`` with a schema registry: typed columns from all versions, and the reasons of other records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import oncelog
from oncelog.client.blocking import Client, Producer
from oncelog.client.errors import ConfigError
from oncelog.schemas import Encoder, NotRegistered, Registry, RegistryRefused, Schema
from oncelog.testing import Broker
from tests.unit.schemas.fake_registry import FakeRegistry, fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

OLD = Schema('{"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}')
NEW = Schema(
    '{"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}, '
    '{"name": "note", "type": ["null", "string"], "default": null}]}'
)
KEY = Schema('"string"')


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


class Outage(MemoryRegistry):
    """A registry that may be down."""

    is_down = False

    def __call__(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        return (503, {}) if self.is_down else super().__call__(method, target, body)


@pytest.fixture
def memory() -> Outage:
    return Outage()


@pytest.fixture
def server(memory: Outage) -> Iterator[FakeRegistry]:
    with fake_registry(memory) as fake:
        yield fake


@pytest.fixture
def topic(broker: Broker, server: FakeRegistry) -> str:
    """Records of two versions, one by a GUID in a header, one of plain text, and a tombstone."""
    with (
        Registry(server.url) as registry,
        Client(broker.bootstrap_servers) as client,
        Producer(client, create_topics=True) as producer,
    ):
        key = Encoder(registry, "orders-key", KEY, register=True, part="key").encode("k").data
        old = Encoder(registry, "orders-value", OLD, register=True).encode({"id": 1})
        new = Encoder(registry, "orders-value", NEW, register=True, in_header=True).encode({"id": 2, "note": "né"})
        topic = f"orders-{server.server.server_port}"
        producer.send(topic, old.data, key=key)
        producer.send(topic, new.data, key=key, headers=new.headers)
        producer.send(topic, b"text", key=key)
        producer.send(topic, None, key=key)
    return topic


def test_values_of_all_versions_are_one_typed_column(broker: Broker, server: FakeRegistry, topic: str) -> None:
    place = {"bootstrap_servers": broker.bootstrap_servers}
    reader = oncelog.read_arrow(
        topic, **place, registry=server.url, key_schema="orders-key", value_schema="orders-value"
    )
    assert reader.schema.names == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "key_error", "value_error")
    ]
    table = reader.to_table()
    assert table.schema == reader.schema
    assert table["key"].to_pylist() == ["k"] * 4
    assert table["value"].to_pylist() == [{"id": 1, "note": None}, {"id": 2, "note": "né"}, None, None]
    first, second, reason, tombstone = table["value_error"].to_pylist()
    assert (first, second, tombstone) == (None, None, None)
    assert "names no schema" in reason
    with (
        Registry(server.url) as registry,
        oncelog.read_arrow(
            topic, **place, registry=registry, value_schema="orders-value@1", include_headers=True
        ) as older,
    ):
        assert older.schema.field("value").type == pa.struct([pa.field("id", pa.int64())])
        assert older.to_table()["value"].to_pylist() == [{"id": 1}, {"id": 2}, None, None]


def test_wrong_options(broker: Broker, server: FakeRegistry, topic: str) -> None:
    place = {"bootstrap_servers": broker.bootstrap_servers}
    with pytest.raises(ConfigError, match="need a registry"):
        oncelog.read_arrow(topic, **place, value_schema="orders-value")
    with pytest.raises(ConfigError, match="needs a schema to read as"):
        oncelog.read_arrow(topic, **place, registry=server.url)
    with pytest.raises(NotRegistered):
        oncelog.read_arrow(topic, **place, registry=server.url, value_schema="other")


def test_a_registry_that_stops_answering_loses_no_record(
    broker: Broker, topic: str, server: FakeRegistry, memory: Outage
) -> None:
    place = {"bootstrap_servers": broker.bootstrap_servers}
    with Registry(server.url, {"max.retries": "0"}) as registry:
        memory.is_down = False
        reader = oncelog.read_arrow(topic, **place, registry=registry, value_schema="orders-value")
        memory.is_down = True
        with reader, pytest.raises(RegistryRefused, match="503"):
            reader.to_table()
        assert list(reader.positions.values()) == [0]
