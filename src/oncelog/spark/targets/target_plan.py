"""The plan of a load into a table of another format: from its spans and the log's offsets to steps. Pure.

Rules:
  1. new rows continue at the end of a partition's span (a first load: at the log's start, or at ``from``);
  2. with ``from``, rows from that offset on are replaced, range by range, and what is before the span is filled;
  3. a backfill fills what is before the span and nothing else, so that a stream may append meanwhile;
  4. what is filled goes from its end backwards: a span never has a hole, whatever is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oncelog.base.ids import TopicPartition
from oncelog.spark.jobs.load_plan import PartitionState, Piece, in_shares, plan_partition
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.table.directory import RowsFile
from oncelog.spark.targets.table_target import Span, Spans, StepKind


@dataclass(frozen=True, slots=True)
class SpanPlan:
    """The work for one partition: ranges to read for each kind of step, in rising order."""

    partition: TopicPartition
    replaced: tuple[OffsetRange, ...] = ()
    filled: tuple[OffsetRange, ...] = ()
    appended: tuple[OffsetRange, ...] = ()

    @property
    def size(self) -> int:
        """Offsets to read."""
        return sum(one.size for one in (*self.replaced, *self.filled, *self.appended))


def files_of(spans: Spans) -> dict[tuple[str, int], list[RowsFile]]:
    """Spans in the form of a table directory's files, for ``ClusterLog.states``."""
    found: dict[tuple[str, int], list[RowsFile]] = {}
    for partition, span in spans.items():
        file = RowsFile.of(partition, span.begin, span.end)
        found[file.label, file.partition] = [file]
    return found


def plan_spans(state: PartitionState, *, backfill: bool, fail_on_data_loss: bool) -> SpanPlan:
    """The work for one partition. Raises DataLoss when the log no longer has what comes next."""
    span = Span(state.files[0].start, state.files[-1].end) if state.files else None
    if backfill and span is None:
        return SpanPlan(state.partition)
    appended: Sequence[OffsetRange] = ()
    if not backfill:
        appended = plan_partition(state, fail_on_data_loss=fail_on_data_loss).appended
    since = state.from_offset
    if span is None or (since is None and not backfill):
        return SpanPlan(state.partition, appended=tuple(appended))
    first = max(state.earliest, since or 0)
    topic, number = state.partition

    def wanted(start: int, end: int) -> tuple[OffsetRange, ...]:
        return (OffsetRange(topic, number, start, end, state.topic_id),) if start < end else ()

    return SpanPlan(
        state.partition,
        () if backfill else wanted(max(first, span.begin), min(span.end, state.latest)),
        wanted(first, min(span.begin, state.latest)),
        tuple(appended),
    )


def steps_of_spans(
    plans: Sequence[SpanPlan], rows_per_step: int, parallelism: int
) -> Iterator[tuple[StepKind, list[Piece]]]:
    """The work in steps, one commit each: what is replaced first, then what is filled, then what is new."""
    for pieces in in_shares([list(plan.replaced) for plan in plans], rows_per_step, parallelism, backwards=False):
        yield "replace", pieces
    for pieces in in_shares([list(plan.filled) for plan in plans], rows_per_step, parallelism, backwards=True):
        yield "fill", pieces
    for pieces in in_shares([list(plan.appended) for plan in plans], rows_per_step, parallelism, backwards=False):
        yield "append", pieces
