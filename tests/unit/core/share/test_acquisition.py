"""Acquisition of new and of available records, in both modes, up to the limits."""

from __future__ import annotations

import pytest

from oncelog.core.share.acquisition import throttled_deliveries
from oncelog.core.share.transitions import StateWrite
from tests.conformance.share.log import LogBatch
from tests.unit.core.share.partitions import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ALICE,
    ARCHIVED,
    AVAILABLE,
    BOB,
    LOCK_MS,
    RELEASE,
    Tried,
)


def test_new_records_are_acquired_in_whole_batches_of_the_log() -> None:
    tried = Tried()
    assert tried.acquire((0, 9), (10, 29), (30, 39), most=15) == [(0, 29, 1)]
    assert (tried.span, tried.next_offset) == ((0, 29), 30)
    assert tried.acquire((30, 39), member=BOB) == [(30, 39, 1)]
    assert [row.member_id for row in tried.partition.in_flight()] == [ALICE, BOB]


def test_nothing_is_acquired_without_records_or_room() -> None:
    tried = Tried(start=5)
    assert tried.acquire() == []
    assert tried.acquire((5, 9), most=0) == []
    assert tried.acquire((0, 4)) == [], "before the start"
    assert tried.records == []


def test_a_batch_that_begins_before_the_start_is_acquired_from_there() -> None:
    tried = Tried(start=5)
    assert tried.acquire((0, 9)) == [(5, 9, 1)]


def test_records_below_the_start_are_not_acquired_beside_others_in_flight() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.partition.log_start_moved(15)  # type: ignore[arg-type]
    assert tried.acquire((10, 19), (20, 24), member=BOB) == [(15, 24, 1)]


def test_large_acquisitions_are_split_where_a_batch_of_the_log_begins() -> None:
    tried = Tried()
    log = [(0, 3), (4, 9), (10, 11), (12, 30)]
    assert tried.acquire(*log, size=5) == [(0, 9, 1), (10, 30, 1)]
    assert [batch[:2] for batch in tried.records] == [(0, 9), (10, 30)]


def test_in_record_limit_mode_the_rest_of_the_batch_is_available() -> None:
    tried = Tried()
    assert tried.acquire((0, 9), (10, 19), most=7, limited=True) == [(0, 6, 1)]
    assert tried.records == [(0, 6, ACQUIRED, 1), (7, 9, AVAILABLE, 0)]
    assert tried.next_offset == 7
    assert tried.acquire((0, 9), (10, 19), member=BOB, most=7, limited=True) == [(7, 9, 1), (10, 13, 1)]
    assert tried.next_offset == 14


def test_in_record_limit_mode_batches_are_not_split_by_size() -> None:
    assert Tried().acquire((0, 9), (10, 19), size=5, most=20, limited=True) == [(0, 19, 1)]


def test_released_records_come_again_with_their_count() -> None:
    tried = Tried()
    tried.acquire((0, 9), (10, 19))
    tried.acknowledged((0, 9, ACCEPT), (10, 19, RELEASE))
    assert tried.next_offset == 10
    assert tried.acquire((10, 19), (20, 29), member=BOB) == [(10, 19, 2), (20, 29, 1)]


def test_acquired_records_are_not_acquired_again() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    assert tried.acquire((0, 9), at=0, member=BOB) == []


def test_neighbours_of_a_split_batch_with_one_count_are_one_range() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.acknowledged((0, 2, RELEASE), (3, 5, RELEASE))
    assert tried.acquire((0, 9), member=BOB) == [(0, 5, 2)]


def test_a_full_window_grows_no_more() -> None:
    tried = Tried(max_in_flight=20)
    assert tried.acquire((0, 9), (10, 24)) == [(0, 24, 1)]
    assert not tried.partition.may_acquire()
    assert tried.acquire((25, 29)) == []
    tried.acknowledged((0, 4, ACCEPT))
    assert tried.partition.in_flight_records == 20
    assert not tried.partition.may_acquire()
    tried.acknowledged((5, 5, ACCEPT))
    assert tried.acquire((25, 29), (30, 39)) == [(25, 29, 1)], "one record fits, and its batch with it"


def test_what_is_available_in_a_full_window_is_acquired() -> None:
    tried = Tried(max_in_flight=20)
    tried.acquire((0, 9), (10, 19))
    tried.acknowledged((0, 4, RELEASE))
    assert tried.partition.may_acquire()
    assert tried.acquire((0, 9), (10, 19), (20, 29), member=BOB) == [(0, 4, 2)]


def test_a_lowered_limit_of_records_holds_at_once() -> None:
    tried = Tried()
    tried.acquire((0, 9))
    tried.partition.settings = tried.partition.settings._replace(max_in_flight=10)
    assert tried.acquire((10, 19)) == []


def test_compacted_records_are_archived_when_they_are_missed() -> None:
    tried = Tried()
    tried.acquire((0, 9), (10, 19))
    tried.acknowledged((0, 19, RELEASE))
    assert tried.acquire((13, 19), (20, 24), member=BOB) == [(13, 19, 2), (20, 24, 1)]
    assert tried.span == (13, 24)
    assert tried.records == [(0, 12, ARCHIVED, 1), (13, 19, ACQUIRED, 2), (20, 24, ACQUIRED, 1)]


def test_offsets_without_records_between_batches_in_flight_are_not_counted_and_pass_unwritten() -> None:
    tried = Tried(start=104)
    tried.acquire((104, 104))
    tried.acquire((107, 110), at=105, member=BOB)
    tried.acknowledged((107, 110, ACCEPT), member=BOB)
    last = tried.acknowledge((104, 104, ACCEPT))
    assert isinstance(last, StateWrite)
    # As in Apache Kafka, the lag has offsets 105 and 106 until the next write.
    assert (last.state.start_offset, last.state.delivery_complete_count) == (104, 5)
    tried.written(last)
    assert (tried.span, tried.next_offset) == ((111, 111), 111)


def test_a_full_window_of_compacted_records_does_not_stay_full() -> None:
    tried = Tried(max_in_flight=10)
    tried.acquire((0, 9))
    tried.acknowledged((0, 9, RELEASE))
    assert tried.acquire((12, 14)) == []
    assert tried.span == (10, 10)
    assert tried.acquire((12, 14)) == [(12, 14, 1)]


def test_records_of_aborted_transactions_are_archived() -> None:
    tried = Tried()
    log = [LogBatch(0, 4, 1, "transactional"), LogBatch(5, 9, 2, "transactional"), LogBatch(10, 10, 1, "abort")]
    log += [LogBatch(11, 14, 1, "transactional"), LogBatch(15, 15, 2, "commit")]
    assert tried.acquire(*log, aborted=[(1, 0)]) == [(5, 15, 1)]
    assert tried.records == [(0, 4, ARCHIVED, 1), (5, 15, ACQUIRED, 1)]
    assert tried.span == (5, 15)


def test_a_full_window_of_aborted_records_does_not_stay_full() -> None:
    tried = Tried(max_in_flight=10)
    assert tried.acquire(LogBatch(0, 9, 1, "transactional"), aborted=[(1, 0)]) == []
    assert tried.partition.may_acquire()
    assert tried.span == (10, 10)
    assert tried.partition.next_deadline_ms is None


def test_gaps_of_a_loaded_state_are_acquired() -> None:
    tried = Tried((15, 20, ACKNOWLEDGED, 1), (26, 30, AVAILABLE, 2), start=10)
    assert tried.next_offset == 10
    assert tried.acquire((10, 20), (21, 40)) == [(10, 14, 1), (21, 25, 1), (26, 30, 3), (31, 40, 1)]


def test_in_record_limit_mode_a_gap_of_a_loaded_state_may_be_acquired_in_part() -> None:
    tried = Tried((15, 20, ACKNOWLEDGED, 1), start=10)
    assert tried.acquire((10, 30), most=3, limited=True) == [(10, 12, 1)]
    assert tried.next_offset == 13
    assert tried.acquire((10, 30), most=3, limited=True, member=BOB) == [(13, 14, 1), (21, 21, 1)]


def test_a_gap_of_a_loaded_state_that_has_no_records_is_passed() -> None:
    tried = Tried((15, 20, AVAILABLE, 1), start=10)
    assert tried.acquire((15, 20)) == [(15, 20, 2)]
    assert tried.span == (15, 20)


@pytest.mark.parametrize(("limit", "throttled"), [(2, 2), (3, 2), (4, 2), (5, 3), (10, 5)])
def test_throttling_begins_at_half_of_the_deliveries(limit: int, throttled: int) -> None:
    assert throttled_deliveries(limit) == throttled


def test_records_that_failed_often_come_in_smaller_portions_and_alone_at_last() -> None:
    tried = Tried(max_deliveries=5)
    portions = []
    tried.acquire((0, 15))
    for _ in range(4):
        write = tried.sleep(LOCK_MS)
        tried.written(write)
        portions.append(tried.acquire((0, 15), (16, 20)))
    assert portions == [
        [(0, 15, 2), (16, 20, 1)],
        [(0, 15, 3), (16, 20, 2)],
        [(0, 7, 4)],
        [(0, 0, 5)],
    ]


def test_a_throttled_batch_waits_behind_others() -> None:
    tried = Tried((0, 9, AVAILABLE, 1), (10, 19, AVAILABLE, 3), start=0)
    assert tried.acquire((0, 9), (10, 19)) == [(0, 9, 2)]
    assert tried.acquire((10, 19)) == [(10, 14, 4)]


def test_a_record_before_its_last_delivery_waits_behind_its_neighbours() -> None:
    tried = Tried((0, 4, AVAILABLE, 1), (5, 5, AVAILABLE, 4), (6, 9, AVAILABLE, 1), start=0)
    assert tried.acquire((0, 9)) == [(0, 4, 2)]
    assert tried.acquire((0, 9)) == [(5, 5, 5)]
    assert tried.acquire((0, 9)) == [(6, 9, 2)]


def test_with_two_deliveries_nothing_comes_alone() -> None:
    tried = Tried((0, 9, AVAILABLE, 1), start=0, max_deliveries=2)
    assert tried.acquire((0, 9)) == [(0, 9, 2)]
