"""Sets of offsets as sorted runs in two numpy arrays: 16 bytes a run, whatever the number of rows."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]
_LOWEST: Final = np.iinfo(np.int64).min // 2
_HIGHEST: Final = np.iinfo(np.int64).max // 2
_PENDING_RUNS: Final = 1 << 16


class Runs(NamedTuple):
    """Disjoint runs in order; both ends are inside."""

    starts: Offsets
    ends: Offsets

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> Runs:
        """From ranges in any order, which may overlap."""
        pairs = np.asarray(ranges, np.int64).reshape(-1, 2)
        return merged(pairs[:, 0], pairs[:, 1])[0]

    @property
    def size(self) -> int:
        return int((self.ends - self.starts + 1).sum())

    def ranges(self, most: int) -> list[tuple[int, int]]:
        """The first ``most`` runs."""
        return list(zip(self.starts[:most].tolist(), self.ends[:most].tolist(), strict=True))

    def within(self, other: Runs) -> Runs:
        """The offsets that both have."""
        low = np.searchsorted(other.ends, self.starts, "left")
        counts = np.maximum(np.searchsorted(other.starts, self.ends, "right") - low, 0)
        mine = np.repeat(np.arange(len(self.starts)), counts)
        first = np.cumsum(counts) - counts
        theirs = np.arange(len(mine)) - np.repeat(first, counts) + np.repeat(low, counts)
        starts = np.maximum(self.starts[mine], other.starts[theirs])
        return Runs(starts, np.minimum(self.ends[mine], other.ends[theirs]))

    def without(self, other: Runs) -> Runs:
        """The offsets that ``other`` does not have."""
        starts = np.concatenate(([_LOWEST], other.ends + 1)).astype(np.int64)
        ends = np.concatenate((other.starts - 1, [_HIGHEST])).astype(np.int64)
        gaps = starts <= ends
        return self.within(Runs(starts[gaps], ends[gaps]))


EMPTY: Final = Runs(np.empty(0, np.int64), np.empty(0, np.int64))


def merged(starts: Offsets, ends: Offsets) -> tuple[Runs, Runs, int]:
    """Runs that may overlap as disjoint ones, the offsets that several have, and how many rows those are too many."""
    if not len(starts):
        return EMPTY, EMPTY, 0
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    again = starts[1:] <= reach[:-1]
    twice_starts, twice_ends = starts[1:][again], np.minimum(ends[1:], reach[:-1])[again]
    begins = np.concatenate(([True], starts[1:] > reach[:-1] + 1))
    first = np.flatnonzero(begins)
    runs = Runs(starts[first], np.maximum.reduceat(ends, first))
    if not len(twice_starts):
        return runs, EMPTY, 0
    surplus = int((twice_ends - twice_starts + 1).sum())
    return runs, merged(twice_starts, twice_ends)[0], surplus


class RunsBuilder:
    """Collects offsets in any order. Memory follows the number of runs, not of offsets."""

    def __init__(self) -> None:
        self._runs, self._twice = EMPTY, EMPTY
        self._pending: list[tuple[Offsets, Offsets]] = []
        self._pending_runs = 0
        self.rows = 0
        self.surplus = 0
        """Rows beyond the first of their offset."""

    def add(self, offsets: Offsets) -> None:
        ordered = np.sort(offsets)
        breaks = np.flatnonzero(np.diff(ordered) != 1)
        starts = ordered[np.concatenate(([0], breaks + 1))]
        ends = ordered[np.concatenate((breaks, [len(ordered) - 1]))]
        self.rows += len(ordered)
        self.add_runs(starts, ends)

    def add_runs(self, starts: Offsets, ends: Offsets) -> None:
        self._pending.append((starts, ends))
        self._pending_runs += len(starts)
        if self._pending_runs > max(_PENDING_RUNS, len(self._runs.starts)):
            self._merge()

    def build(self) -> tuple[Runs, Runs]:
        """All offsets, and those of more than one row."""
        self._merge()
        return self._runs, self._twice

    def _merge(self) -> None:
        if not self._pending:
            return
        starts, ends = (
            np.concatenate([kept, *(pair[side] for pair in self._pending)]) for side, kept in enumerate(self._runs)
        )
        self._runs, twice, surplus = merged(starts, ends)
        self.surplus += surplus
        self._twice = merged(*(np.concatenate(pair) for pair in zip(self._twice, twice, strict=True)))[0]
        self._pending, self._pending_runs = [], 0
