"""Offset ranges, their division among tasks, bounds on those of a batch query, limits of a micro-batch. Pure
arithmetic; the clock is an argument.

The rule: dividing never loses or repeats an offset; the parts of a range follow each other and add up to it.

Spark's own read limits can neither wait with a time-out nor be combined in Python, so ``latestOffset`` decides. Rules,
as in Spark's Kafka connector: a batch is held back while fewer offsets than the minimum wait *and* less than the delay
has passed since the last batch was admitted; the first batch is not held back; a batch that is admitted is cut to the
maximum.
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
    """The offsets that one task reads: from ``start`` (inclusive) to ``end`` (exclusive) of a partition.

    ``topic_id`` is the topic that was meant when this was planned, which may be hours ago; "" where it is not known.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition read."""
        return TopicPartition(TopicName(self.topic), self.partition)

    @property
    def size(self) -> int:
        """Number of offsets; there are at most as many records."""
        return self.end - self.start

    @property
    def most_rows(self) -> int | None:
        """The most rows that there can be, None if nothing is known of that."""
        return self.size

    def before(self, offset: int) -> OffsetRange:
        """The part below ``offset``."""
        return replace(self, end=offset)

    def since(self, offset: int) -> OffsetRange:
        """The part from ``offset`` on."""
        return replace(self, start=offset)

    def split(self, parts: int) -> list[OffsetRange]:
        """This range in ``parts`` even pieces (fewer when it is smaller than that)."""
        parts = max(1, min(parts, self.size))
        cuts = [self.start + self.size * part // parts for part in range(parts + 1)]
        return [replace(self, start=start, end=end) for start, end in pairwise(cuts)]


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]
) -> list[OffsetRange]:
    """A range per partition of ``end`` that has something to read, in order."""
    return [
        OffsetRange(*partition, start[partition], end[partition], topic_ids.get(partition.topic, ""))
        for partition in sorted(end)
        if end[partition] > start[partition]
    ]


def divide(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """``ranges`` in at least about ``min_partitions`` pieces, large ranges in more of them (as Spark's connector)."""
    pieces = list(ranges)
    if max_records_per_partition is not None:
        pieces = [piece for one in pieces for piece in one.split(-(-one.size // max_records_per_partition))]
    if min_partitions is not None and len(pieces) < min_partitions:
        total = sum(one.size for one in pieces)
        pieces = [piece for one in pieces for piece in one.split(round(min_partitions * one.size / total))]
    return pieces


Test = Callable[[int], bool]


@dataclass(slots=True)
class RangeBounds:
    """``first`` inclusive, ``end`` exclusive, ``from_ms`` since 1970. Without any nothing is left out."""

    first: int | None = None
    end: int | None = None
    from_ms: int | None = None
    partition_tests: tuple[Test, ...] = ()

    def narrowed(self, one: OffsetRange) -> OffsetRange | None:
        """The part of a range that is within the bounds; None if that is nothing."""
        if not all(test(one.partition) for test in self.partition_tests):
            return None
        start = one.start if self.first is None else max(one.start, self.first)
        end = one.end if self.end is None else min(one.end, self.end)
        return replace(one, start=start, end=end) if start < end else None

    def between(self, first: int | None, end: int | None) -> None:
        """Narrow the offsets further."""
        if first is not None:
            self.first = first if self.first is None else max(self.first, first)
        if end is not None:
            self.end = end if self.end is None else min(self.end, end)


@dataclass(slots=True)
class ReadLimits:
    """The limits of one query. ``None`` is no limit; times in milliseconds on any clock that does not go back."""

    min_offsets: int | None
    max_offsets: int | None
    max_delay_ms: int
    _admitted_ms: int | None = None

    def end_of_batch(
        self, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], now_ms: int
    ) -> Offsets | None:
        """The end of the next batch, None while it is held back. ``start`` has every partition of ``latest``."""
        if self.min_offsets is not None:
            waiting = sum(max(0, latest[partition] - start[partition]) for partition in latest)
            last = self._admitted_ms
            if waiting < self.min_offsets and last is not None and now_ms - last < self.max_delay_ms:
                return None
            self._admitted_ms = now_ms
        if self.max_offsets is None:
            return dict(latest)
        return limit_rows(start, latest, self.max_offsets)


def limit_rows(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows: int) -> Offsets:
    """``end`` moved back so that about ``rows`` offsets lie between, each partition by its share of the waiting
    offsets.

    A partition with anything to read advances by one offset at least, so that a small share does not starve.
    """
    waiting = {partition: max(0, end[partition] - start.get(partition, 0)) for partition in end}
    total = sum(waiting.values())
    if total <= rows:
        return dict(end)
    limited: Offsets = {}
    for partition, size in waiting.items():
        share = max(1, rows * size // total) if size else 0
        limited[partition] = start.get(partition, 0) + min(size, share) if size else end[partition]
    return limited
