"""Unmodified serializers of confluent-kafka write values that we read, and their deserializers read values that we
write: three formats, references and ids in headers, over a registry in memory, ours and Apicurio's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from oncelog.schemas import Decoder, Encoder, NotReadable, NotRegistered, Reference, Registry, Schema, SchemaType
from oncelog.testing import Broker
from tests.peers.apicurio import apicurio
from tests.unit.schemas.fake_registry import fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry

MEMORY, OURS = "memory", "oncelog"
ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "name", "type": "string"}]}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "item", "type": "shop.Item"},
        {"name": "price", "type": MONEY},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}, "default": {}},
    ],
}
PLACED = {"item": {"name": "né"}, "price": Decimal("12.50"), "tags": {"a": None, "b": "x"}}
POINT = {"title": "Point", "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
LINE = {"title": "Line", "type": "object", "properties": {"from": {"$ref": "point.json"}, "to": {"$ref": "point.json"}}}


class Both(NamedTuple):
    """Two clients of one registry, and its name."""

    ours: Registry
    theirs: SchemaRegistryClient
    name: str


@pytest.fixture(
    scope="module",
    params=[MEMORY, OURS, pytest.param("apicurio", marks=[pytest.mark.slow, pytest.mark.peer("apicurio")])],
)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    if request.param == MEMORY:
        with fake_registry(MemoryRegistry()) as fake:
            yield from _clients(fake.url, request.param)
    elif request.param == OURS:
        with Broker(registry=True) as broker:
            yield from _clients(broker.registry_url, request.param)
    else:
        with apicurio(tmp_path_factory.mktemp("apicurio")) as url:
            yield from _clients(url, request.param)


def _clients(url: str, name: str) -> Iterator[Both]:
    with Registry(url) as ours, SchemaRegistryClient({"url": url}) as theirs:
        yield Both(ours, theirs, name)


def context(topic: str, headers: list[tuple[str, bytes]] | None = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def test_avro_with_a_reference(both: Both) -> None:
    both.ours.register("item", Schema(json.dumps(ITEM)))
    references = [SchemaReference("shop.Item", "item", 1)]
    serializer = AvroSerializer(both.theirs, TheirSchema(json.dumps(ORDER), "AVRO", references))
    data = serializer(PLACED, context("orders"))
    decoded = Decoder(both.ours).decode(data)
    assert decoded.value == PLACED
    assert [reference.name for reference in decoded.schema.references] == ["shop.Item"]
    encoded = Encoder(both.ours, "orders-value").encode(PLACED).data
    assert encoded == data
    assert AvroDeserializer(both.theirs)(encoded, context("orders")) == PLACED


def test_json_with_a_reference(both: Both) -> None:
    both.ours.register("point", Schema(json.dumps(POINT), SchemaType.JSON))
    schema = Schema(json.dumps(LINE), SchemaType.JSON, (Reference("point.json", "point", 1),))
    value = {"from": {"x": 1}, "to": {"x": 2}}
    encoded = Encoder(both.ours, "lines-value", schema, register=True).encode(value).data
    theirs = TheirSchema(json.dumps(LINE), "JSON", [SchemaReference("point.json", "point", 1)])
    read = JSONDeserializer(theirs, schema_registry_client=both.theirs)(encoded, context("lines"))
    assert read == value
    data = JSONSerializer(theirs, both.theirs)(value, context("lines"))
    assert Decoder(both.ours).decode(data).value == value


def test_protobuf_with_nested_messages_and_a_reference(both: Both) -> None:
    order, line = _protobuf_classes()
    message = order(number=7, lines=[line(name="a"), line(name="b")])
    message.common.amount = 1.5
    message.at.seconds = 5
    for written in (message, line(name="x")):
        serializer = ProtobufSerializer(type(written), both.theirs, {"use.deprecated.format": False})
        data = serializer(written, context(f"p{type(written).__name__}"))
        decoded = Decoder(both.ours).decode(data)
        assert decoded.note == written.DESCRIPTOR.full_name
        subject, name = f"p{type(written).__name__}-value", written.DESCRIPTOR.full_name
        encoded = Encoder(both.ours, subject, message=name).encode(decoded.value).data
        assert encoded == data
        reader = ProtobufDeserializer(type(written), {"use.deprecated.format": False}, both.theirs)
        assert reader(encoded, context("p")) == written
    value = (
        Decoder(both.ours)
        .decode(ProtobufSerializer(order, both.theirs, {"use.deprecated.format": False})(message, context("pOrder")))
        .value
    )
    assert value == {
        "number": 7,
        "lines": [{"name": "a"}, {"name": "b"}],
        "common": {"amount": 1.5},
        "at": "1970-01-01T00:00:05Z",
    }


def _protobuf_classes() -> tuple[Any, Any]:
    """A message of a file that imports another one and a well-known type, and its nested message."""
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import timestamp_pb2

    timestamp_pb2.DESCRIPTOR.CopyToProto(well_known := descriptor_pb2.FileDescriptorProto())
    pool.Add(well_known)
    field = descriptor_pb2.FieldDescriptorProto
    common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="shop", syntax="proto3")
    common.message_type.add(name="Common").field.add(name="amount", number=1, type=field.TYPE_DOUBLE, label=1)
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.extend(["common.proto", "google/protobuf/timestamp.proto"])
    order = file.message_type.add(name="Order")
    order.nested_type.add(name="Line").field.add(name="name", number=1, type=field.TYPE_STRING, label=1)
    order.field.add(name="number", number=1, type=field.TYPE_INT32, label=1)
    for name, number, kind, label in (
        ("lines", 2, ".shop.Order.Line", 3),
        ("common", 3, ".shop.Common", 1),
        ("at", 4, ".google.protobuf.Timestamp", 1),
    ):
        order.field.add(name=name, number=number, type=field.TYPE_MESSAGE, type_name=kind, label=label)
    pool.Add(common)
    pool.Add(file)
    classes = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in ("Order", "Order.Line")
    ]
    return classes[0], classes[1]


def test_ids_in_headers(both: Both) -> None:
    if both.name not in (MEMORY, OURS):
        pytest.skip("Apicurio 2 has no GUIDs")
    schema, value = json.dumps(ITEM), {"name": "longer than a prefix, which the deserializer expects"}
    headers: list[tuple[str, bytes]] = []
    serializer = AvroSerializer(both.theirs, schema, conf={"schema.id.serializer": header_schema_id_serializer})
    data = serializer(value, context("headers", headers))
    assert Decoder(both.ours).decode(data, headers).value == value
    encoded = Encoder(both.ours, "headers-value", in_header=True).encode(value)
    assert (encoded.data, list(encoded.headers)) == (data, headers)
    read = AvroDeserializer(both.theirs)(encoded.data, context("headers", list(encoded.headers)))
    assert read == value


def test_subjects_versions_and_what_is_absent(both: Both) -> None:
    first = both.ours.register("seen", Schema('"string"'))
    assert both.ours.register("seen", Schema('"string"')) == first
    version = both.ours.lookup("seen", Schema('"string"'))
    assert (version.subject, version.version, version.schema_id) == ("seen", 1, first)
    assert both.ours.version("seen").schema.text == '"string"'
    assert ("seen", 1) in both.ours.subject_versions(first)
    assert "seen" in both.ours.subjects()
    for ask in (lambda: both.ours.version("unseen"), lambda: both.ours.schema(4711)):
        with pytest.raises(NotRegistered):
            ask()
    with pytest.raises(NotReadable, match="404"):
        Decoder(both.ours).decode(b"\0\0\0\x12\x34x")
