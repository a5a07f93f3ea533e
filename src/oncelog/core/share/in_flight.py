"""Records in flight: batches of the window, and within each the runs of records in the same state.

A batch is what was acquired at once. While its records share their fate it is one run; a batch whose records are
acknowledged or delivered separately is *split*, and stays so. Apache Kafka keeps a state for each offset of a split
batch; here equal neighbours are one run, so that the cost follows the changes, not the records.

Invariants:
1. The runs of a batch cover it without gaps or overlaps, in order.
2. A batch that is not split is one run.
3. A run with a transition has the transition's state, or was archived meanwhile; it has no member.
4. An acquired run has a lock, unless it was loaded as acquired. So may one with a transition, which keeps its lock for
   a rollback. Others have none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter

from oncelog.base.ids import MemberId, Offset
from oncelog.core.share.locks import Lock
from oncelog.core.share.model import NO_MEMBER, RecordState

_first_offset = attrgetter("first_offset")
_last_offset = attrgetter("last_offset")


class Transition:
    """A change of acquired records that counts when its write is durable; ``member_id`` gets them back otherwise."""

    __slots__ = ("first_offset", "last_offset", "max_deliveries", "member_id", "state")

    def __init__(self, first_offset: Offset, state: RecordState, member_id: MemberId, max_deliveries: int) -> None:
        self.first_offset = first_offset
        self.last_offset = first_offset
        """The transition's runs are within this range, mixed with others."""
        self.state = state
        self.member_id = member_id
        self.max_deliveries = max_deliveries
        """The limit when it began, which decides about a rollback after the lock's end."""


class Run:
    __slots__ = ("delivery_count", "first_offset", "last_offset", "lock", "member_id", "state", "transition")

    def __init__(
        self,
        first_offset: Offset,
        last_offset: Offset,
        state: RecordState,
        delivery_count: int,
        member_id: MemberId = NO_MEMBER,
        lock: Lock | None = None,
        transition: Transition | None = None,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock = lock
        self.transition = transition

    @property
    def count(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.transition is None

    @property
    def is_settled(self) -> bool:
        """True if it is terminal and no write can change that."""
        return self.transition is None and self.state.is_terminal

    def count_from(self, start_offset: Offset) -> int:
        """The records at or after ``start_offset``."""
        return max(0, self.last_offset - max(self.first_offset, start_offset) + 1)

    def cut(self, offset: Offset) -> Run:
        """Shorten the run to end before ``offset``. Returns the rest."""
        rest = Run(
            offset, self.last_offset, self.state, self.delivery_count, self.member_id, self.lock, self.transition
        )
        self.last_offset = Offset(offset - 1)
        return rest

    def acquire(self, member_id: MemberId, lock: Lock) -> None:
        self.state = RecordState.ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id
        self.lock = lock
        lock.extend(self.first_offset, self.last_offset)

    def renew(self, lock: Lock) -> None:
        self.unlock()
        self.lock = lock
        lock.extend(self.first_offset, self.last_offset)

    def unlock(self) -> None:
        if self.lock is not None:
            self.lock.drop(self.count)
            self.lock = None

    def archive(self) -> None:
        """A transition in progress ends as archived, also if its write fails."""
        self.state = RecordState.ARCHIVED
        self.member_id = NO_MEMBER
        self.unlock()

    def _is_like(self, other: Run) -> bool:
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.lock is other.lock
            and self.transition is other.transition
            and self.member_id == other.member_id
        )


class InFlightBatch:
    __slots__ = ("first_offset", "is_split", "last_offset", "runs", "settled_before")

    def __init__(self, run: Run) -> None:
        self.first_offset = run.first_offset
        self.last_offset = run.last_offset
        self.runs = [run]
        self.is_split = False
        self.settled_before = run.first_offset
        """The records before this offset are settled, and stay so."""

    @property
    def count(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def whole(self) -> Run:
        """The run of a batch that is not split."""
        return self.runs[0]

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        return self.first_offset >= first_offset and self.last_offset <= last_offset

    def first_unsettled(self) -> Run | None:
        begin = bisect_left(self.runs, self.settled_before, key=_last_offset)
        for run in islice(self.runs, begin, None):
            if not run.is_settled:
                self.settled_before = run.first_offset
                return run
        self.settled_before = Offset(self.last_offset + 1)
        return None

    def run_at(self, offset: Offset) -> Run:
        return self.runs[bisect_right(self.runs, offset, key=_first_offset) - 1]

    def runs_in(self, first_offset: int, last_offset: int) -> Sequence[Run]:
        """The runs that have an offset between two, which are inclusive."""
        begin = max(0, bisect_right(self.runs, first_offset, key=_first_offset) - 1)
        return self.runs[begin : bisect_right(self.runs, last_offset, lo=begin, key=_first_offset)]

    def cut(self, first_offset: Offset, last_offset: Offset) -> Sequence[Run]:
        """The runs between two offsets; runs at the ends are cut there."""
        first, last = max(first_offset, self.first_offset), min(last_offset, self.last_offset)
        if first > last:
            return ()
        if first == self.first_offset and last == self.last_offset:
            return list(self.runs)
        begin = self._boundary(first)
        if self.runs[begin].last_offset == last:
            return self.runs[begin : begin + 1]
        return self.runs[begin : self._boundary(Offset(last + 1))]

    def cut_at(self, offsets: Sequence[Offset]) -> None:
        """Cut the runs before each of the offsets, which are within the batch."""
        for offset in offsets:
            self._boundary(offset)

    def _boundary(self, offset: Offset) -> int:
        """The index of the run that starts at ``offset``, which is made by cutting."""
        if offset > self.last_offset:
            return len(self.runs)
        index = bisect_right(self.runs, offset, key=_first_offset) - 1
        run = self.runs[index]
        if run.first_offset == offset:
            return index
        self.is_split = True
        self.runs.insert(index + 1, run.cut(offset))
        return index + 1

    def join_runs(self, first_offset: int, last_offset: int) -> None:
        """Merge the runs between two offsets, and their neighbours, where they are alike."""
        runs = self.runs
        if len(runs) == 1:
            return
        begin = max(0, bisect_right(runs, first_offset, key=_first_offset) - 2)
        end = bisect_right(runs, last_offset, key=_first_offset) + 1
        joined = runs[begin : begin + 1]
        for run in runs[begin + 1 : end]:
            if joined[-1]._is_like(run):
                joined[-1].last_offset = run.last_offset
            else:
                joined.append(run)
        runs[begin:end] = joined
