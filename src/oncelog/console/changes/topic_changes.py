"""Audited changes of topics: create, alter, add partitions, delete records, delete; the rule is that of
``audited_changes``.
"""

from __future__ import annotations

from oncelog.admin.configs import ResourceType, alter_configs, describe_configs
from oncelog.admin.topics import NewTopic, TopicRow, add_partitions, create_topic, delete_records, delete_topics
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes, confirmed, partition_of
from oncelog.console.query import NotConfirmed


def create(client: Client, permit: Permit, changes: Changes, new: NewTopic) -> TopicRow:
    """Create a topic. Raises BrokerRefused."""
    details = {"topic": new.name, "partitions": new.partitions, "replication_factor": new.replication_factor}
    return changes.noted(permit, "create-topic", details, lambda: create_topic(client, new))


def check_config(client: Client, topic: str, key: str, value: str | None) -> None:
    """Have the broker validate a value without setting it; None is the default. Raises BrokerRefused."""
    _alter(client, topic, key, value, validate_only=True)


def alter_config(
    client: Client, permit: Permit, changes: Changes, topic: str, key: str, was: str, value: str | None, typed: str
) -> None:
    """Set a key to a value, None for its default. Raises NotConfirmed if the value shown has changed."""
    confirmed(typed, topic, "topic")
    now = config_text(client, topic, key)
    if now != was:
        raise NotConfirmed(f"{key} is now {now!r}, but was {was!r} when the change was shown. Nothing was done")
    details = {"topic": topic, "key": key, "from": was, "to": value}
    changes.noted(permit, "alter-config", details, lambda: _alter(client, topic, key, value))


def config_text(client: Client, topic: str, key: str) -> str:
    """The current value of a key, with its source. Raises NotConfirmed for an unknown key."""
    for config in describe_configs(client, ResourceType.TOPIC, topic, [key]):
        if config.name == key:
            return f"{config.value} ({config.source})"
    raise NotConfirmed(f"topics have no configuration key {key!r}")


def extend(client: Client, permit: Permit, changes: Changes, topic: str, total: int, typed: str) -> None:
    confirmed(typed, topic, "topic")
    details = {"topic": topic, "from": len(client.topic(topic).partitions), "to": total}
    changes.noted(permit, "add-partitions", details, lambda: add_partitions(client, topic, total))


def shorten(
    client: Client, permit: Permit, changes: Changes, topic: str, partition: int, before: int, typed: str
) -> int:
    """Delete the records before an offset; returns the new first offset."""
    confirmed(typed, topic, "topic")
    topic_partition = partition_of(topic, partition)
    details = {"topic": topic, "partition": partition, "before": before}
    return changes.noted(permit, "delete-records", details, lambda: delete_records(client, {topic_partition: before}))[
        topic_partition
    ]


def delete(client: Client, permit: Permit, changes: Changes, topic: str, typed: str) -> None:
    confirmed(typed, topic, "topic")

    def delete_topic() -> None:
        for outcome in delete_topics(client, [topic]):
            if outcome.error:
                raise BrokerRefused(outcome.error_code, f"topic {topic!r}", outcome.error)

    changes.noted(permit, "delete-topic", {"topic": topic}, delete_topic)


def _alter(client: Client, topic: str, key: str, value: str | None, *, validate_only: bool = False) -> None:
    alter_configs(
        client,
        ResourceType.TOPIC,
        topic,
        change={} if value is None else {key: value},
        delete=[key] if value is None else [],
        validate_only=validate_only,
    )
