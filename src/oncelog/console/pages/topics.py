"""Topic pages: a filtered and paged list, and one topic with its partitions, sizes and configuration."""

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
from oncelog.console.page import PageRequest
from oncelog.console.rendering import one_page

RETENTION_KEYS: Final = ("retention.ms", "retention.bytes", "cleanup.policy")
MAX_READERS: Final = 100
MAX_RATED: Final = 5000  # Rates are shown only on pages with at most this many partitions.


def read_all(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """Topics whose name contains the filter; sizes are requested only for the page shown."""
    query = page_request.query
    name_filter, internal = query.text("filter"), query.flag("internal")
    every = page_request.recent.get("topics", lambda: list_topics(client))
    rows = [
        topic for topic in every if name_filter.lower() in topic.name.lower() and (internal or not topic.is_internal)
    ]
    page = one_page(rows, query.number("page", 1, 1))
    sizes, unanswered = _sizes(client, [topic.name for topic in page["rows"]])
    by_topic: Counter[str] = Counter()
    for size in sizes:
        by_topic[size.topic] += size.size_bytes
    names = [topic.name for topic in page["rows"]]
    rates = _rates(client, page_request.rates, names, _ends(client, names), sizes)
    kept = _settings(client, names, unanswered)
    page["rows"] = [
        {name: getattr(topic, name) for name in topic.__slots__}
        | {"size_bytes": by_topic.get(topic.name), "rate": rates.get(topic.name, Rate())}
        | {"retention": kept.get(topic.name, Retention())}
        for topic in page["rows"]
    ]
    return {"topics": page, "filter": {"filter": name_filter, "internal": internal}, "unanswered": unanswered}


def _sizes(client: Client, names: list[str]) -> tuple[list[LogDirRow], list[str]]:
    """Sizes of all replicas; a broker's error does not fail the page."""
    if not names:
        return [], []
    try:
        now_ms, most_ms = client.system.now_ms(), client.config.metadata_max_age_ms
        ages = [client.view.age_ms(name, now_ms) for name in names]
        if any(age is None or age > most_ms for age in ages):
            client.metadata(names)  # This client may not know the topics yet.
        return describe_log_dirs(client, names, sorted(client.view.brokers)), []
    except BrokerRefused as error:
        return [], [str(error)]
    except ClientError as error:
        return [], [f"sizes: {error}"]


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of a topic; None if unlimited or unknown."""

    is_known: bool = False
    milliseconds: int | None = None
    size_bytes: int | None = None
    policy: str | None = None


def _settings(client: Client, names: list[str], unanswered: list[str]) -> dict[str, Retention]:
    if not names:
        return {}
    try:
        values_by_topic = values_by_name(client, ResourceType.TOPIC, names, RETENTION_KEYS)
    except ClientError as error:
        unanswered.append(f"retention: {error}")
        return {}
    return {name: _retention(values) for name, values in values_by_topic.items()}


def _retention(values: Mapping[str, str | None]) -> Retention:
    milliseconds, size_bytes, policy = (values.get(key) for key in RETENTION_KEYS)
    return Retention(True, _bound(milliseconds), _bound(size_bytes), policy)


def _bound(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _ends(client: Client, names: list[str]) -> dict[TopicPartition, int]:
    """The end offsets of partitions with a leader; empty for a page with very many partitions."""
    known_topics = {
        name: client.view.topics[TopicName(name)].partitions for name in names if name in client.view.topics
    }
    places = [
        _at(name, index) for name, infos in known_topics.items() for index, info in infos.items() if info.leader >= 0
    ]
    if not 0 < len(places) <= MAX_RATED:
        return {}
    try:
        return {place: listed.offset for place, listed in client.list_offsets(dict.fromkeys(places, LATEST)).items()}
    except ClientError:
        return {}  # The page is shown without rates.


def _rates(
    client: Client, rates: Rates, names: list[str], ends_of: Mapping[TopicPartition, int], sizes: list[LogDirRow]
) -> dict[str, Rate]:
    """The rates of topics whose end offsets are all known."""
    known_topics = {
        name: client.view.topics[TopicName(name)].partitions for name in names if name in client.view.topics
    }
    leaders = {
        (name, index): info.leader for name, partitions in known_topics.items() for index, info in partitions.items()
    }
    copies: Counter[str] = Counter()
    for replica in sizes:
        if leaders.get((TopicName(replica.topic), replica.partition)) == replica.broker_id:
            copies[replica.topic] += replica.size_bytes
    topic_rates = {}
    for name, partitions in known_topics.items():
        ends = {at: ends_of[at] for index in partitions if (at := _at(name, index)) in ends_of}
        if len(ends) == len(partitions) > 0:
            topic_rates[str(name)] = rates.observe(name, ends, copies.get(name))
    return topic_rates


def read_one(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """One topic: offsets and replicas of its partitions, and its non-default configuration."""
    query = page_request.query
    name = query.needed("name")
    (described,) = describe_topics(client, [name], offsets=False)
    led = [_at(name, partition.partition) for partition in described.partitions if partition.leader is not None]
    bounds, unanswered = bounds_of(client, led)
    first = client.list_offsets(dict.fromkeys(bounds, EARLIEST))
    rows = [
        replace(partition, earliest=first[at].offset, latest=bounds[at].end_offset)
        if (at := _at(name, partition.partition)) in bounds
        else partition
        for partition in described.partitions
    ]
    page = one_page(rows, query.number("page", 1, 1))
    sizes, silent = _sizes(client, [name])
    ends = {at: bound.end_offset for at, bound in bounds.items()}
    size = {(replica.partition, replica.broker_id): replica.size_bytes for replica in sizes}
    page["rows"] = [
        {key: getattr(partition, key) for key in partition.__slots__}
        | {
            "last_stable_offset": bounds[at].last_stable_offset
            if (at := _at(name, partition.partition)) in bounds
            else None,
            "size_bytes": None if partition.leader is None else size.get((partition.partition, partition.leader)),
        }
        for partition in page["rows"]
    ]
    try:
        configs = describe_configs(client, ResourceType.TOPIC, name)
    except BrokerRefused as error:
        configs, silent = [], [*silent, str(error)]
    return {
        "rate": _rates(client, page_request.rates, [name], ends, sizes).get(name, Rate()),
        "retention": _retention({config.name: config.value for config in configs}) if configs else Retention(),
        "topic": described.topic,
        "partitions": page,
        "offsets": sum((row.latest or 0) - (row.earliest or 0) for row in rows),
        "size_bytes": sum(replica.size_bytes for replica in sizes),
        "configs": configs if query.flag("all_configs") else [config for config in configs if not config.is_default],
        "all_configs": query.flag("all_configs"),
        "unanswered": [*map(str, unanswered), *silent],
        **_readers(name, page_request),
    }


def _readers(topic: str, page_request: PageRequest) -> dict[str, Any]:
    """The groups of a topic with their lag in it, the largest first, from the last diagnosis; None without one."""
    diagnosis = None if page_request.diagnoses is None else page_request.diagnoses.peek()
    if diagnosis is None:
        return {"readers": None, "all_readers": 0}
    rows: list[dict[str, Any]] = [
        {
            "group": group.group,
            "state": group.state,
            "members": group.members,
            "partitions": lag.partitions,
            "unknown": lag.unknown,
            "readable": lag.readable or (None if lag.unknown else 0),
            "lag": lag.lag or (None if lag.unknown else 0),
        }
        for group in diagnosis.report.groups
        if (lag := group.topics.get(topic)) is not None
    ]
    rows.sort(key=lambda row: (row["lag"] is not None, -(row["lag"] or 0), row["group"]))
    return {"readers": rows[:MAX_READERS], "all_readers": len(rows)}


def _at(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)
