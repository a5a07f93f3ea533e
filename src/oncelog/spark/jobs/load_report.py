"""The request of a load, its report, and its progress as events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from oncelog.base.ids import TopicPartition
from oncelog.spark.jobs.load_plan import DEFAULT_ROWS_PER_STEP, PartitionPlan, PartitionState, Piece
from oncelog.spark.jobs.shape import PLAIN, Shape


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The topics to load and the settings. ``options`` are the source's, ``kafka.*`` included."""

    topics: tuple[str, ...]
    to: str | Path
    options: Mapping[str, str]
    from_ms: int | None = None
    rows_per_step: int = DEFAULT_ROWS_PER_STEP
    shape: Shape = PLAIN
    quarantine_topic: str | None = None
    backfill: bool = False
    """Only load rows before a partition's first row or between two; a stream may append meanwhile."""


EventKind = Literal["planned", "writing", "written", "publishing", "published", "committed"]


@dataclass(frozen=True, slots=True)
class Event:
    """Progress: ``planned``, then ``written`` per step and ``published`` per file. ``rows`` counts from the start."""

    kind: EventKind
    step: int
    offsets_done: int
    offsets_total: int
    rows: int


@dataclass(slots=True)
class PartitionReport:
    """A load's result for one partition: new offsets ``start`` to ``end`` (exclusive), and replaced files."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int = 0
    replaced_files: int = 0
    quarantined: int = 0


@dataclass(slots=True)
class LoadReport:
    """``rows`` counts good rows read, including those of replaced files; ``quarantined`` bad ones."""

    directory: str
    rows: int = 0
    quarantined: int = 0
    quarantine: str | None = None
    new_columns: list[str] = field(default_factory=list)
    steps: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    rows_per_second: float = 0.0
    megabytes_per_second: float = 0.0
    compacted_files: int = 0
    partitions: list[PartitionReport] = field(default_factory=list)

    def finish(self, seconds: float) -> None:
        self.seconds = round(seconds, 3)
        if seconds > 0:
            self.rows_per_second = round((self.rows + self.quarantined) / seconds, 1)
            self.megabytes_per_second = round(self.bytes / seconds / 1e6, 3)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def report_of(
    name: str, states: Sequence[PartitionState], plans: Sequence[PartitionPlan], *, whole_files: bool
) -> LoadReport:
    """The report of a load that has not begun, without rows."""
    report = LoadReport(name)
    for state, plan in zip(states, plans, strict=True):
        start = plan.appended[0].start if plan.appended else (state.position or state.earliest)
        end = plan.appended[-1].end if plan.appended else start
        replaced_files = len(plan.replaced) if whole_files else 0
        report.partitions.append(PartitionReport(*state.partition, start, end, replaced_files=replaced_files))
    return report


class Progress:
    def __init__(
        self, report: LoadReport, offsets_total: int = 0, on_event: Callable[[Event], None] = lambda event: None
    ) -> None:
        self.report = report
        self._offsets_done, self._offsets_total, self._on_event = 0, offsets_total, on_event
        self._by_partition = {(report_row.topic, report_row.partition): report_row for report_row in report.partitions}

    def emit(self, kind: EventKind) -> None:
        report = self.report
        self._on_event(Event(kind, report.steps, self._offsets_done, self._offsets_total, report.rows))

    def add_partition(self, partition: TopicPartition, start: int) -> None:
        if partition not in self._by_partition:
            self._by_partition[partition] = PartitionReport(*partition, start, start)
            self.report.partitions.append(self._by_partition[partition])

    def count_rows(self, piece: Piece, good: int, bad: int) -> None:
        totals = self._by_partition[piece.offset_range.topic_partition]
        totals.rows += good
        totals.quarantined += bad
        self.report.rows += good
        self.report.quarantined += bad

    def count_done(self, piece: Piece) -> None:
        totals = self._by_partition[piece.offset_range.topic_partition]
        totals.end = max(totals.end, piece.offset_range.end)
        self._offsets_done += piece.offset_range.size
