"""A sample of any cluster's state through the protocol: rates, lags, and partitions with problems.

A sample requests the metadata of all topics, both ends of all partitions (ListOffsets, both isolation levels), the
groups with their committed offsets, and the transactions under way. Rates need two samples. Partitions are
processed in slices, so memory grows with the cluster by only one offset per partition.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from oncelog.admin.explain.cluster_groups import read_groups
from oncelog.admin.explain.share_groups.bulk import read_share_groups
from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.admin.transactions.transactional_ids import ListFilter, list_transactions
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.machine.metadata import TopicInfo
from oncelog.console.metrics.history import Key

SLICE: Final = 2000
MAX_TOPICS: Final = 40  # The busiest topics keep their rates; the total covers all topics.
UNDER_WAY: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
_UNKNOWN: Final = -1
Ends: TypeAlias = "dict[TopicName, array[int]]"
"""End offsets by topic and partition; −1 if unknown."""


@dataclass(slots=True)
class ClusterCounts:
    """A sample. ``stable`` has last stable offsets, ``groups`` both lags. ``answer_s``, the time to fetch the metadata
    of all topics, measures how fast the cluster answers.
    """

    at_s: float
    ends: Ends
    stable: Ends = field(default_factory=dict)
    values: dict[Key, float] = field(default_factory=dict)
    groups: dict[Key, float] = field(default_factory=dict)
    unanswered: list[str] = field(default_factory=list)
    answer_s: float = 0.0


def sample(client: Client, clock_s: float) -> ClusterCounts:
    """Take a sample. Raises ClientError if the cluster is unreachable; parts that did not answer are in
    ``unanswered``."""
    began = time.perf_counter()
    topics = client.metadata(None)
    counts = ClusterCounts(clock_s, {}, answer_s=time.perf_counter() - began)
    counts.values["answer", ""] = counts.answer_s
    _count_replicas(topics.values(), counts)
    _read_offsets(client, topics, counts)
    _read_groups(client, counts)
    listing = list_transactions(client, ListFilter(states=UNDER_WAY))
    counts.unanswered += map(str, listing.unanswered)
    for state in UNDER_WAY if listing.answered else ():
        counts.values["transactions", state] = sum(row.state == state for row in listing.rows)
    return counts


def _count_replicas(topics: Iterable[TopicInfo], counts: ClusterCounts) -> None:
    """Count partitions without a leader and under-replicated ones, excluding replicas that a reassignment adds."""
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    counts.values["partitions", "without leader"] = sum(partition.leader < 0 for partition in partitions)
    counts.values["partitions", "under-replicated"] = sum(
        len(partition.isr) < len(partition.replicas) for partition in partitions
    )


def _read_offsets(client: Client, topics: Mapping[TopicName, TopicInfo], counts: ClusterCounts) -> None:
    """Read the ends of all partitions with a leader, and count the offsets hidden from read_committed consumers."""
    held = worst = 0
    led = (
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index, info in topic.partitions.items()
        if info.leader >= 0
    )
    for piece in _pieces(led):
        bounds, unanswered = bounds_of(client, piece)
        counts.unanswered += map(str, unanswered)
        for partition, info in bounds.items():
            size = len(topics[partition.topic].partitions)
            for offsets, offset in ((counts.ends, info.end_offset), (counts.stable, info.last_stable_offset)):
                if partition.topic not in offsets:
                    offsets[partition.topic] = array("q", [_UNKNOWN]) * size
                if partition.partition < size:
                    offsets[partition.topic][partition.partition] = offset
            held += info.held
            worst = max(worst, info.held)
    if counts.ends:
        counts.values["held", "all partitions"] = held
        counts.values["held", "worst partition"] = worst


def _pieces(partitions: Iterator[TopicPartition]) -> Iterator[list[TopicPartition]]:
    while piece := list(itertools.islice(partitions, SLICE)):
        yield piece


def _read_groups(client: Client, counts: ClusterCounts) -> None:
    """Compute both lags of each group: the offsets from its commits to the ends, and to the last stable offsets. Of a
    share group there is one: the offsets whose delivery is not complete."""
    groups = read_groups(client)
    counts.unanswered += map(str, (*groups.coordinators, *groups.unanswered))
    counts.values["groups", "all"] = groups.total
    for name, committed in groups.committed.items():
        # Without a commit the lag is unknown, not 0.
        if committed:
            counts.groups["lag", name] = lag_of(committed, counts.ends)
            counts.groups["readable", name] = lag_of(committed, counts.stable)
    if groups.share:
        share = read_share_groups(client, groups.share, {})
        counts.unanswered += map(str, share.unanswered)
        for name, rows in share.offsets.items():
            if any(row.lag is not None for row in rows):
                counts.groups["lag", name] = share.lag(name)


def lag_of(committed: Mapping[TopicPartition, int], ends: Ends) -> int:
    lag = 0
    for (topic, partition), offset in committed.items():
        topic_ends = ends.get(topic)
        if topic_ends is not None and partition < len(topic_ends) and topic_ends[partition] != _UNKNOWN:
            lag += max(0, topic_ends[partition] - offset)
    return lag


def topic_rates(before: ClusterCounts, now: ClusterCounts) -> dict[str, float]:
    """Offsets per second of each topic between two samples.

    A partition that is missing from one of the samples does not count, and neither does a topic that was recreated.
    """
    seconds = now.at_s - before.at_s
    if seconds <= 0:
        return {}
    by_topic: dict[str, float] = {}
    for topic, ends in now.ends.items():
        earlier = before.ends.get(topic)
        if earlier is None:
            continue
        if earlier == ends:
            by_topic[topic] = 0.0
            continue
        both = [pair for pair in zip(earlier, ends, strict=False) if _UNKNOWN not in pair]
        if all(old <= new for old, new in both):
            by_topic[topic] = sum(new - old for old, new in both) / seconds
    return by_topic


def rates(by_topic: Mapping[str, float]) -> dict[Key, float]:
    """Offsets per second in total, and of the busiest topics."""
    if not by_topic:
        return {}
    busiest = sorted((topic for topic in by_topic if by_topic[topic]), key=lambda topic: -by_topic[topic])[:MAX_TOPICS]
    total = {("records", ""): sum(by_topic.values())}
    return total | {("records", topic): by_topic[topic] for topic in busiest}
