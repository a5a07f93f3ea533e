"""The plan of a load: a pure function from the table's files and the log's offsets to the ranges to read, in steps.

A table without files of its own (``LoadTable.whole_files``) has one for the span of each partition.

Rules:
  1. new rows continue where the partition's last file ends (a first load: at the log's start, or at ``from``);
  2. with ``from``, rows from that offset on are loaded anew: every file that has any is replaced by one with the same
     range (its rows below the offset are kept), and holes are filled; what the log no longer has stays as it is;
  3. a backfill fills holes and nothing else, so that a stream may append meanwhile;
  4. pieces are published next to what the table has already, so whatever is interrupted, no hole is left behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from oncelog.base.ids import TopicPartition
from oncelog.spark.session.errors import DataLoss
from oncelog.spark.source.offset_ranges import OffsetRange, divide
from oncelog.spark.table.directory import RowsFile

DEFAULT_ROWS_PER_STEP: Final = 2_000_000

StepKind = Literal["append", "fill", "replace"]
"""A step's rows are new behind what a partition has, new before or between it, or in place of some of it."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition before a load: its files in the table, its log, and the offset of ``from`` (None: not given)."""

    partition: TopicPartition
    files: Sequence[RowsFile]
    earliest: int
    latest: int
    from_offset: int | None = None
    log_end: int | None = None
    """The high watermark, where ``latest`` is a last stable offset."""
    topic_id: str = ""

    @property
    def position(self) -> int | None:
        """The offset after the table's last row, None before the first load."""
        return self.files[-1].end if self.files else None


@dataclass(frozen=True, slots=True)
class Piece:
    """A range to read and the file it becomes. If the file begins earlier, its rows up to the range are kept."""

    wanted: OffsetRange
    file: RowsFile

    @property
    def keeps_rows(self) -> bool:
        """True if the file begins before the range: its rows up to there are taken over."""
        return self.file.start < self.wanted.start


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The work for one partition: files to replace, holes to fill, new offsets to append; each in rising order."""

    partition: TopicPartition
    replaced: tuple[Piece, ...] = ()
    filled: tuple[OffsetRange, ...] = ()
    appended: tuple[OffsetRange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing is to be read or recorded."""
        return not (self.replaced or self.filled or self.appended)

    @property
    def size(self) -> int:
        """Offsets to read."""
        ranges = (*(piece.wanted for piece in self.replaced), *self.filled, *self.appended)
        return sum(one.size for one in ranges)


def plan_partition(
    state: PartitionState, *, fail_on_data_loss: bool, backfill: bool = False, whole_files: bool = True
) -> PartitionPlan:
    """The work for one partition. Raises DataLoss when the log no longer has what comes next.

    Without ``whole_files`` rows are replaced up to where the log ends, not file by file.
    """
    topic, number = state.partition

    def wanted(start: int, end: int) -> OffsetRange:
        return OffsetRange(topic, number, start, end, state.topic_id)

    if backfill:
        if not state.files:
            return PartitionPlan(state.partition)
        _, holes = _reloaded(state, state.from_offset or state.earliest, whole_files)
        return PartitionPlan(state.partition, filled=tuple(wanted(*hole) for hole in holes))
    begin = _continue_at(state, fail_on_data_loss=fail_on_data_loss)
    # A first load from a time records where it began even when nothing is there yet.
    records_start = state.position is None and state.from_offset is not None
    appended = (wanted(begin, state.latest),) if begin < state.latest or records_start else ()
    replaced, holes = ([], []) if state.from_offset is None else _reloaded(state, state.from_offset, whole_files)
    return PartitionPlan(
        state.partition,
        tuple(Piece(wanted(start, file.end), file) for start, file in replaced),
        tuple(wanted(*hole) for hole in holes),
        appended,
    )


def _continue_at(state: PartitionState, *, fail_on_data_loss: bool) -> int:
    position = state.position
    if position is None:
        return state.earliest if state.from_offset is None else max(state.earliest, state.from_offset)
    if position < state.earliest:
        if fail_on_data_loss:
            raise DataLoss(state.partition, position, state.earliest, "retention removed what was not loaded yet")
        return state.earliest
    log_end = state.latest if state.log_end is None else state.log_end
    if position > log_end and fail_on_data_loss:
        raise DataLoss(state.partition, position, log_end, "the log ends there (was the topic created anew?)")
    return position


def _reloaded(
    state: PartitionState, from_offset: int, whole_files: bool
) -> tuple[list[tuple[int, RowsFile]], list[tuple[int, int]]]:
    """The files that have rows from ``from_offset`` on, each with its first offset to reload, and the holes between
    them."""
    covered = first = max(state.earliest, from_offset)
    replaced, holes = [], []
    for file in state.files:
        hole_end = file.start if whole_files else min(file.start, state.latest)
        if hole_end > covered:
            holes.append((covered, hole_end))
        known = file if whole_files else file._replace(end=min(file.end, state.latest))
        if first < known.end <= state.latest and known.start < known.end:
            replaced.append((max(known.start, first), known))
        covered = max(covered, file.end)
    return replaced, holes


def steps_of(
    plans: Sequence[PartitionPlan], rows_per_step: int, parallelism: int, *, whole_files: bool = True
) -> Iterator[tuple[StepKind, list[Piece]]]:
    """The work in steps of about ``rows_per_step`` offsets, all partitions side by side, a Spark job each.

    The pieces of a step are in the order in which they are to be published. A step has ``parallelism`` pieces or more
    where there is enough to read. What is replaced comes first, file by file with ``whole_files``; then holes, from
    their end backwards, so that the table stays without holes behind what is filled; then new offsets.
    """
    replaced = [list(plan.replaced) for plan in plans if plan.replaced]
    if whole_files:
        while replaced:
            yield "replace", [pieces.pop(0) for pieces in replaced]
            replaced = [pieces for pieces in replaced if pieces]
    ranges: list[tuple[StepKind, list[list[OffsetRange]]]] = [
        ("replace", [[piece.wanted for piece in pieces] for pieces in replaced]),
        ("fill", [list(plan.filled) for plan in plans]),
        ("append", [list(plan.appended) for plan in plans]),
    ]
    for kind, waiting in ranges:
        for pieces in _in_shares(waiting, rows_per_step, parallelism, backwards=kind == "fill"):
            yield kind, pieces


def _in_shares(
    waiting: list[list[OffsetRange]], rows_per_step: int, parallelism: int, *, backwards: bool
) -> Iterator[list[Piece]]:
    """Steps over the ranges of all partitions, an equal share of each in a step, from the front or from the back."""
    while waiting := [ranges for ranges in waiting if ranges]:
        share = max(1, rows_per_step // len(waiting))
        ranges = _spread([_take(each, share, backwards=backwards) for each in waiting], parallelism)
        ranges.sort(key=lambda one: one.start, reverse=backwards)
        yield [Piece(one, RowsFile.of(one.topic_partition, one.start, one.end)) for one in ranges]


def _take(waiting: list[OffsetRange], share: int, *, backwards: bool) -> OffsetRange:
    """Up to ``share`` offsets from one end of what waits."""
    at = -1 if backwards else 0
    one = waiting.pop(at)
    if one.size <= share:
        return one
    cut = one.end - share if backwards else one.start + share
    front, back = one.before(cut), one.since(cut)
    taken, left = (back, front) if backwards else (front, back)
    waiting.insert(len(waiting) if backwards else 0, left)
    return taken


_WORTH_A_TASK: Final = 50_000


def _spread(ranges: list[OffsetRange], parallelism: int) -> list[OffsetRange]:
    """Large ranges in several pieces where there are fewer than Spark can read at once."""
    total = sum(one.size for one in ranges)
    return divide(ranges, min(parallelism, total // _WORTH_A_TASK), None) if total > _WORTH_A_TASK else ranges
