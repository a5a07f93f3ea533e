"""Maps a partition's offsets between source and target, for every offset, in both directions.

The map is a list of runs of records that are consecutive on both sides. Control records, aborted transactions and
compaction leave gaps at the source; the mirror's markers, aborted attempts and other writers at the target.
``position`` is the source offset up to which everything visible is copied; only gaps may lie between the last run and
it. An offset is "the next to read", as groups commit it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from oncelog.base.invariant import invariant
from oncelog.mirror.framing import Run


class MappedRun(NamedTuple):
    """``records`` records from ``source`` on are at the target from ``target`` on."""

    source: int
    target: int
    records: int


class OffsetMap:
    """The map of one partition; it grows only at its end."""

    def __init__(self, position: int, origin: MappedRun | None = None) -> None:
        """``origin`` is an empty run that says where the first record will be at the target."""
        self.position = position
        self._sources = array("q")
        self._targets = array("q")
        self._counts = array("q")
        if origin is not None:
            self._add(*origin)

    def __len__(self) -> int:
        return len(self._sources)

    def run(self, index: int) -> MappedRun:
        return MappedRun(self._sources[index], self._targets[index], self._counts[index])

    def runs(self, start: int = 0) -> Iterator[MappedRun]:
        for index in range(start, len(self)):
            yield self.run(index)

    def index_of(self, source: int) -> int:
        """The index of the run that holds a source offset, or of the last one before it."""
        return max(0, bisect_right(self._sources, source) - 1)

    @property
    def records(self) -> int:
        return sum(self._counts)

    @property
    def target_end(self) -> int | None:
        """The target offset behind the last record; None if unknown."""
        return self._targets[-1] + self._counts[-1] if self._targets else None

    def extend(self, runs: Iterable[MappedRun], position: int) -> None:
        for run in runs:
            self._add(*run)
        source_end = self._sources[-1] + self._counts[-1] if self._sources else 0
        invariant(position >= max(self.position, source_end), "a position before what was copied", position=position)
        self.position = position

    def to_target(self, offset: int) -> int | None:
        """The target offset to read next for a source offset; None if it is beyond ``position``."""
        # Records that the group has seen are still to be copied.
        if offset > self.position or not self._sources:
            return None
        return self._translated(offset, self._sources, self._targets)

    def to_source(self, offset: int) -> int | None:
        """The source offset to read next for a target offset; None if nothing was copied."""
        if not self._sources:
            return None
        return self._translated(offset, self._targets, self._sources)

    def drop_first(self, count: int) -> None:
        """Drop the first runs, whose records are no longer at the target."""
        for column in (self._sources, self._targets, self._counts):
            del column[:count]

    def _translated(self, offset: int, ours: array[int], theirs: array[int]) -> int:
        index = bisect_right(ours, offset) - 1
        # Before the first run: earlier records are not at the target.
        if index < 0:
            return theirs[0]
        past = offset - ours[index]
        if past < self._counts[index]:
            return theirs[index] + past
        # In a gap it is the next record, or the end of the last run if none follows yet: later copies come behind it,
        # whatever markers are in between. So no record is skipped or repeated.
        if index + 1 < len(ours):
            return theirs[index + 1]
        return theirs[index] + self._counts[index]

    def _add(self, source: int, target: int, count: int) -> None:
        if self._sources:
            source_end = self._sources[-1] + self._counts[-1]
            target_end = self._targets[-1] + self._counts[-1]
            invariant(source >= source_end and target >= target_end, "runs that do not rise", source=source)
            # A run that continues the last one extends it; an empty origin is replaced.
            if (source == source_end and target == target_end) or not self._counts[-1]:
                if not self._counts[-1]:
                    self._sources[-1], self._targets[-1] = source, target
                self._counts[-1] += count
                return
        self._sources.append(source)
        self._targets.append(target)
        self._counts.append(count)


def mapped(runs: Iterable[Run], base_offset: int) -> Iterator[MappedRun]:
    for run in runs:
        yield MappedRun(run.first, base_offset, run.records)
        base_offset += run.records
