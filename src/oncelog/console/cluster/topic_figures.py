"""Numbers of topics that their metadata does not have: records, the last write, sizes, rates and skews."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.cluster import LogDirRow, describe_log_dirs
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import EARLIEST, LATEST, MAX_TIMESTAMP, Client
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.metadata import PartitionInfo
from oncelog.console.cluster.rates import Rate, Rates

MAX_PARTITIONS: Final = 5000  # Offsets are requested for at most this many partitions.
SLICE_PARTITIONS: Final = 1000
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """``records`` counts offsets between first and end, markers and compacted records included; ``skew`` is the largest
    partition's share of them by the mean. ``leader_skew``: the partitions of the broker that leads most, by the mean.
    None if unknown, or if there is nothing to compare.
    """

    records: int | None = None
    last_write_ms: int | None = None
    size_bytes: int | None = None
    rate: Rate = field(default_factory=Rate)
    skew: float | None = None
    leader_skew: float | None = None


def read_figures(client: Client, names: Sequence[str], rates: Rates) -> tuple[dict[str, TopicFigures], list[str]]:
    """The figures of topics, and sentences about those that could not be read."""
    if not names:
        return {}, []
    sizes, unanswered = sizes_of(client, names)
    ends, starts, writes = (_offsets(client, names, time, unanswered) for time in (LATEST, EARLIEST, MAX_TIMESTAMP))
    observed = observed_rates(client, rates, names, ends, sizes)
    by_topic: Counter[str] = Counter()
    for size in sizes:
        by_topic[size.topic] += size.size_bytes
    figures = {}
    for name in names:
        partitions = _partitions(client, name)
        places = [place(name, index) for index in partitions]
        counts = [ends[at] - starts[at] for at in places if at in ends and at in starts]
        last_write_ms = max((writes.get(at, -1) for at in places), default=-1)
        figures[name] = TopicFigures(
            sum(counts) if len(counts) == len(partitions) > 0 else None,
            last_write_ms if last_write_ms >= 0 else None,
            by_topic.get(name),
            observed.get(name, Rate()),
            _skew(counts, len(counts)),
            leader_skew(partitions.values(), len(client.view.brokers)),
        )
    return figures, unanswered


def read_all_figures(client: Client, rates: Rates) -> dict[str, TopicFigures]:
    """The figures of all topics in the client's view, in slices."""
    figures: dict[str, TopicFigures] = {}
    names: list[str] = []
    partitions = 0
    for topic, info in [*client.view.topics.items()]:
        if names and partitions + len(info.partitions) > SLICE_PARTITIONS:
            figures |= read_figures(client, names, rates)[0]
            names, partitions = [], 0
        names.append(topic)
        partitions += len(info.partitions)
    return figures | read_figures(client, names, rates)[0]


def leader_skew(partitions: Iterable[PartitionInfo], brokers: int) -> float | None:
    leaders = Counter(info.leader for info in partitions if info.leader >= 0)
    return _skew([*leaders.values()], min(brokers, leaders.total()))


def _skew(counts: Sequence[int], shares: int) -> float | None:
    """The largest by the mean of so many equal shares; None without anything to share."""
    return max(counts) * shares / sum(counts) if shares > 1 and sum(counts) > 0 else None


def sizes_of(client: Client, names: Sequence[str]) -> tuple[list[LogDirRow], list[str]]:
    """Sizes of all replicas; a broker's error does not fail the page."""
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


def observed_rates(
    client: Client, rates: Rates, names: Sequence[str], ends_of: Mapping[TopicPartition, int], sizes: list[LogDirRow]
) -> dict[str, Rate]:
    """The rates, since earlier views, of topics whose end offsets are all known."""
    known_topics = {name: _partitions(client, name) for name in names}
    leaders = {
        (name, index): info.leader for name, partitions in known_topics.items() for index, info in partitions.items()
    }
    copies: Counter[str] = Counter()
    for replica in sizes:
        if leaders.get((replica.topic, replica.partition)) == replica.broker_id:
            copies[replica.topic] += replica.size_bytes
    topic_rates = {}
    for name, partitions in known_topics.items():
        ends = {at: ends_of[at] for index in partitions if (at := place(name, index)) in ends_of}
        if len(ends) == len(partitions) > 0:
            topic_rates[name] = rates.observe(name, ends, copies.get(name))
    return topic_rates


def place(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)


def _partitions(client: Client, topic: str) -> Mapping[int, PartitionInfo]:
    info = client.view.topics.get(TopicName(topic))
    return {} if info is None else info.partitions


def _offsets(client: Client, names: Sequence[str], time: int, unanswered: list[str]) -> Offsets:
    """The offsets of partitions with a leader, or for ``MAX_TIMESTAMP`` their times; empty for very many partitions."""
    led = [
        place(name, index) for name in names for index, info in _partitions(client, name).items() if info.leader >= 0
    ]
    if not 0 < len(led) <= MAX_PARTITIONS:
        return {}
    try:
        listed = client.list_offsets(dict.fromkeys(led, time))
    except ClientError as error:
        if time != MAX_TIMESTAMP:  # Brokers before 3.0 do not have it (KIP-734).
            unanswered.append(f"offsets: {error}")
        return {}
    return {at: offset.timestamp if time == MAX_TIMESTAMP else offset.offset for at, offset in listed.items()}
