"""Topics: a list that is filtered and paged here, and one topic with its partitions, sizes and configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.cluster import LogDirRow, describe_log_dirs
from oncelog.admin.configs import ResourceType, describe_configs
from oncelog.admin.topics import describe_topics, list_topics
from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.console.page import Asked, Page
from oncelog.console.rendering import one_page


def read_all(client: Client, asked: Asked) -> Mapping[str, Any]:
    """Topics by name, those whose name contains the filter; sizes are asked for what is on the page."""
    query = asked.query
    wanted, internal = query.text("filter"), query.flag("internal")
    every = asked.recent.get("topics", lambda: list_topics(client))
    rows = [one for one in every if wanted.lower() in one.name.lower() and (internal or not one.is_internal)]
    found = one_page(rows, query.number("page", 1, 1))
    sizes, unanswered = _sizes(client, [one.name for one in found["rows"]])
    by_topic: Counter[str] = Counter()
    for one in sizes:
        by_topic[one.topic] += one.size_bytes
    found["rows"] = [
        {name: getattr(one, name) for name in one.__slots__} | {"size_bytes": by_topic.get(one.name)}
        for one in found["rows"]
    ]
    return {"topics": found, "filter": {"filter": wanted, "internal": internal}, "unanswered": unanswered}


def _sizes(client: Client, names: list[str]) -> tuple[list[LogDirRow], list[str]]:
    """Sizes of all replicas; a broker that does not tell is no reason to show nothing."""
    if not names:
        return [], []
    try:
        client.metadata(names)  # At once: this client may not have seen them yet.
        return describe_log_dirs(client, names), []
    except BrokerRefused as error:
        return [], [str(error)]
    except ClientError as error:
        return [], [f"sizes: {error}"]


def read_one(client: Client, asked: Asked) -> Mapping[str, Any]:
    """One topic: offsets and replicas of its partitions, and the keys that are not at their defaults."""
    query = asked.query
    name = query.needed("name")
    (described,) = describe_topics(client, [name])
    rows = described.partitions
    found = one_page(rows, query.number("page", 1, 1))
    led = [TopicPartition(TopicName(name), one.partition) for one in found["rows"] if one.leader is not None]
    bounds, unanswered = bounds_of(client, led)
    sizes, silent = _sizes(client, [name])
    size = {(one.partition, one.broker_id): one.size_bytes for one in sizes}
    found["rows"] = [
        {key: getattr(one, key) for key in one.__slots__}
        | {
            "last_stable_offset": bounds[at].last_stable_offset if (at := _at(name, one.partition)) in bounds else None,
            "size_bytes": None if one.leader is None else size.get((one.partition, one.leader)),
        }
        for one in found["rows"]
    ]
    try:
        configs = describe_configs(client, ResourceType.TOPIC, name)
    except BrokerRefused as error:
        configs, silent = [], [*silent, str(error)]
    return {
        "topic": described.topic,
        "partitions": found,
        "offsets": sum((one.latest or 0) - (one.earliest or 0) for one in rows),
        "size_bytes": sum(one.size_bytes for one in sizes),
        "configs": configs if query.flag("all_configs") else [one for one in configs if not one.is_default],
        "all_configs": query.flag("all_configs"),
        "unanswered": [*map(str, unanswered), *silent],
    }


def _at(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)


TOPICS: Final = Page("/topics", "Topics", read_all)
TOPIC: Final = Page("/topics/one", "Topic", read_one)
