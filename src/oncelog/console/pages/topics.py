"""Topic pages: a filtered and paged list, and one topic with its partitions, sizes and configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from oncelog.admin.configs import ResourceType, describe_configs, values_by_name
from oncelog.admin.topics import TopicRow, describe_topics, list_topics
from oncelog.admin.transactions.durations import duration_text
from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.client.blocking.client import EARLIEST, Client
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.console.cluster.rates import Rate
from oncelog.console.cluster.topic_figures import TopicFigures, observed_rates, place, read_figures, sizes_of
from oncelog.console.metrics.sampler import Sampler
from oncelog.console.page import PageRequest
from oncelog.console.rendering import one_page

RETENTION_KEYS: Final = ("retention.ms", "retention.bytes", "cleanup.policy")
MAX_READERS: Final = 100
MAX_SORTED: Final = 1000  # Partitions whose figures a page reads to sort by them; for more the sampler does.
FIGURES: Final = {
    "size": "size_bytes",
    "records": "records",
    "last write": "last_write_ms",
    "rate": "rate",
    "skew": "skew",
    "leaders": "leader_skew",
}
SORTS: Final = ("name", "partitions", "replicas", *FIGURES)
DOWN: Final = "down"
DIRECTIONS: Final = (DOWN, "up")


def read_all(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """Topics whose name contains the filter. Figures are requested for the page shown alone, unless it is sorted by
    one of them."""
    query, sampler = page_request.query, page_request.sampler
    name_filter, internal = query.text("filter"), query.flag("internal")
    sort, direction = query.choice("sort", SORTS), query.choice("direction", DIRECTIONS)
    every = page_request.recent.get("topics", lambda: list_topics(client))
    rows = [
        topic for topic in every if name_filter.lower() in topic.name.lower() and (internal or not topic.is_internal)
    ]
    figures, reason = _figures_to_sort(client, page_request, sort, rows)
    page = one_page(_sorted(rows, sort, direction, figures, sampler), query.number("page", 1, 1))
    names = [topic.name for topic in page["rows"]]
    shown, unanswered = read_figures(client, names, page_request.rates)
    kept = _settings(client, names, unanswered)
    page["rows"] = [
        {name: getattr(topic, name) for name in topic.__slots__}
        | {name: getattr(shown[topic.name], name) for name in TopicFigures.__slots__}
        | {"rate": shown[topic.name].rate if sampler is None else sampler.rate_of(topic.name, shown[topic.name].rate)}
        | {"retention": kept.get(topic.name, Retention())}
        for topic in page["rows"]
    ]
    return {
        "topics": page,
        "filter": {"filter": name_filter, "internal": internal, "sort": sort, "direction": direction},
        "has_skew": any(row["skew"] is not None for row in page["rows"]),
        "brokers": len(client.view.brokers),
        "unsorted": reason,
        "unanswered": unanswered,
    }


def _figures_to_sort(
    client: Client, page_request: PageRequest, sort: str, rows: list[TopicRow]
) -> tuple[Mapping[str, TopicFigures], str]:
    """The figures to sort by, if they are needed, or the reason why there are none."""
    sampler = page_request.sampler
    if sort not in FIGURES or (sort == "rate" and sampler is not None and sampler.topic_rates):
        return {}, ""
    if sum(topic.partitions for topic in rows) <= MAX_SORTED:
        return read_figures(client, [topic.name for topic in rows], page_request.rates)[0], ""
    if sampler is None:
        return {}, f"more than {MAX_SORTED} partitions are not sorted by {sort}: filter the topics by name"
    figures, age_s = sampler.figures()
    if figures is None:
        return {}, f"{sort} of all topics is read in the background; reload, or filter the topics by name"
    return figures, f"sorted by the {sort} of {duration_text(int(age_s * 1000))} ago"


def _sorted(
    rows: list[TopicRow], sort: str, direction: str, figures: Mapping[str, TopicFigures], sampler: Sampler | None
) -> list[TopicRow]:
    """The rows by a column; those without a value come last."""
    if sort == "name":
        return rows if direction == DOWN else rows[::-1]

    def value(topic: TopicRow) -> float | None:
        if sort in ("partitions", "replicas"):
            return topic.partitions if sort == "partitions" else topic.replication_factor
        figure = figures.get(topic.name, TopicFigures())
        if sort == "rate":
            return (figure.rate if sampler is None else sampler.rate_of(topic.name, figure.rate)).records_per_s
        return cast("float | None", getattr(figure, FIGURES[sort]))

    valued = [(number, topic) for topic in rows if (number := value(topic)) is not None]
    valued.sort(key=lambda item: item[0], reverse=direction == DOWN)
    names = {topic.name for _, topic in valued}
    return [topic for _, topic in valued] + [topic for topic in rows if topic.name not in names]


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


def read_one(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """One topic: offsets and replicas of its partitions, and its non-default configuration."""
    query = page_request.query
    name = query.needed("name")
    (described,) = describe_topics(client, [name], offsets=False)
    led = [place(name, partition.partition) for partition in described.partitions if partition.leader is not None]
    bounds, unanswered = bounds_of(client, led)
    first = client.list_offsets(dict.fromkeys(bounds, EARLIEST))
    rows = [
        replace(partition, earliest=first[at].offset, latest=bounds[at].end_offset)
        if (at := place(name, partition.partition)) in bounds
        else partition
        for partition in described.partitions
    ]
    page = one_page(rows, query.number("page", 1, 1))
    sizes, silent = sizes_of(client, [name])
    ends = {at: bound.end_offset for at, bound in bounds.items()}
    rate = observed_rates(client, page_request.rates, [name], ends, sizes).get(name, Rate())
    size = {(replica.partition, replica.broker_id): replica.size_bytes for replica in sizes}
    page["rows"] = [
        {key: getattr(partition, key) for key in partition.__slots__}
        | {
            "last_stable_offset": bounds[at].last_stable_offset
            if (at := place(name, partition.partition)) in bounds
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
        "rate": rate if page_request.sampler is None else page_request.sampler.rate_of(name, rate),
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
        return {"readers": None, "all_readers": 0, "live": True, "renew_s": 1}
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
