"""Pages of a console with a schema registry: values with subject and version, and the schema's text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest

from oncelog.cli.processes.console_clusters import clusters_of
from oncelog.client.blocking import Client, Producer
from oncelog.client.errors import ConfigError
from oncelog.schemas import Encoder, Reference, Registry, Schema, SchemaType
from oncelog.schemas.client.settings import parse_settings
from oncelog.testing.broker import Broker
from tests.unit.console.visits import visiting
from tests.unit.schemas.fake_registry import FakeRegistry, fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

pytestmark = pytest.mark.slow
ITEM = Schema('{"type": "record", "name": "Item", "fields": [{"name": "n<b>", "type": "int"}]}'.replace("<b>", "b"))
ORDER = Schema(
    '{"type": "record", "name": "Order", "doc": "<script>", "fields": [{"name": "item", "type": "Item"}]}',
    references=(Reference("Item", "item", 1),),
)


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with fake_registry(MemoryRegistry()) as fake:
        yield fake


def test_a_message_names_its_schema_and_leads_to_its_text(broker: Broker, server: FakeRegistry) -> None:
    with Registry(server.url) as registry:
        registry.register("item", ITEM)
        registry.register("p", Schema('syntax = "proto3"; message P {}', SchemaType.PROTOBUF))
        value = Encoder(registry, "orders-value", ORDER, register=True).encode({"item": {"nb": 7}}).data
    with Client(broker.bootstrap_servers) as client, Producer(client, create_topics=True) as producer:
        producer.send("by-registry", value)
    with visiting(broker.bootstrap_servers, registry=parse_settings(server.url)) as visitor:
        page = visitor.get("/messages?topic=by-registry").text
        (link,) = re.findall(r'href="(/messages/schema[^"]*)"', page)
        assert "orders-value version 1</a>, schema id 3:" in page
        assert "&#34;nb&#34;: 7" in page
        whole = visitor.get("/messages/one?topic=by-registry&partition=0&offset=0").text
        assert link in whole
        row = visitor.get("/messages.json?topic=by-registry").json()["slice"]["records"][0]["value"]
        assert (row["schema_id"], row["place"]) == ("3", {"subject": "orders-value", "version": 1})
        schema = visitor.get(html.unescape(link)).text
        assert "orders-value" in schema
        assert "Item" in schema
        assert "<script>" not in re.sub(r"<script (src|type|nonce).*?>", "", schema)
        assert visitor.get("/messages/schema.json?id=2").json()["type"] == "PROTOBUF"
        line = visitor.get("/messages/download?topic=by-registry&value_format=avro&isolation=all").text
        assert '"value": {"item": {"nb": 7}}' in line or '"value":{"item":{"nb":7}}' in line
        for wrong in ("", "x", "-1", "99", "9" * 5000):
            assert visitor.get(f"/messages/schema?id={wrong}").status_code in (400, 502, 503)


def test_without_a_registry_there_is_no_schema(broker: Broker) -> None:
    with visiting(broker.bootstrap_servers) as visitor:
        answer = visitor.get("/messages/schema?id=1")
        assert (answer.status_code, "start it with --registry URL" in answer.text) == (400, True)


def test_each_cluster_has_a_registry_of_its_own(tmp_path: object) -> None:
    names = ("a=h:1", "b=h:2", "c=h:3")
    registries = ("a=http://u:p@x:1", "a=http://y:1", "b=https://z/p")
    a, b, c = clusters_of(names, (), (), registries)
    assert a.registry is not None
    assert (a.registry.urls, a.registry.user) == (("http://x:1", "http://y:1"), "u")
    assert b.registry is not None
    assert b.registry.urls == ("https://z/p",)
    assert c.registry is None
    with pytest.raises(ConfigError, match="no --cluster has this name"):
        clusters_of(names, (), (), ("d=http://x",))
