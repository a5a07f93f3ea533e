"""Unmodified serializers of confluent-kafka beyond plain values: asyncio, names of subjects, data contracts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import (
    AsyncAvroDeserializer,
    AsyncAvroSerializer,
    AvroDeserializer,
    AvroSerializer,
)
from confluent_kafka.schema_registry.common.schema_registry_client import ConfigCompatibilityLevel
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import RuleContext, RuleExecutor
from confluent_kafka.serialization import MessageField, SerializationContext

from oncelog.testing import Broker

pytestmark = pytest.mark.slow
NAME = {"name": "name", "type": "string"}
MAJOR = "application.major.version"


def user(*more: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "User", "namespace": "shop", "fields": [NAME, *more]})


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, [])


def described(properties: dict[str, str]) -> Metadata:
    return Metadata(None, MetadataProperties(properties), None)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Broker(registry=True) as broker:
        yield broker.registry_url


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def test_asyncio(url: str) -> None:
    async def exchange() -> Any:
        async with AsyncSchemaRegistryClient({"url": url}) as client:
            serializer = await AsyncAvroSerializer(client, Schema(user(), "AVRO"))
            data = await serializer({"name": "a person"}, value_of("asyncio"))
            assert (await client.get_latest_version("asyncio-value")).version == 1
            deserializer = await AsyncAvroDeserializer(client)
            return await deserializer(data, value_of("asyncio"))

    assert asyncio.run(exchange()) == {"name": "a person"}


def test_the_latest_version_is_used_without_registering(client: SchemaRegistryClient) -> None:
    client.register_schema("latest-value", Schema(user(), "AVRO"))
    age = {"name": "age", "type": ["null", "int"], "default": None}
    newest = client.register_schema("latest-value", Schema(user(age), "AVRO"))
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    data = AvroSerializer(client, Schema(user(), "AVRO"), conf=settings)({"name": "x", "age": 7}, value_of("latest"))
    assert int.from_bytes(data[1:5]) == newest
    assert AvroDeserializer(client)(data, value_of("latest")) == {"name": "x", "age": 7}


def test_normalized_schemas_are_one(client: SchemaRegistryClient) -> None:
    same = json.dumps({"fields": [dict(reversed(NAME.items()))], "namespace": "shop", "name": "User", "type": "record"})
    for text in (user(), same):
        AvroSerializer(client, Schema(text, "AVRO"), conf={"normalize.schemas": True})({"name": "x"}, value_of("same"))
    assert client.get_versions("same-value") == [1]


@pytest.mark.parametrize(
    ("settings", "subject"),
    [
        ({"subject.name.strategy": record_subject_name_strategy}, "shop.User"),
        ({"subject.name.strategy": topic_record_subject_name_strategy}, "named-shop.User"),
        # Without associations, which this registry does not have, its fallback decides.
        (
            {"subject.name.strategy.type": "ASSOCIATED", "subject.name.strategy.conf": {"kafka.cluster.id": "c"}},
            "named-value",
        ),
    ],
)
def test_names_of_subjects(client: SchemaRegistryClient, settings: dict[str, Any], subject: str) -> None:
    AvroSerializer(client, Schema(user(), "AVRO"), conf=settings)({"name": "x"}, value_of("named"))
    assert client.get_versions(subject) == [1]


class Upper(RuleExecutor):
    """A rule of an application: names in capitals."""

    def configure(self, client_conf: dict[str, Any], rule_conf: dict[str, str]) -> None:
        pass

    def type(self) -> str:
        return "UPPER"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        return {**message, "name": message["name"].upper()}


def test_rules_of_a_schema_are_carried_out_by_its_clients(url: str, client: SchemaRegistryClient) -> None:
    RuleRegistry.register_rule_executor(Upper())
    rule = Rule("upper", "d", RuleKind.TRANSFORM, RuleMode.WRITE, "UPPER", ["PII"], None, "e", None, "NONE", False)
    schema = Schema(user(), "AVRO", [], described({"owner": "me"}), RuleSet(None, [rule]))
    client.register_schema("ruled-value", schema)
    with SchemaRegistryClient({"url": url}) as other:
        kept = other.get_latest_version("ruled-value").schema
        assert kept.rule_set is not None
        assert kept.rule_set.domain_rules is not None
        assert (kept.rule_set.domain_rules[0].tags, kept.rule_set.domain_rules[0].expr) == (["PII"], "e")
        settings = {"auto.register.schemas": False, "use.latest.version": True}
        data = AvroSerializer(other, Schema(user(), "AVRO"), conf=settings)({"name": "x"}, value_of("ruled"))
    assert AvroDeserializer(client)(data, value_of("ruled")) == {"name": "X"}


def test_versions_are_compatible_within_their_group_and_migrated(client: SchemaRegistryClient) -> None:
    RuleRegistry.register_rule_executor(Upper())
    config = ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD, compatibility_group=MAJOR)
    client.set_config("grouped-value", config)
    client.register_schema("grouped-value", Schema(user(), "AVRO", [], described({MAJOR: "1"})))
    first = {"auto.register.schemas": False, "use.latest.with.metadata": {MAJOR: "1"}}
    data = AvroSerializer(client, Schema(user(), "AVRO"), conf=first)({"name": "x"}, value_of("grouped"))
    upgrade = Rule("up", "", RuleKind.TRANSFORM, RuleMode.UPGRADE, "UPPER", None, None, None, None, None, False)
    must = {"name": "must", "type": "string"}
    # Not compatible with version 1, and of another group.
    rules = RuleSet([upgrade], [])
    client.register_schema("grouped-value", Schema(user(must), "AVRO", [], described({MAJOR: "2"}), rules))
    incompatible = Schema(user(must, {"name": "more", "type": "string"}), "AVRO", [], described({MAJOR: "2"}))
    with pytest.raises(SchemaRegistryError, match="incompatible") as refused:
        client.register_schema("grouped-value", incompatible)
    assert refused.value.http_status_code == 409
    reader = Schema(user({**must, "default": "d"}), "AVRO", [], described({MAJOR: "2"}), rules)
    client.register_schema("grouped-value", reader)
    second = {"use.latest.with.metadata": {MAJOR: "2"}}
    assert AvroDeserializer(client, conf=second)(data, value_of("grouped"))["name"] == "X"


def test_metadata_of_the_config_is_merged(client: SchemaRegistryClient) -> None:
    default, override = described({"d": "1"}), described({"o": "2"})
    client.set_config("merged-value", ServerConfig(default_metadata=default, override_metadata=override))
    client.register_schema("merged-value", Schema(user(), "AVRO", [], described({"o": "9"})))
    metadata = client.get_latest_version("merged-value").schema.metadata
    assert metadata is not None
    assert metadata.properties is not None
    assert metadata.properties.properties == {"d": "1", "o": "2"}
