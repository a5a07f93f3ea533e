"""The values that a load takes and gives: request, report, and its progress as events."""

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
    """The topics to load, and how. ``options`` are the source's own (``kafka.*`` among them)."""

    topics: tuple[str, ...]
    to: str | Path
    options: Mapping[str, str]
    from_ms: int | None = None
    rows_per_step: int = DEFAULT_ROWS_PER_STEP
    shape: Shape = PLAIN
    quarantine_topic: str | None = None
    backfill: bool = False
    """Only what is before a partition's first row, or between two; a stream may append meanwhile."""


EventKind = Literal["planned", "writing", "written", "publishing", "published", "committed"]


@dataclass(frozen=True, slots=True)
class Event:
    """Progress: ``planned``, then for each step ``written``, for each file ``published``; ``rows`` are so far."""

    kind: EventKind
    step: int
    offsets_done: int
    offsets_total: int
    rows: int


@dataclass(slots=True)
class PartitionReport:
    """A load's result for one partition: new offsets ``start`` to ``end`` (exclusive), and files replaced."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int = 0
    replaced_files: int = 0
    quarantined: int = 0


@dataclass(slots=True)
class LoadReport:
    """Totals of a load. ``rows`` are the good ones read, those of replaced files included; ``quarantined`` the bad."""

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
        """Set the rates, over the whole time."""
        self.seconds = round(seconds, 3)
        if seconds > 0:
            self.rows_per_second = round((self.rows + self.quarantined) / seconds, 1)
            self.megabytes_per_second = round(self.bytes / seconds / 1e6, 3)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return asdict(self)


def report_of(
    name: str, states: Sequence[PartitionState], plans: Sequence[PartitionPlan], *, whole_files: bool
) -> LoadReport:
    """The report of a load that has not begun: ranges by the plan, no rows."""
    report = LoadReport(name)
    for state, plan in zip(states, plans, strict=True):
        start = plan.appended[0].start if plan.appended else (state.position or state.earliest)
        end = plan.appended[-1].end if plan.appended else start
        replaced_files = len(plan.replaced) if whole_files else 0
        report.partitions.append(PartitionReport(*state.partition, start, end, replaced_files=replaced_files))
    return report


class Progress:
    """A job under way: its report so far, and the events that it tells its caller."""

    def __init__(
        self, report: LoadReport, offsets_total: int = 0, on_event: Callable[[Event], None] = lambda event: None
    ) -> None:
        self.report = report
        self._offsets_done, self._offsets_total, self._on_event = 0, offsets_total, on_event
        self._by_partition = {(one.topic, one.partition): one for one in report.partitions}

    def tell(self, kind: EventKind) -> None:
        """Tell the caller an event: it has happened, or is about to."""
        report = self.report
        self._on_event(Event(kind, report.steps, self._offsets_done, self._offsets_total, report.rows))

    def add_partition(self, partition: TopicPartition, start: int) -> None:
        """Add a partition to the report, unless it is there."""
        if partition not in self._by_partition:
            self._by_partition[partition] = PartitionReport(*partition, start, start)
            self.report.partitions.append(self._by_partition[partition])

    def count_rows(self, piece: Piece, good: int, bad: int) -> None:
        """Count rows of a piece that are in the table, or in its quarantine."""
        of_partition = self._by_partition[piece.wanted.topic_partition]
        of_partition.rows += good
        of_partition.quarantined += bad
        self.report.rows += good
        self.report.quarantined += bad

    def count_done(self, piece: Piece) -> None:
        """Count the offsets of a piece, which is in the table."""
        of_partition = self._by_partition[piece.wanted.topic_partition]
        of_partition.end = max(of_partition.end, piece.wanted.end)
        self._offsets_done += piece.wanted.size
