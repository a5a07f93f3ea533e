"""Topics: a list that is filtered and paged here, and one topic with its partitions, sizes and configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.admin.cluster import LogDirRow, describe_log_dirs
from oncelog.admin.configs import ResourceType, describe_configs, values_by_name
from oncelog.admin.topics import describe_topics, list_topics
from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import EARLIEST, LATEST, Client
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.console.cluster.rates import Rate, Rates
from oncelog.console.page import Asked
from oncelog.console.rendering import one_page

RETENTION_KEYS: Final = ("retention.ms", "retention.bytes", "cleanup.policy")
MOST_RATED: Final = 5000
"""Partitions of one page whose ends are asked for."""


def read_all(client: Client, asked: Asked) -> Mapping[str, Any]:
    """Topics by name, those whose name contains the filter; sizes are asked for what is on the page."""
    query = asked.query
    wanted, internal = query.text("filter"), query.flag("internal")
    every = asked.recent.get("topics", lambda: list_topics(client))
    rows = [one for one in every if wanted.lower() in one.name.lower() and (internal or not one.is_internal)]
    found = one_page(rows, query.number("page", 1, 1))
    sizes, unanswered = _sizes(client, [one.name for one in found["rows"]])
    by_topic: Counter[str] = Counter()
    for size in sizes:
        by_topic[size.topic] += size.size_bytes
    names = [one.name for one in found["rows"]]
    rates = _rates(client, asked.rates, names, _ends(client, names), sizes)
    kept = _settings(client, names, unanswered)
    found["rows"] = [
        {name: getattr(one, name) for name in one.__slots__}
        | {"size_bytes": by_topic.get(one.name), "rate": rates.get(one.name, Rate())}
        | {"retention": kept.get(one.name, Retention())}
        for one in found["rows"]
    ]
    return {"topics": found, "filter": {"filter": wanted, "internal": internal}, "unanswered": unanswered}


def _sizes(client: Client, names: list[str]) -> tuple[list[LogDirRow], list[str]]:
    """Sizes of all replicas; a broker that does not tell is no reason to show nothing."""
    if not names:
        return [], []
    try:
        now_ms, most_ms = client.system.now_ms(), client.config.metadata_max_age_ms
        ages = [client.view.age_ms(name, now_ms) for name in names]
        if any(age is None or age > most_ms for age in ages):
            client.metadata(names)  # At once: this client may not have seen them yet.
        return describe_log_dirs(client, names, sorted(client.view.brokers)), []
    except BrokerRefused as error:
        return [], [str(error)]
    except ClientError as error:
        return [], [f"sizes: {error}"]


@dataclass(frozen=True, slots=True)
class Retention:
    """The records a topic keeps; None where nothing bounds that, or nobody said."""

    is_known: bool = False
    milliseconds: int | None = None
    size_bytes: int | None = None
    policy: str | None = None


def _settings(client: Client, names: list[str], unanswered: list[str]) -> dict[str, Retention]:
    if not names:
        return {}
    try:
        found = values_by_name(client, ResourceType.TOPIC, names, RETENTION_KEYS)
    except ClientError as error:
        unanswered.append(f"retention: {error}")
        return {}
    return {name: _retention(values) for name, values in found.items()}


def _retention(values: Mapping[str, str | None]) -> Retention:
    milliseconds, size_bytes, policy = (values.get(key) for key in RETENTION_KEYS)
    return Retention(True, _bound(milliseconds), _bound(size_bytes), policy)


def _bound(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _ends(client: Client, names: list[str]) -> dict[TopicPartition, int]:
    """The end offsets of topics, of partitions that are led; none on a page of very many partitions."""
    there = {name: client.view.topics[TopicName(name)].partitions for name in names if name in client.view.topics}
    places = [_at(name, index) for name, found in there.items() for index, one in found.items() if one.leader >= 0]
    if not 0 < len(places) <= MOST_RATED:
        return {}
    try:
        return {one: found.offset for one, found in client.list_offsets(dict.fromkeys(places, LATEST)).items()}
    except ClientError:
        return {}  # A page of topics is there without its rates.


def _rates(
    client: Client, rates: Rates, names: list[str], ends_of: Mapping[TopicPartition, int], sizes: list[LogDirRow]
) -> dict[str, Rate]:
    """Rates of topics up to now, of those of which all ends are known."""
    there = {name: client.view.topics[TopicName(name)].partitions for name in names if name in client.view.topics}
    leaders = {(name, index): one.leader for name, partitions in there.items() for index, one in partitions.items()}
    copies: Counter[str] = Counter()
    for one in sizes:
        if leaders.get((TopicName(one.topic), one.partition)) == one.broker_id:
            copies[one.topic] += one.size_bytes
    found = {}
    for name, partitions in there.items():
        ends = {at: ends_of[at] for index in partitions if (at := _at(name, index)) in ends_of}
        if len(ends) == len(partitions) > 0:
            found[str(name)] = rates.look(name, ends, copies.get(name))
    return found


def read_one(client: Client, asked: Asked) -> Mapping[str, Any]:
    """One topic: offsets and replicas of its partitions, and the keys that are not at their defaults."""
    query = asked.query
    name = query.needed("name")
    (described,) = describe_topics(client, [name], offsets=False)
    led = [_at(name, one.partition) for one in described.partitions if one.leader is not None]
    bounds, unanswered = bounds_of(client, led)
    first = client.list_offsets(dict.fromkeys(bounds, EARLIEST))
    rows = [
        replace(one, earliest=first[at].offset, latest=bounds[at].end_offset)
        if (at := _at(name, one.partition)) in bounds
        else one
        for one in described.partitions
    ]
    found = one_page(rows, query.number("page", 1, 1))
    sizes, silent = _sizes(client, [name])
    ends = {at: one.end_offset for at, one in bounds.items()}
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
        "rate": _rates(client, asked.rates, [name], ends, sizes).get(name, Rate()),
        "retention": _retention({config.name: config.value for config in configs}) if configs else Retention(),
        "topic": described.topic,
        "partitions": found,
        "offsets": sum((row.latest or 0) - (row.earliest or 0) for row in rows),
        "size_bytes": sum(one.size_bytes for one in sizes),
        "configs": configs if query.flag("all_configs") else [config for config in configs if not config.is_default],
        "all_configs": query.flag("all_configs"),
        "unanswered": [*map(str, unanswered), *silent],
    }


def _at(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)
