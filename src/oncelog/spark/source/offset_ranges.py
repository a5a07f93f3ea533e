"""Offset ranges, their division among tasks, the bounds of a batch query, and the limits of a micro-batch.

Pure arithmetic; the clock is an argument. Limits apply as in Spark's Kafka connector: a batch is held back while fewer
offsets than the minimum are available *and* the maximum delay since the last admitted batch has not passed. The first
batch is not held back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from oncelog.base.ids import TopicName, TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """The offsets that one task reads, ``end`` exclusive. ``topic_id`` is that at planning time, maybe hours ago; "" if
    unknown."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(TopicName(self.topic), self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def max_rows(self) -> int | None:
        """Upper bound on the number of rows, or None if unknown."""
        return self.size

    def before(self, offset: int) -> OffsetRange:
        return replace(self, end=offset)

    def since(self, offset: int) -> OffsetRange:
        return replace(self, start=offset)

    def split(self, count: int) -> list[OffsetRange]:
        """Divide this range into ``count`` adjacent, even pieces, or fewer for a smaller range."""
        count = max(1, min(count, self.size))
        cuts = [self.start + self.size * index // count for index in range(count + 1)]
        return [replace(self, start=start, end=end) for start, end in pairwise(cuts)]


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]
) -> list[OffsetRange]:
    """The non-empty range of each partition of ``end``, sorted."""
    return [
        OffsetRange(*partition, start[partition], end[partition], topic_ids.get(partition.topic, ""))
        for partition in sorted(end)
        if end[partition] > start[partition]
    ]


def divide(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Divide ``ranges`` into about ``min_partitions`` pieces or more, as Spark's connector."""
    pieces = list(ranges)
    if max_records_per_partition is not None:
        pieces = [
            piece
            for offset_range in pieces
            for piece in offset_range.split(-(-offset_range.size // max_records_per_partition))
        ]
    if min_partitions is not None and len(pieces) < min_partitions:
        total = sum(piece.size for piece in pieces)
        pieces = [
            piece
            for offset_range in pieces
            for piece in offset_range.split(round(min_partitions * offset_range.size / total))
        ]
    return pieces


Test = Callable[[int], bool]


@dataclass(slots=True)
class RangeBounds:
    """Bounds on ranges: ``end`` is exclusive, ``from_ms`` since 1970; None does not restrict."""

    first: int | None = None
    end: int | None = None
    from_ms: int | None = None
    partition_tests: tuple[Test, ...] = ()

    def clip(self, offset_range: OffsetRange) -> OffsetRange | None:
        """The part of a range within the bounds; None if it is empty."""
        if not all(test(offset_range.partition) for test in self.partition_tests):
            return None
        start = offset_range.start if self.first is None else max(offset_range.start, self.first)
        end = offset_range.end if self.end is None else min(offset_range.end, self.end)
        return replace(offset_range, start=start, end=end) if start < end else None

    def restrict_offsets(self, first: int | None, end: int | None) -> None:
        if first is not None:
            self.first = first if self.first is None else max(self.first, first)
        if end is not None:
            self.end = end if self.end is None else min(self.end, end)


@dataclass(slots=True)
class ReadLimits:
    """The limits of one query; None: no limit. Times are milliseconds on a monotonic clock."""

    min_offsets: int | None
    max_offsets: int | None
    max_delay_ms: int
    _admitted_ms: int | None = None

    def end_of_batch(
        self, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], now_ms: int
    ) -> Offsets | None:
        """The end of the next batch, or None while it is held back. ``start`` has every partition of ``latest``."""
        if self.min_offsets is not None:
            available = sum(max(0, latest[partition] - start[partition]) for partition in latest)
            admitted_ms = self._admitted_ms
            # Spark's own read limits have no time-out and cannot be combined in Python.
            if available < self.min_offsets and admitted_ms is not None and now_ms - admitted_ms < self.max_delay_ms:
                return None
            self._admitted_ms = now_ms
        if self.max_offsets is None:
            return dict(latest)
        return limit_rows(start, latest, self.max_offsets)


def limit_rows(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows: int) -> Offsets:
    """Move ``end`` back so that about ``rows`` offsets remain, shared in proportion to the available offsets."""
    available = {partition: max(0, end[partition] - start.get(partition, 0)) for partition in end}
    total = sum(available.values())
    if total <= rows:
        return dict(end)
    limited: Offsets = {}
    for partition, size in available.items():
        # At least 1, so that a small partition does not starve.
        share = max(1, rows * size // total) if size else 0
        limited[partition] = start.get(partition, 0) + min(size, share) if size else end[partition]
    return limited
