"""The window of records in flight: from the start offset, before which all is done, to the end, the last acquired one.

Compaction and the loss of an unfinished acquisition leave gaps between batches. The first are empty; those of the
*gap range*, which a new leader finds in the state that it loads, may hold records that were never acquired.

Invariants:
1. Batches are in order and do not overlap.
2. The start offset never falls.
3. ``terminal_count`` is the number of terminal records at or after the start offset.
4. Without batches the end is the start offset: the next one to fetch. With batches it is the last one of the window, or
   the start offset once the log's start has passed it.
5. ``may_have_available`` is True if a record is available or the gap range is active. No record before
   ``available_from`` is available.
6. No available record lies below the start offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from oncelog.base.ids import Offset
from oncelog.base.invariant import invariant
from oncelog.core.share.errors import InvalidShareState
from oncelog.core.share.in_flight import InFlightBatch, Run
from oncelog.core.share.model import RecordState, StateBatch

_STATES: Final = frozenset(RecordState)


class GapRange:
    """From ``start_offset``, where the first gap is, to the end of the window at its load. Active until the window
    grows past that end."""

    __slots__ = ("end_offset", "start_offset")

    def __init__(self, start_offset: Offset, end_offset: Offset) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset


class Window:
    __slots__ = (
        "_firsts",
        "available_from",
        "batches",
        "end_offset",
        "gaps",
        "may_have_available",
        "start_offset",
        "terminal_count",
    )

    def __init__(self, start_offset: Offset) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.batches: list[InFlightBatch] = []
        self._firsts: list[Offset] = []
        self.terminal_count = 0
        self.may_have_available = False
        self.available_from = start_offset
        self.gaps: GapRange | None = None

    def load(self, batches: Iterable[StateBatch]) -> None:
        """Take the batches of a persisted state. Raises InvalidShareState."""
        gap_start: Offset | None = None
        previous_last = Offset(self.start_offset - 1)
        for first, last, state, delivery_count in batches:
            # An overlap would let two batches decide about one record.
            if first <= previous_last or last < first:
                raise InvalidShareState(f"batch {first} to {last} after offset {previous_last}")
            if gap_start is None and first > previous_last + 1:
                gap_start = Offset(previous_last + 1)
            previous_last = Offset(last)
            if state not in _STATES:
                raise InvalidShareState(f"batch {first} to {last} in the unknown state {state}")
            run = Run(Offset(first), Offset(last), RecordState(state), delivery_count)
            self.put(InFlightBatch(run))
            if run.state.is_terminal:
                self.terminal_count += run.count
        if self.batches:
            self.may_have_available = True
            self.end_offset = previous_last
            if gap_start is not None:
                self.gaps = GapRange(gap_start, self.end_offset)

    def made_available(self, run: Run) -> None:
        self.may_have_available = True
        self.available_from = min(self.available_from, run.first_offset)

    @property
    def in_flight_records(self) -> int:
        """The size of the window, including gaps and records that are done but not at its start."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def active_gaps(self) -> GapRange | None:
        gaps = self.gaps
        return gaps if gaps is not None and gaps.end_offset == self.end_offset else None

    def skip_gaps(self, offset: Offset) -> None:
        """Everything below ``offset`` is in flight, done, or without records."""
        gaps = self.active_gaps
        if gaps is None:
            self.gaps = None
            return
        gaps.start_offset = max(gaps.start_offset, offset)
        while (batch := self.floor(gaps.start_offset)) is not None and batch.last_offset >= gaps.start_offset:
            gaps.start_offset = Offset(batch.last_offset + 1)
        if gaps.start_offset > self.end_offset:
            self.gaps = None

    def skip_compacted(self, fetch_offset: Offset, base_offset: Offset) -> None:
        """The log has no records from ``fetch_offset`` to before ``base_offset``."""
        gaps = self.active_gaps
        if gaps is not None and fetch_offset <= gaps.start_offset < base_offset:
            self.skip_gaps(base_offset)

    def put(self, batch: InFlightBatch) -> None:
        index = bisect_left(self._firsts, batch.first_offset)
        invariant(
            (index == 0 or self.batches[index - 1].last_offset < batch.first_offset)
            and (index == len(self.batches) or self._firsts[index] > batch.last_offset),
            "batches in flight overlap",
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
        )
        self._firsts.insert(index, batch.first_offset)
        self.batches.insert(index, batch)

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that starts at or before ``offset``."""
        index = bisect_right(self._firsts, offset)
        return self.batches[index - 1] if index else None

    def starting_in(self, first_offset: int, last_offset: int) -> Sequence[InFlightBatch]:
        """The batches whose first offset is between the two, which are inclusive."""
        firsts = self._firsts
        return self.batches[bisect_left(firsts, first_offset) : bisect_right(firsts, last_offset)]

    def overlapping(self, first_offset: int, last_offset: int) -> Sequence[InFlightBatch]:
        floor = self.floor(first_offset)
        if floor is not None and floor.last_offset >= first_offset:
            return self.starting_in(floor.first_offset, last_offset)
        return self.starting_in(first_offset, last_offset)

    def remove_first(self, count: int) -> None:
        del self._firsts[:count]
        del self.batches[:count]

    def next_fetch_offset(self) -> Offset:
        """The first offset that can be acquired: available, in a gap of the loaded state, or after the window."""
        if not self.batches or self.start_offset > self.batches[-1].last_offset:
            self.may_have_available = False
            return self.end_offset
        if self.may_have_available:
            offset = self._first_available()
            if offset is not None:
                return offset
            self.may_have_available = False
            self.available_from = Offset(self.end_offset + 1)
        return Offset(self.end_offset + 1)

    def _first_available(self) -> Offset | None:
        gaps = self.active_gaps
        gap_start = -1 if gaps is None else gaps.start_offset
        first = self.available_from
        # With gaps the batches before it say where the first gap is.
        for batch in self.batches if gaps is not None else self.overlapping(first, self.end_offset):
            if gaps is not None:
                if batch.first_offset > gap_start:
                    return Offset(gap_start)
                gap_start = max(gap_start, batch.last_offset + 1)
            for run in batch.runs_in(first, batch.last_offset):
                if run.is_available:
                    self.available_from = run.first_offset
                    return run.first_offset
        return None

    def check(self) -> None:
        """Raises InvariantViolation unless the invariants hold."""
        check_window(self)


def check_window(window: Window) -> None:
    previous = -1
    terminal = 0
    for batch in window.batches:
        invariant(batch.first_offset > previous, "batches overlap", first_offset=batch.first_offset)
        previous = batch.last_offset
        invariant(batch.is_split or len(batch.runs) == 1, "a whole batch has several runs")
        next_offset = int(batch.first_offset)
        for run in batch.runs:
            invariant(run.first_offset == next_offset and run.count > 0, "runs do not cover a batch", next=next_offset)
            next_offset = run.last_offset + 1
            _check_run(run)
            if run.state.is_terminal:
                terminal += run.count_from(window.start_offset)
            if run.state is RecordState.AVAILABLE:
                invariant(run.first_offset >= window.start_offset, "available below the start", at=run.first_offset)
                invariant(run.transition is not None or window.may_have_available, "an available record is not sought")
                invariant(
                    run.transition is not None or run.first_offset >= window.available_from,
                    "an available record is not sought where it is",
                    at=run.first_offset,
                )
        invariant(next_offset == batch.last_offset + 1, "runs do not cover a batch", next=next_offset)
    invariant(terminal == window.terminal_count, "wrong terminal count", counted=terminal, kept=window.terminal_count)
    if window.batches:
        invariant(window.end_offset >= previous, "the end is inside the last batch", end=window.end_offset)
        invariant(
            window.end_offset in (previous, window.start_offset), "the end is not that of the last batch", last=previous
        )
    else:
        invariant(window.end_offset == window.start_offset, "an empty window has an end", end=window.end_offset)


def _check_run(run: Run) -> None:
    if run.transition is not None:
        invariant(not run.member_id, "a record in transition has a member", at=run.first_offset)
        invariant(run.state in (run.transition.state, RecordState.ARCHIVED), "a transition has another state")
    elif run.state is not RecordState.ACQUIRED:
        invariant(not run.member_id and run.lock is None, "a free record is locked", at=run.first_offset)
