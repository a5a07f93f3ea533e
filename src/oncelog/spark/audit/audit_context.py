"""The context of all histories: totals of the logs, the time, the limits. Small, computed once, sent to every task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.base.ids import TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.base.transaction_verdicts import LATE_PADDING_MS
from oncelog.base.units import INT64_MAX
from oncelog.spark.audit.audit_plan import Plan
from oncelog.spark.audit.model import SegmentStat

DAY_MS: Final = 24 * 3600 * 1000
GRACE_MS: Final = LATE_PADDING_MS
"""Beyond a time-out before a transaction counts as late: KIP-664's padding."""
SKEW_MS: Final = 5 * 60 * 1000
DEFAULT_TRANSACTION_PARTITIONS: Final = 50


@dataclass(frozen=True, slots=True)
class Limits:
    """The cluster's settings that decide what is late; Apache Kafka's defaults."""

    transaction_max_timeout_ms: int = 15 * 60 * 1000
    producer_id_expiration_ms: int = DAY_MS
    transactional_id_expiration_ms: int = 7 * DAY_MS
    now_ms: int | None = None
    """The time by which things are late; None: the latest time that a broker has written."""
    skew_ms: int | None = None
    """Time between the copies of two logs, at most; None: five minutes, or nothing if all brokers were
    stopped."""
    transaction_partitions: int | None = None
    """Partitions of ``__transaction_state``; None: as a directory says, else Apache Kafka's default if that many are
    there."""


@dataclass(slots=True)
class PartitionContext:
    """A partition by its primary replica; ``start`` and ``end`` are the log's first and next offset."""

    primary: int
    start: int
    end: int
    cleaned: bool = False
    holes: list[tuple[int, int]] = field(default_factory=list)
    """(from offset, to offset) of each part that could not be read."""
    dense_since: int = -1
    """Time since which no record is missing; −1: none ever was."""
    first_timestamp: int = -1
    ends: dict[int, int] = field(default_factory=dict)
    """Next offset by replica."""
    damaged: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Holes by replica."""
    unindexed: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)
    """Replica → base offset, next offset and path of its segments without a transaction index."""

    @property
    def is_whole(self) -> bool:
        """True if no record is missing, by retention, compaction or damage."""
        return not self.cleaned and not self.start and not self.holes

    def damaged_between(self, replica: int, first: int, last: int) -> bool:
        """True if offsets from ``first`` to ``last`` could not all be read."""
        return any(start <= last and end >= first for start, end in self.damaged.get(replica, ()))

    def missing_between(self, replica: int, seen: int, following: int) -> bool:
        """True if batches may be missing after offset ``seen`` and before ``following``."""
        return any(start < following and end > seen + 1 for start, end in self.damaged.get(replica, ()))

    def unindexed_segment(self, replica: int, offset: int) -> tuple[int, int, str] | None:
        """The segment with ``offset``, if it has no transaction index."""
        return next((one for one in self.unindexed.get(replica, ()) if one[0] <= offset < one[1]), None)


@dataclass(frozen=True, slots=True)
class AuditContext:
    """The facts about all partitions that a history needs beside its own."""

    partitions: Mapping[TopicPartition, PartitionContext]
    now_ms: int
    limits: Limits = Limits()
    settled_ms: int = INT64_MAX
    """Events up to this time are in every log to which they belong, however the logs were copied. If later ones are
    missing, nothing follows from it."""
    transaction_partitions: int | None = None

    @property
    def coordinators(self) -> dict[int, PartitionContext]:
        """Partitions of ``__transaction_state``."""
        return {one.partition: value for one, value in self.partitions.items() if one.topic == TRANSACTION_STATE}

    @property
    def is_moving(self) -> bool:
        """True if files may be copies of different moments."""
        return self.settled_ms != INT64_MAX

    def is_settled(self, time_ms: int) -> bool:
        """True if events of that time must be in every log to which they belong."""
        return time_ms <= self.settled_ms

    def knows_coordinators(self) -> bool:
        """True if every coordinator's log is there and was read: then a producer in none of them has no coordinator."""
        found = self.coordinators
        number = self.transaction_partitions or DEFAULT_TRANSACTION_PARTITIONS
        all_here = len(found) == number and max(found) == number - 1
        return all_here and not any(one.holes for one in found.values())

    def complete_since(self, log_partition: int) -> int:
        """The time since which a coordinator's log has all decisions; −1: it has lost none."""
        one = self.coordinators.get(log_partition)
        return INT64_MAX if one is None or one.holes else one.dense_since


def context_of(plan: Plan, stats: Iterable[SegmentStat], limits: Limits, wall_ms: int) -> AuditContext:
    """The context by all segments' totals. ``wall_ms`` is the time of day: later times in logs do not count."""
    partitions = {
        partition: PartitionContext(place.replica, place.log_start, place.log_start, place.cleaned)
        for partition, place in plan.partitions.items()
    }
    ordered = sorted(stats, key=lambda one: (one.topic, one.partition, one.base_offset))
    for stat in ordered:
        one = partitions[TopicPartition(TopicName(stat.topic), stat.partition)]
        one.cleaned |= stat.has_holes
        if stat.damaged_from >= 0:
            one.damaged.setdefault(stat.replica, []).append((stat.damaged_from, stat.damaged_to))
        one.ends[stat.replica] = max(one.ends.get(stat.replica, 0), stat.next_offset)
        if not stat.has_transaction_index:
            segment = stat.base_offset, stat.next_offset, stat.path
            one.unindexed.setdefault(stat.replica, []).append(segment)
        if stat.replica != one.primary:
            continue
        one.end = max(one.end, stat.next_offset)
        if one.first_timestamp < 0:
            one.first_timestamp = stat.first_timestamp
        one.dense_since = max(one.dense_since, stat.dense_since)
    for one in partitions.values():
        one.holes = one.damaged.get(one.primary, [])
        if one.start > 0:
            one.dense_since = max(one.dense_since, one.first_timestamp, 0)
    now = _now(ordered, wall_ms) if limits.now_ms is None else limits.now_ms
    skew = skew_of(plan, limits)
    number = limits.transaction_partitions or plan.transaction_partitions
    return AuditContext(partitions, now, limits, now - skew if skew else INT64_MAX, number)


def skew_of(plan: Plan, limits: Limits) -> int:
    """Time between the copies of two files, at most, in milliseconds."""
    if limits.skew_ms is not None:
        return limits.skew_ms
    return 0 if plan.stopped else SKEW_MS


def _now(stats: Iterable[SegmentStat], wall_ms: int) -> int:
    """The latest time that a broker wrote. Clients' times count only if there is no broker's, and not
    beyond the last change of the file."""
    by_brokers = by_clients = 0
    for stat in stats:
        if stat.broker_timestamp <= wall_ms + DAY_MS:
            by_brokers = max(by_brokers, stat.broker_timestamp)
        by_clients = max(by_clients, min(stat.max_timestamp, stat.modified_ms))
    return by_brokers or by_clients
