"""Unmodified serializers, deserializers and the registry client of confluent-kafka, with a broker's registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.request import Request, urlopen

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import ConfigCompatibilityLevel
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from oncelog.testing import Broker, Cluster

ADDRESS = '{"type":"record","name":"Address","namespace":"shop","fields":[{"name":"street","type":"string"}]}'
USER = (
    '{"type":"record","name":"User","namespace":"shop","fields":['
    '{"name":"name","type":"string"},{"name":"address","type":"shop.Address"}]}'
)
ADULT = (
    '{"type":"record","name":"User","namespace":"shop","fields":['
    '{"name":"name","type":"string"},{"name":"address","type":"shop.Address"},{"name":"age","type":"int"}]}'
)
ORDER = '{"title":"Order","type":"object","properties":{"item":{"$ref":"item.json"}}}'
ITEM = '{"title":"Item","type":"object","properties":{"name":{"type":"string"}}}'
HEADER_IDS = [False, True]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(registry=True) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.registry_url}) as client:
        yield client


@pytest.fixture
def other(broker: Broker) -> Iterator[SchemaRegistryClient]:
    """A client that has nothing in its caches."""
    with SchemaRegistryClient({"url": broker.registry_url}) as client:
        yield client


def settings(*, in_header: bool) -> tuple[dict[str, object], dict[str, object]]:
    """Settings of a serializer and a deserializer."""
    reading = {"schema.id.deserializer": dual_schema_id_deserializer}
    return ({"schema.id.serializer": header_schema_id_serializer} if in_header else {}), reading


@pytest.mark.parametrize("in_header", HEADER_IDS)
def test_avro_with_a_reference(client: SchemaRegistryClient, other: SchemaRegistryClient, in_header: bool) -> None:
    client.register_schema("address", Schema(ADDRESS, "AVRO"))
    writing, reading = settings(in_header=in_header)
    schema = Schema(USER, "AVRO", [SchemaReference("shop.Address", "address", 1)])
    context = SerializationContext("users", MessageField.VALUE, [])
    value = {"name": "a person", "address": {"street": "a street"}}
    data = AvroSerializer(client, schema, conf=writing)(value, context)
    assert (data[0] == 0 and not context.headers) != in_header
    assert AvroDeserializer(other, conf=reading)(data, context) == value


@pytest.mark.parametrize("in_header", HEADER_IDS)
def test_json_schema_with_a_reference(
    client: SchemaRegistryClient, other: SchemaRegistryClient, in_header: bool
) -> None:
    client.register_schema("item", Schema(ITEM, "JSON"))
    writing, reading = settings(in_header=in_header)
    schema = Schema(ORDER, "JSON", [SchemaReference("item.json", "item", 1)])
    context = SerializationContext("orders", MessageField.VALUE, [])
    data = JSONSerializer(schema, client, conf=writing)({"item": {"name": "a book"}}, context)
    read = JSONDeserializer(None, schema_registry_client=other, conf=reading)(data, context)
    assert read == {"item": {"name": "a book"}}


@pytest.mark.parametrize("in_header", HEADER_IDS)
def test_protobuf(client: SchemaRegistryClient, other: SchemaRegistryClient, in_header: bool) -> None:
    name = f"day{in_header}".lower()
    file = descriptor_pb2.FileDescriptorProto(name=f"shop/{name}.proto", package=f"shop.{name}", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Day")
    message.field.add(name="year", number=1, type=5, label=1)
    message.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    import google.protobuf.timestamp_pb2  # noqa: F401  # into the pool

    descriptor_pool.Default().Add(file)
    kind = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(f"shop.{name}.Day"))
    writing, reading = settings(in_header=in_header)
    context = SerializationContext(name, MessageField.VALUE, [])
    data = ProtobufSerializer(kind, client, {"use.deprecated.format": False, **writing})(kind(year=7), context)
    reader = ProtobufDeserializer(kind, {"use.deprecated.format": False, **reading}, other)
    assert reader(data, context).year == 7


def test_the_whole_client(broker: Broker, client: SchemaRegistryClient) -> None:
    address = Schema(ADDRESS, "AVRO")
    assert client.register_schema("who/le", address) == client.register_schema("who/le", address)
    version = client.get_latest_version("who/le")
    assert (version.subject, version.version, version.schema.schema_str) == ("who/le", 1, ADDRESS)
    assert client.get_version("who/le", 1) == version
    assert client.lookup_schema("who/le", address).schema_id == version.schema_id
    assert client.get_schema(version.schema_id).schema_str == ADDRESS
    assert client.get_schema_by_guid(version.guid).schema_str == ADDRESS
    assert sorted(client.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]
    assert "who/le" in client.get_subjects()
    assert "who/le" in client.get_subjects_by_schema_id(version.schema_id)
    assert any(place.subject == "who/le" for place in client.get_schema_versions(version.schema_id))
    assert client.get_versions("who/le") == [1]
    assert client.get_referenced_by("who/le", 1) == []
    assert client.test_compatibility("who/le", address)
    assert client.test_compatibility_all_versions("who/le", address)
    assert client.get_config().compatibility_level == ConfigCompatibilityLevel.BACKWARD
    client.set_config("who/le", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_config("who/le").compatibility_level == ConfigCompatibilityLevel.FULL
    assert client.delete_config("who/le").compatibility_level == ConfigCompatibilityLevel.FULL
    client.set_compatibility("who/le", "none")
    assert client.get_compatibility("who/le") == "NONE"
    assert (client.get_global_mode(), client.update_mode("empty", "IMPORT")) == ("READWRITE", "IMPORT")
    assert (client.get_mode("empty"), client.delete_mode("empty")) == ("IMPORT", "IMPORT")
    assert client.get_contexts() == ["."]
    body = {"schema": '"string"', "metadata": {"properties": {"team": "x"}}}
    post(broker, "/subjects/described/versions", body)
    assert client.get_latest_with_metadata("described", {"team": "x"}).version == 1
    assert client.delete_version("who/le", 1) == 1
    assert client.delete_version("who/le", 1, permanent=True) == 1
    assert client.delete_subject("described") == [1]
    assert client.delete_subject("described", permanent=True) == [1]
    assert "described" not in client.get_subjects(deleted=True)


def test_a_schema_that_readers_could_not_read_is_refused(client: SchemaRegistryClient) -> None:
    client.register_schema("address", Schema(ADDRESS, "AVRO"))
    references = [SchemaReference("shop.Address", "address", 1)]
    client.register_schema("people", Schema(USER, "AVRO", references))
    with pytest.raises(SchemaRegistryError, match="READER_FIELD_MISSING_DEFAULT_VALUE") as refused:
        client.register_schema("people", Schema(ADULT, "AVRO", references))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 40901)
    assert not client.test_compatibility("people", Schema(ADULT, "AVRO", references))


def test_schemas_outlive_the_broker_and_a_reset_forgets_them() -> None:
    with Broker(registry=True) as broker, SchemaRegistryClient({"url": broker.registry_url}) as client:
        client.register_schema("s", Schema('"string"', "AVRO"))
        broker.kill()
        broker.start()
        assert client.register_schema("s", Schema('["null","string"]', "AVRO")) == 2
        broker.reset()
        assert client.get_subjects() == []


def test_the_registry_of_a_secured_broker_logs_in_by_itself() -> None:
    with (
        Broker(security="scram", registry=True) as broker,
        SchemaRegistryClient({"url": broker.registry_url}) as client,
    ):
        assert client.register_schema("s", Schema('"string"', "AVRO")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("security", [None, "scram"])
def test_the_registry_of_a_cluster_survives_its_brokers(security: str | None) -> None:
    with Cluster(3, registry=True, security=security) as cluster:
        url = cluster.registry_url
        with SchemaRegistryClient({"url": url}) as client:
            for number, broker_id in enumerate(cluster.brokers, 1):
                schema = Schema(json.dumps({"type": "fixed", "name": "F", "size": number}), "AVRO")
                assert client.register_schema("s", schema) == number
                cluster.kill(broker_id)
                assert client.get_versions("s") == list(range(1, number + 1))
                client.set_compatibility("s", level="NONE")
                cluster.restart(broker_id)
            cluster.freeze(1, expires=False)
        assert cluster.registry_url == url
    with pytest.raises(RuntimeError, match=r"Cluster\(registry=True\)"):
        _ = Cluster().registry_url


def post(broker: Broker, path: str, body: object) -> None:
    request = Request(broker.registry_url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as response:
        assert response.status == 200
