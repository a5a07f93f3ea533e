"""Plans a load: a pure function from the table's files and the log's offsets to the ranges to read, in steps.

1. New rows continue where the partition's last file ends; a first load begins at the log's start, or at ``from``.
2. With ``from``, every file with rows from that offset on is replaced by one with the same range, and holes are
   filled. Rows below the offset, and those that the log no longer has, stay.
3. A backfill only fills holes, so that a stream may append meanwhile.
4. An interruption never leaves a hole.
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

# A step's rows follow a partition's rows, precede them or fill a hole, or replace some of them.
StepKind = Literal["append", "fill", "replace"]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition before a load: its files in the table, its log, and the offset of ``from`` (None: not set)."""

    partition: TopicPartition
    files: Sequence[RowsFile]
    earliest: int
    latest: int
    from_offset: int | None = None
    # The high watermark, if ``latest`` is a last stable offset.
    log_end: int | None = None
    topic_id: str = ""

    @property
    def position(self) -> int | None:
        """The offset after the table's last row; None before the first load."""
        return self.files[-1].end if self.files else None


@dataclass(frozen=True, slots=True)
class Piece:
    """A range to read and the file it becomes, which may begin earlier."""

    offset_range: OffsetRange
    file: RowsFile

    @property
    def keeps_rows(self) -> bool:
        """True if the file begins before the range: its earlier rows are kept."""
        return self.file.start < self.offset_range.start


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The work for one partition: files to replace, holes to fill, offsets to append; each in rising order."""

    partition: TopicPartition
    replaced: tuple[Piece, ...] = ()
    filled: tuple[OffsetRange, ...] = ()
    appended: tuple[OffsetRange, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.replaced or self.filled or self.appended)

    @property
    def size(self) -> int:
        ranges = (*(piece.offset_range for piece in self.replaced), *self.filled, *self.appended)
        return sum(offset_range.size for offset_range in ranges)


def plan_partition(
    state: PartitionState, *, fail_on_data_loss: bool, backfill: bool = False, whole_files: bool = True
) -> PartitionPlan:
    """Plan the work for one partition. Raises DataLoss if the log no longer has the next offset.

    Without ``whole_files`` (``LoadTable``), rows are replaced up to the log's end, not file by file.
    """
    topic, number = state.partition

    def topic_range(start: int, end: int) -> OffsetRange:
        return OffsetRange(topic, number, start, end, state.topic_id)

    if backfill:
        if not state.files:
            return PartitionPlan(state.partition)
        _, holes = _plan_reload(state, state.from_offset or state.earliest, whole_files)
        return PartitionPlan(state.partition, filled=tuple(topic_range(*hole) for hole in holes))
    begin = _append_position(state, fail_on_data_loss=fail_on_data_loss)
    # A first load from a time records its beginning even if there are no records yet.
    records_start = state.position is None and state.from_offset is not None
    appended = (topic_range(begin, state.latest),) if begin < state.latest or records_start else ()
    replaced, holes = ([], []) if state.from_offset is None else _plan_reload(state, state.from_offset, whole_files)
    return PartitionPlan(
        state.partition,
        tuple(Piece(topic_range(start, file.end), file) for start, file in replaced),
        tuple(topic_range(*hole) for hole in holes),
        appended,
    )


def _append_position(state: PartitionState, *, fail_on_data_loss: bool) -> int:
    position = state.position
    if position is None:
        return state.earliest if state.from_offset is None else max(state.earliest, state.from_offset)
    if position < state.earliest:
        if fail_on_data_loss:
            raise DataLoss(state.partition, position, state.earliest, "retention removed it before it was loaded")
        return state.earliest
    log_end = state.latest if state.log_end is None else state.log_end
    if position > log_end and fail_on_data_loss:
        raise DataLoss(state.partition, position, log_end, "the log ends there (was the topic recreated?)")
    return position


def _plan_reload(
    state: PartitionState, from_offset: int, whole_files: bool
) -> tuple[list[tuple[int, RowsFile]], list[tuple[int, int]]]:
    """The files with rows from ``from_offset`` on, each with its first offset to reload, and the holes between them."""
    covered = first = max(state.earliest, from_offset)
    replaced, holes = [], []
    for file in state.files:
        hole_end = file.start if whole_files else min(file.start, state.latest)
        if hole_end > covered:
            holes.append((covered, hole_end))
        replaceable = file if whole_files else file._replace(end=min(file.end, state.latest))
        if first < replaceable.end <= state.latest and replaceable.start < replaceable.end:
            replaced.append((max(replaceable.start, first), replaceable))
        covered = max(covered, file.end)
    return replaced, holes


def steps_of(
    plans: Sequence[PartitionPlan], rows_per_step: int, parallelism: int, *, whole_files: bool = True
) -> Iterator[tuple[StepKind, list[Piece]]]:
    """Yield the work in steps of about ``rows_per_step`` offsets, all partitions side by side, a Spark job each.

    A step's pieces are in publishing order, at least ``parallelism`` if there is enough to read. Replacements come
    first, then holes, from their end backwards, so that filled rows always join existing ones, then new offsets.
    """
    replaced = [list(plan.replaced) for plan in plans if plan.replaced]
    if whole_files:
        while replaced:
            yield "replace", [pieces.pop(0) for pieces in replaced]
            replaced = [pieces for pieces in replaced if pieces]
    ranges: list[tuple[StepKind, list[list[OffsetRange]]]] = [
        ("replace", [[piece.offset_range for piece in pieces] for pieces in replaced]),
        ("fill", [list(plan.filled) for plan in plans]),
        ("append", [list(plan.appended) for plan in plans]),
    ]
    for kind, by_partition in ranges:
        for pieces in _divide_into_steps(by_partition, rows_per_step, parallelism, backwards=kind == "fill"):
            yield kind, pieces


def _divide_into_steps(
    by_partition: list[list[OffsetRange]], rows_per_step: int, parallelism: int, *, backwards: bool
) -> Iterator[list[Piece]]:
    """Steps over all partitions' ranges, with an equal share of each, taken from the front or from the back."""
    while by_partition := [ranges for ranges in by_partition if ranges]:
        share = max(1, rows_per_step // len(by_partition))
        ranges = _split_for_tasks(
            [_take_share(pending, share, backwards=backwards) for pending in by_partition], parallelism
        )
        # Published in this order, each piece joins existing rows, so an interruption leaves no hole.
        ranges.sort(key=lambda offset_range: offset_range.start, reverse=backwards)
        yield [
            Piece(offset_range, RowsFile.of(offset_range.topic_partition, offset_range.start, offset_range.end))
            for offset_range in ranges
        ]


def _take_share(pending: list[OffsetRange], share: int, *, backwards: bool) -> OffsetRange:
    index = -1 if backwards else 0
    first = pending.pop(index)
    if first.size <= share:
        return first
    cut = first.end - share if backwards else first.start + share
    front, back = first.before(cut), first.since(cut)
    taken, rest = (back, front) if backwards else (front, back)
    pending.insert(len(pending) if backwards else 0, rest)
    return taken


# A Spark task for fewer offsets costs more than it saves.
_WORTH_A_TASK: Final = 50_000


def _split_for_tasks(ranges: list[OffsetRange], parallelism: int) -> list[OffsetRange]:
    """Split large ranges if there are fewer than Spark can read at once."""
    total = sum(offset_range.size for offset_range in ranges)
    return divide(ranges, min(parallelism, total // _WORTH_A_TASK), None) if total > _WORTH_A_TASK else ranges
