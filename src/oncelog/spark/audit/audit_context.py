"""The context that the histories of all partitions share: log totals, the current time, limits.

It is computed once and sent to every task.
"""

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
# KIP-664 adds five minutes to a time-out before a transaction counts as late.
GRACE_MS: Final = LATE_PADDING_MS
SKEW_MS: Final = 5 * 60 * 1000
DEFAULT_TRANSACTION_PARTITIONS: Final = 50


@dataclass(frozen=True, slots=True)
class Limits:
    """The cluster settings that decide when a transaction is late. The defaults are Apache Kafka's."""

    transaction_max_timeout_ms: int = 15 * 60 * 1000
    producer_id_expiration_ms: int = DAY_MS
    transactional_id_expiration_ms: int = 7 * DAY_MS
    # The time that ages are measured against; None: the latest time written by a broker.
    now_ms: int | None = None
    # Longest time between the copies of two logs; None: five minutes, or 0 if every broker was stopped.
    skew_ms: int | None = None
    # Partitions of ``__transaction_state``; None: as a directory declares, else Apache Kafka's default if the highest
    # partition is present.
    transaction_partitions: int | None = None


@dataclass(slots=True)
class PartitionContext:
    """A partition as its primary replica has it; ``start`` and ``end`` are the log's first and next offset."""

    primary: int
    start: int
    end: int
    cleaned: bool = False
    # (from offset, to offset) of each unreadable part.
    holes: list[tuple[int, int]] = field(default_factory=list)
    # Time since which no record is missing; −1: none was ever missing.
    dense_since: int = -1
    first_timestamp: int = -1
    # Leader epochs and their first offsets.
    epochs: tuple[tuple[int, int], ...] = ()
    # Next offset by replica.
    ends: dict[int, int] = field(default_factory=dict)
    # Holes by replica.
    damaged: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    # Replica → base offset, next offset and path of its segments that lack a transaction index.
    unindexed: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """True if neither retention, compaction nor damage removed a record."""
        return not self.cleaned and not self.start and not self.holes

    def election_after(self, offset: int) -> str:
        # As a clause; "" without one.
        later = [(start, epoch) for epoch, start in self.epochs if start > offset]
        if not later:
            return ""
        start, epoch = min(later)
        return f"leader epoch {epoch} began at offset {start}, after its records"

    def damaged_between(self, replica: int, first: int, last: int) -> bool:
        return any(start <= last and end >= first for start, end in self.damaged.get(replica, ()))

    def missing_between(self, replica: int, seen: int, following: int) -> bool:
        return any(start < following and end > seen + 1 for start, end in self.damaged.get(replica, ()))

    def unindexed_segment(self, replica: int, offset: int) -> tuple[int, int, str] | None:
        """The segment that contains ``offset``, if it has no transaction index."""
        return next((segment for segment in self.unindexed.get(replica, ()) if segment[0] <= offset < segment[1]), None)


@dataclass(frozen=True, slots=True)
class AuditContext:
    partitions: Mapping[TopicPartition, PartitionContext]
    now_ms: int
    limits: Limits = Limits()
    # Every log holds all its events up to this time, however the logs were copied. A later event that is missing proves
    # nothing.
    settled_ms: int = INT64_MAX
    transaction_partitions: int | None = None

    @property
    def coordinators(self) -> dict[int, PartitionContext]:
        return {
            partition.partition: context
            for partition, context in self.partitions.items()
            if partition.topic == TRANSACTION_STATE
        }

    @property
    def is_moving(self) -> bool:
        """True if the files may have been copied at different moments."""
        return self.settled_ms != INT64_MAX

    def is_settled(self, time_ms: int) -> bool:
        """True if every log must already hold its events of that time."""
        return time_ms <= self.settled_ms

    def has_all_coordinators(self) -> bool:
        """True if every coordinator's log is present, without unreadable parts. A producer in none of them has no
        coordinator."""
        coordinators = self.coordinators
        expected = self.transaction_partitions or DEFAULT_TRANSACTION_PARTITIONS
        all_here = len(coordinators) == expected and max(coordinators) == expected - 1
        return all_here and not any(context.holes for context in coordinators.values())

    def complete_since(self, log_partition: int) -> int:
        """Time since which a coordinator's log has every decision.

        −1: it never lost one. INT64_MAX: the log is missing or partly unreadable.
        """
        context = self.coordinators.get(log_partition)
        return INT64_MAX if context is None or context.holes else context.dense_since


def context_of(plan: Plan, stats: Iterable[SegmentStat], limits: Limits, wall_ms: int) -> AuditContext:
    """Build the context from segment totals. Broker timestamps more than a day after ``wall_ms`` do not count."""
    partitions = {
        partition: PartitionContext(place.replica, place.log_start, place.log_start, place.cleaned, epochs=place.epochs)
        for partition, place in plan.partitions.items()
    }
    # first_timestamp is taken from the first segment, so the order matters.
    ordered = sorted(stats, key=lambda stat: (stat.topic, stat.partition, stat.base_offset))
    for stat in ordered:
        partition = partitions[TopicPartition(TopicName(stat.topic), stat.partition)]
        partition.cleaned |= stat.has_holes
        if stat.damaged_from >= 0:
            partition.damaged.setdefault(stat.replica, []).append((stat.damaged_from, stat.damaged_to))
        partition.ends[stat.replica] = max(partition.ends.get(stat.replica, 0), stat.next_offset)
        if not stat.has_transaction_index:
            segment = stat.base_offset, stat.next_offset, stat.path
            partition.unindexed.setdefault(stat.replica, []).append(segment)
        if stat.replica != partition.primary:
            continue
        partition.end = max(partition.end, stat.next_offset)
        if partition.first_timestamp < 0:
            partition.first_timestamp = stat.first_timestamp
        partition.dense_since = max(partition.dense_since, stat.dense_since)
    for partition in partitions.values():
        partition.holes = partition.damaged.get(partition.primary, [])
        if partition.start > 0:
            partition.dense_since = max(partition.dense_since, partition.first_timestamp, 0)
    now = _now(ordered, wall_ms) if limits.now_ms is None else limits.now_ms
    skew = skew_of(plan, limits)
    transaction_partitions = limits.transaction_partitions or plan.transaction_partitions
    return AuditContext(partitions, now, limits, now - skew if skew else INT64_MAX, transaction_partitions)


def skew_of(plan: Plan, limits: Limits) -> int:
    """Longest time between the copies of two files, in milliseconds."""
    # An explicit limit overrides the guess.
    if limits.skew_ms is not None:
        return limits.skew_ms
    return 0 if plan.stopped else SKEW_MS


def _now(stats: Iterable[SegmentStat], wall_ms: int) -> int:
    """The latest time written by a broker, or by a client if no broker wrote one."""
    by_brokers = by_clients = 0
    for stat in stats:
        if stat.broker_timestamp <= wall_ms + DAY_MS:
            by_brokers = max(by_brokers, stat.broker_timestamp)
        # A client's clock can be wrong: the file cannot hold a record written after its last change.
        by_clients = max(by_clients, min(stat.max_timestamp, stat.modified_ms))
    return by_brokers or by_clients
