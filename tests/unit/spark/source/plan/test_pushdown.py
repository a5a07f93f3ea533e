"""Pushed filters: the ranges that they leave, and those that Spark need not apply again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from oncelog.spark.source.filtering_reader import PushedFilters
from oncelog.spark.source.offset_ranges import OffsetRange

OFFSET, PARTITION, TIME = ("offset",), ("partition",), ("timestamp",)


def left(filters: list[Filter], start: int = 0, end: int = 20) -> tuple[set[tuple[int, int]], list[Filter]]:
    """(partition, offset) that are still read, and the filters that Spark has to apply."""
    pushed = PushedFilters()
    rest = [item for item in filters if not pushed.push(item)]
    ranges = [pushed.clip(OffsetRange("t", number, start, end)) for number in range(4)]
    return {
        (range_.partition, offset)
        for range_ in ranges
        if range_ is not None
        for offset in range(range_.start, range_.end)
    }, rest


COMPARISONS = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}
ONE_FILTER = st.tuples(
    st.sampled_from(list(COMPARISONS)), st.sampled_from([OFFSET, PARTITION]), st.integers(-2, 22), st.booleans()
)


@given(st.lists(ONE_FILTER, max_size=4))
def test_what_is_read_has_all_that_is_wanted_and_exactly_that_when_every_filter_is_taken(
    chosen: list[tuple[type, tuple[str], int, bool]],
) -> None:
    filters = [Not(kind(column, value)) if negated else kind(column, value) for kind, column, value, negated in chosen]
    expected = {
        (partition, offset)
        for partition in range(4)
        for offset in range(20)
        if all(
            COMPARISONS[kind](offset if column == OFFSET else partition, value) != negated
            for kind, column, value, negated in chosen
        )
    }
    read, rest = left(filters)
    assert expected <= read
    assert rest or read == expected


def test_a_list_of_offsets_with_holes_is_narrowed_and_still_applied_by_spark() -> None:
    holes, whole = In(OFFSET, (3, 5)), In(OFFSET, (3, 4, 5))
    assert left([holes], end=9) == ({(p, o) for p in range(4) for o in (3, 4, 5)}, [holes])
    assert left([whole], end=9) == ({(p, o) for p in range(4) for o in (3, 4, 5)}, [])


@pytest.mark.parametrize("one", [EqualTo(("key",), b"k"), StringContains(("topic",), "x"), IsNotNull(("key",))])
def test_other_filters_are_sparks(one: Filter) -> None:
    assert left([one])[1] == [one]


def test_columns_that_are_never_null() -> None:
    assert left([IsNotNull(OFFSET), IsNotNull(TIME)])[1] == []


def test_a_time_moves_the_start_and_is_still_applied_by_spark() -> None:
    pushed = PushedFilters()
    late = datetime(1970, 1, 1, 0, 0, 2, 999, tzinfo=UTC)
    assert not pushed.push(GreaterThan(TIME, late))
    assert not pushed.push(GreaterThanOrEqual(TIME, datetime(1970, 1, 1, 0, 0, 1)))  # noqa: DTZ001 - as Spark may
    assert not pushed.push(LessThan(TIME, late))
    assert pushed.from_ms == 2000
