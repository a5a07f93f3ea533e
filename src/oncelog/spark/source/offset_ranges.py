"""Offset ranges, their division among tasks, and bounds on those of a batch query. Pure arithmetic.

The rule: dividing never loses or repeats an offset; the parts of a range follow each other and add up to it.
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
