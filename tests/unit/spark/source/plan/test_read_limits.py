"""Limits of a micro-batch: the offsets that it takes of those that wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MINUTE_MS
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.offset_ranges import ReadLimits, limit_rows
from oncelog.spark.source.options import parse_options

ZERO, ONE = (TopicPartition(TopicName("t"), number) for number in range(2))
BASE = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}


def test_without_limits_everything_goes() -> None:
    assert ReadLimits(None, None, 0).end_of_batch({ZERO: 1}, {ZERO: 9}, 0) == {ZERO: 9}


def test_the_first_batch_goes_and_the_next_waits_for_the_minimum_or_the_delay() -> None:
    limits = ReadLimits(10, None, 1000)
    assert limits.end_of_batch({ZERO: 0}, {ZERO: 1}, 0) == {ZERO: 1}
    assert limits.end_of_batch({ZERO: 1}, {ZERO: 10}, 999) is None
    assert limits.end_of_batch({ZERO: 1}, {ZERO: 11}, 999) == {ZERO: 11}
    assert limits.end_of_batch({ZERO: 11}, {ZERO: 12}, 1998) is None
    assert limits.end_of_batch({ZERO: 11}, {ZERO: 12}, 1999) == {ZERO: 12}


def test_the_minimum_counts_over_all_partitions_and_what_goes_is_cut_to_the_maximum() -> None:
    limits = ReadLimits(10, 12, 1000)
    limits.end_of_batch({ZERO: 0, ONE: 0}, {ZERO: 0, ONE: 0}, 0)
    assert limits.end_of_batch({ZERO: 0, ONE: 0}, {ZERO: 6, ONE: 3}, 10) is None
    assert limits.end_of_batch({ZERO: 0, ONE: 0}, {ZERO: 16, ONE: 8}, 20) == {ZERO: 8, ONE: 4}


def test_a_log_that_became_shorter_does_not_count() -> None:
    limits = ReadLimits(5, None, 1000)
    limits.end_of_batch({ZERO: 0, ONE: 0}, {ZERO: 0, ONE: 0}, 0)
    assert limits.end_of_batch({ZERO: 100, ONE: 0}, {ZERO: 2, ONE: 4}, 1) is None


@pytest.mark.parametrize(
    ("text", "ms"), [("90", 90), ("90ms", 90), ("2s", 2000), ("5 min", 5 * MINUTE_MS), ("1h", 60 * MINUTE_MS)]
)
def test_a_delay_is_written_as_spark_writes_durations(text: str, ms: int) -> None:
    assert parse_options({**BASE, "maxTriggerDelay": text}).max_trigger_delay_ms == ms


def test_the_delay_is_a_quarter_of_an_hour_unless_given() -> None:
    assert parse_options(BASE).max_trigger_delay_ms == 15 * MINUTE_MS


def test_a_minimum_above_the_maximum_is_refused_in_a_stream() -> None:
    options = parse_options({**BASE, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"})
    with pytest.raises(OptionError, match=r"minOffsetsPerTrigger\(9\) must be less than or equal to"):
        options.check_stream()
    options.check_batch()


def partition(number: int) -> TopicPartition:
    return TopicPartition(TopicName("t"), number)


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1),
    st.integers(1, 500),
)
def test_a_limit_moves_every_partition_that_waits_and_ends(sizes: dict[int, tuple[int, int]], rows: int) -> None:
    start = {partition(number): first for number, (first, _) in sizes.items()}
    end = {partition(number): first + size for number, (first, size) in sizes.items()}
    limited = limit_rows(start, end, rows)
    assert sum(limited[item] - start[item] for item in end) <= rows + len(end)  # each that waits moves, if only by one
    for one in end:
        assert start[one] <= limited[one] <= end[one]
        assert limited[one] > start[one] or end[one] == start[one]
