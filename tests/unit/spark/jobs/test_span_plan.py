"""The plan of a load into spans: what is replaced, filled and appended, in which order."""

from __future__ import annotations

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.jobs.load_plan import PartitionPlan, PartitionState, plan_partition, steps_of
from oncelog.spark.session.errors import DataLoss
from oncelog.spark.table.directory import RowsFile
from oncelog.spark.targets.table_target import Span

P = TopicPartition(TopicName("t"), 0)


def plan(
    span: Span | None, earliest: int, latest: int, since: int | None = None, *, backfill: bool = False
) -> PartitionPlan:
    files = [RowsFile.of(P, *span)] if span else []
    state = PartitionState(P, files, earliest, latest, since)
    return plan_partition(state, backfill=backfill, fail_on_data_loss=True, whole_files=False)


def ranges(item: PartitionPlan) -> list[list[tuple[int, int]]]:
    replaced = [piece.offset_range for piece in item.replaced]
    return [[(item.start, item.end) for item in part] for part in (replaced, item.filled, item.appended)]


def test_new_rows_continue_at_the_end() -> None:
    assert ranges(plan(None, 2, 9)) == [[], [], [(2, 9)]]
    assert ranges(plan(Span(2, 9), 4, 12)) == [[], [], [(9, 12)]]
    assert ranges(plan(Span(9, 9), 0, 12)) == [[], [], [(9, 12)]]  # a stream that began at the latest
    assert plan(Span(0, 9), 0, 9).size == 0


def test_from_a_time_on_rows_are_replaced_and_holes_filled() -> None:
    assert ranges(plan(None, 2, 9, 5)) == [[], [], [(5, 9)]]
    assert ranges(plan(Span(4, 9), 0, 12, 6)) == [[(6, 9)], [], [(9, 12)]]
    assert ranges(plan(Span(4, 9), 0, 12, 1)) == [[(4, 9)], [(1, 4)], [(9, 12)]]
    assert ranges(plan(Span(4, 9), 6, 12, 1)) == [[(6, 9)], [], [(9, 12)]]  # the log's start has passed


def test_a_backfill_fills_only_what_is_before() -> None:
    assert ranges(plan(None, 0, 9, backfill=True)) == [[], [], []]
    assert ranges(plan(Span(5, 9), 1, 12, backfill=True)) == [[], [(1, 5)], []]
    assert ranges(plan(Span(5, 9), 1, 12, 3, backfill=True)) == [[], [(3, 5)], []]


def test_a_log_that_lost_what_comes_next_is_said() -> None:
    with pytest.raises(DataLoss):
        plan(Span(0, 5), 7, 12)


def test_steps_fill_backwards_and_append_forwards() -> None:
    result = [
        (kind, [(piece.offset_range.start, piece.offset_range.end) for piece in pieces])
        for kind, pieces in steps_of([plan(Span(4, 8), 0, 12, 0)], 2, 1, whole_files=False)
    ]
    assert result == [
        ("replace", [(4, 6)]), ("replace", [(6, 8)]),
        ("fill", [(2, 4)]), ("fill", [(0, 2)]),
        ("append", [(8, 10)]), ("append", [(10, 12)]),
    ]  # fmt: skip
