"""Bounds on the ranges of a batch query: which partitions, which offsets, from which time. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from oncelog.spark.source.offset_ranges import OffsetRange

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
