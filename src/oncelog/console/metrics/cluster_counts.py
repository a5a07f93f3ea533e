"""The state of any cluster as numbers that its protocol tells: rates, lags, partitions that lack something.

A sample asks for the metadata of all topics, for both ends of all partitions (ListOffsets, both isolations), for groups
with what some of them have committed, and for the transactions under way. Rates come from two samples. The partitions
are gone through in slices, so that memory does not grow with the cluster by more than an offset each.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from oncelog.admin.groups import list_groups
from oncelog.admin.transactions.partition_offsets import bounds_of
from oncelog.admin.transactions.transactional_ids import ListFilter, list_transactions
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.client.machine.metadata import TopicInfo
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import committed_offsets
from oncelog.console.metrics.history import Key

SLICE: Final = 2000
MOST_TOPICS: Final = 40
"""Topics whose rate is kept of a sample, the busiest; the total is that of all."""
MOST_GROUPS: Final = 30
"""Groups whose offsets are asked for, those with members first."""
UNDER_WAY: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
_UNKNOWN: Final = -1
Ends: TypeAlias = "dict[TopicName, array[int]]"
"""End offsets by topic and index of the partition; −1 where nobody told."""


@dataclass(slots=True)
class ClusterCounts:
    """A sample. ``answer_s`` is the time the metadata of all topics took, as a measure of the cluster's answers."""

    at_s: float
    ends: Ends
    values: dict[Key, float] = field(default_factory=dict)
    unanswered: list[str] = field(default_factory=list)
    answer_s: float = 0.0


def sample(client: Client, clock_s: float) -> ClusterCounts:
    """A sample of now. Raises ClientError where the cluster is away; parts that did not answer are named."""
    began = time.perf_counter()
    topics = client.metadata(None)
    found = ClusterCounts(clock_s, {}, answer_s=time.perf_counter() - began)
    found.values["answer", ""] = found.answer_s
    _take_replicas(topics.values(), found)
    _take_offsets(client, topics, found)
    _take_groups(client, found)
    listing = list_transactions(client, ListFilter(states=UNDER_WAY))
    found.unanswered += map(str, listing.unanswered)
    for state in UNDER_WAY if listing.answered else ():
        found.values["transactions", state] = sum(row.state == state for row in listing.rows)
    return found


def _take_replicas(topics: Iterable[TopicInfo], found: ClusterCounts) -> None:
    """Partitions that lack a leader, and those with replicas out of sync (without those a reassignment adds)."""
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    found.values["partitions", "without leader"] = sum(partition.leader < 0 for partition in partitions)
    found.values["partitions", "under-replicated"] = sum(
        len(partition.isr) < len(partition.replicas) for partition in partitions
    )


def _take_offsets(client: Client, topics: Mapping[TopicName, TopicInfo], found: ClusterCounts) -> None:
    """The ends of all partitions that are led, and how many offsets readers of committed records may not see."""
    held = worst = 0
    led = (
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index, one in topic.partitions.items()
        if one.leader >= 0
    )
    for piece in _pieces(led):
        bounds, unanswered = bounds_of(client, piece)
        found.unanswered += map(str, unanswered)
        for where, one in bounds.items():
            ends = found.ends.get(where.topic)
            if ends is None:
                ends = found.ends[where.topic] = array("q", [_UNKNOWN]) * len(topics[where.topic].partitions)
            if where.partition < len(ends):
                ends[where.partition] = one.end_offset
            held += one.held
            worst = max(worst, one.held)
    if found.ends:
        found.values["held", "all partitions"] = held
        found.values["held", "worst partition"] = worst


def _pieces(partitions: Iterator[TopicPartition]) -> Iterator[list[TopicPartition]]:
    while piece := list(itertools.islice(partitions, SLICE)):
        yield piece


def _take_groups(client: Client, found: ClusterCounts) -> None:
    """The lag of groups: of each, offsets that it has committed up to the ends of their partitions."""
    try:
        groups = sorted(
            list_groups(client), key=lambda list_group: (list_group.state in ("Empty", "Dead"), list_group.group)
        )
    except ClientError as error:
        found.unanswered.append(str(error))
        return
    found.values["groups", "all"] = len(groups)
    for one in groups[:MOST_GROUPS]:
        try:
            committed = committed_offsets(client, one.group)
        except ClientError as error:
            found.unanswered.append(f"group {one.group}: {error}")
            continue
        found.values["lag", one.group] = lag_of(committed, found.ends)
    if len(groups) > MOST_GROUPS:
        found.unanswered.append(f"{len(groups) - MOST_GROUPS} groups are not followed; {MOST_GROUPS} are the most")


def lag_of(committed: Mapping[TopicPartition, Committed], ends: Ends) -> int:
    """Offsets between what was committed and the ends that are known."""
    lag = 0
    for where, one in committed.items():
        known = ends.get(where.topic)
        if known is not None and where.partition < len(known) and known[where.partition] != _UNKNOWN:
            lag += max(0, known[where.partition] - one.offset)
    return lag


def rates(before: ClusterCounts, now: ClusterCounts) -> dict[Key, float]:
    """Offsets a second between two samples, of all topics and of the busiest. A partition that was created again, or
    that one of the samples lacks, counts nothing."""
    seconds = now.at_s - before.at_s
    if seconds <= 0:
        return {}
    by_topic: dict[str, int] = {}
    for topic, ends in now.ends.items():
        known = before.ends.get(topic)
        if known is None or known == ends:
            continue
        added = sum(
            new - old
            for new, old in zip(ends, known, strict=False)
            if old != _UNKNOWN and new != _UNKNOWN and new > old
        )
        if added:
            by_topic[topic] = added
    found: dict[Key, float] = {("records", ""): sum(by_topic.values()) / seconds}
    busiest = sorted(by_topic, key=lambda one: -by_topic[one])[:MOST_TOPICS]
    return found | {("records", one): by_topic[one] / seconds for one in busiest}
