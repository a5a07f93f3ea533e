"""The batches that a share group has left to settle, by its written state and the log (rule L6)."""

from __future__ import annotations

from oncelog.base.ids import Offset
from oncelog.core.share.model import RecordState
from oncelog.records.internal.share_state_records import StateBatch
from oncelog.sim.workloads.share_administrators import overlapping, unsettled_ranges

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState


def states(*batches: tuple[int, int, RecordState]) -> list[StateBatch]:
    return [StateBatch(Offset(first), Offset(last), state, 1) for first, last, state in batches]


def test_all_is_open_without_a_state() -> None:
    assert unsettled_ranges(0, 5, ()) == [range(5)]
    assert unsettled_ranges(5, 5, ()) == []


def test_only_records_that_never_come_again_are_settled() -> None:
    batches = states((2, 3, ACKNOWLEDGED), (4, 5, ARCHIVED), (6, 6, AVAILABLE), (7, 7, ACKNOWLEDGED), (8, 8, ARCHIVING))
    assert unsettled_ranges(0, 9, batches) == [range(2), range(6, 7), range(8, 9)]


def test_batches_before_the_start_and_after_the_end_change_nothing() -> None:
    batches = states((0, 6, ACKNOWLEDGED), (8, 20, ACKNOWLEDGED))
    assert unsettled_ranges(5, 10, batches) == [range(7, 8)]
    assert unsettled_ranges(5, 7, batches) == []


def test_offsets_without_a_batch_are_not_to_be_settled() -> None:
    log = [range(104, 105), range(107, 130)]
    assert overlapping(log, [range(105, 107)]) == []
    assert overlapping(log, [range(103, 107)]) == [range(104, 105)]
    assert overlapping(log, [range(110, 111)]) == [range(107, 130)]
