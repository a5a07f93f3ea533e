"""What is known of the whole before any producer's history is told: small, computed once, sent to every task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.base.ids import TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.base.units import INT64_MAX
from oncelog.spark.audit.layout import Plan
from oncelog.spark.audit.model import SegmentStat

DAY_MS: Final = 24 * 3600 * 1000
GRACE_MS: Final = 5 * 60 * 1000
"""Beyond a time-out before a transaction counts as late: KIP-664's padding."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The cluster's settings that decide what is late; Apache Kafka's defaults."""

    transaction_max_timeout_ms: int = 15 * 60 * 1000
    producer_id_expiration_ms: int = DAY_MS
    transactional_id_expiration_ms: int = 7 * DAY_MS
    now_ms: int | None = None
    """The time by which things are late; None: the latest time that a broker has written."""


@dataclass(slots=True)
class PartitionContext:
    """One partition, by its primary replica; ``start`` and ``end`` are the log's first and next offset."""

    primary: int
    start: int
    end: int
    cleaned: bool = False
    holes: list[tuple[int, int]] = field(default_factory=list)
    """From offset, to offset: what could not be read."""
    dense_since: int = -1
    """Time from which on nothing is missing; −1: nothing ever was."""
    first_timestamp: int = -1
    damaged: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Holes by replica."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing: neither by retention nor by compaction nor by damage."""
        return not self.cleaned and not self.start and not self.holes

    def damaged_between(self, replica: int, first: int, last: int) -> bool:
        """Whether something could not be read from offset ``first`` to ``last``."""
        return any(start <= last and end >= first for start, end in self.damaged.get(replica, ()))


@dataclass(frozen=True, slots=True)
class AuditContext:
    """Everything that a history is told beside its own facts."""

    partitions: Mapping[TopicPartition, PartitionContext]
    now_ms: int
    limits: Limits = Limits()

    @property
    def coordinators(self) -> dict[int, PartitionContext]:
        """Partitions of ``__transaction_state``."""
        return {one.partition: value for one, value in self.partitions.items() if one.topic == TRANSACTION_STATE}

    def knows_coordinators(self) -> bool:
        """Whether every coordinator's log is there and could be read: then who is in none of them is nobody's."""
        found = self.coordinators
        return bool(found) and set(found) == set(range(max(found) + 1)) and not any(one.holes for one in found.values())

    def complete_since(self, log_partition: int) -> int:
        """The time since when a coordinator's log has all decisions; −1: since ever."""
        one = self.coordinators.get(log_partition)
        return INT64_MAX if one is None or one.holes else one.dense_since


def context_of(plan: Plan, stats: Iterable[SegmentStat], limits: Limits, wall_ms: int) -> AuditContext:
    """From all segments' totals; ``wall_ms`` is the time of day, which no time in a log is believed to be after."""
    partitions = {
        partition: PartitionContext(place.replica, place.log_start, place.log_start, place.cleaned)
        for partition, place in plan.partitions.items()
    }
    latest = 0
    latest_of_brokers = 0
    for stat in sorted(stats, key=lambda one: (one.topic, one.partition, one.base_offset)):
        one = partitions[TopicPartition(TopicName(stat.topic), stat.partition)]
        one.cleaned |= stat.has_holes
        if stat.damaged_from >= 0:
            one.damaged.setdefault(stat.replica, []).append((stat.damaged_from, stat.damaged_to))
        if stat.max_timestamp <= wall_ms + DAY_MS:
            latest = max(latest, stat.max_timestamp)
        if stat.marker_timestamp <= wall_ms + DAY_MS:
            latest_of_brokers = max(latest_of_brokers, stat.marker_timestamp)
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
    now = limits.now_ms if limits.now_ms is not None else max(latest, latest_of_brokers)
    return AuditContext(partitions, now, limits)
