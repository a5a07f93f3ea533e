"""The segments of one log, in order of their base offsets; the last one is active."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from oncelog.base.invariant import invariant
from oncelog.storage.segment.segment import Segment


class Segments:
    """At least one segment once the log is open; base offsets rise strictly."""

    __slots__ = ("_bases", "_segments", "size_bytes")

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        self.size_bytes = sum(segment.size_bytes for segment in self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    def __contains__(self, segment: Segment) -> bool:
        index = bisect_left(self._bases, segment.base_offset)
        return index < len(self._segments) and self._segments[index] is segment

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    def floor(self, offset: int) -> int:
        """Index of the segment that holds ``offset``, or would; −1 if it lies before the first."""
        if offset >= self._bases[-1]:
            return len(self._bases) - 1
        return bisect_right(self._bases, offset) - 1

    def sealed(self) -> list[Segment]:
        return self._segments[:-1]

    def end_of(self, index: int, log_end_offset: int) -> int:
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset

    def add(self, segment: Segment) -> None:
        invariant(not self._bases or segment.base_offset > self._bases[-1], "segment does not follow", new=segment)
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.size_bytes += segment.size_bytes

    def remove(self, segments: Sequence[Segment]) -> None:
        """Remove segments from the list; their files stay."""
        for segment in segments:
            index = bisect_left(self._bases, segment.base_offset)
            invariant(self._segments[index] is segment, "segment is not in the log", segment=segment)
            del self._segments[index]
            del self._bases[index]
            self.size_bytes -= segment.size_bytes

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        self.remove(old)
        index = bisect_left(self._bases, new.base_offset)
        self._segments.insert(index, new)
        self._bases.insert(index, new.base_offset)
        self.size_bytes += new.size_bytes
