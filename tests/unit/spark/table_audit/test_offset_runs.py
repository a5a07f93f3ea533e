"""Runs of offsets against sets of offsets."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark.table_audit.offset_runs import EMPTY, Runs, RunsBuilder

offsets = st.lists(st.integers(0, 40), max_size=30)
batches = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20), max_size=8)


def runs_of(values: set[int]) -> Runs:
    return Runs.of(*((value, value) for value in values)) if values else EMPTY


def values_of(runs: Runs) -> set[int]:
    return {value for first, last in runs.ranges(1000) for value in range(first, last + 1)}


@given(batches)
def test_rows_of_an_offset_are_counted_across_batches(given_batches: list[list[int]]) -> None:
    builder = RunsBuilder()
    for batch in given_batches:
        builder.add(np.array(batch, np.int64))
    runs, twice = builder.build()
    counts = Counter(value for batch in given_batches for value in batch)
    assert values_of(runs) == set(counts)
    assert values_of(twice) == {value for value, count in counts.items() if count > 1}
    assert builder.surplus == sum(counts.values()) - len(counts)
    assert builder.rows == sum(counts.values())
    assert all(later > earlier + 1 for earlier, later in zip(runs.ends[:-1], runs.starts[1:], strict=True))


@given(offsets, offsets)
def test_runs_are_compared_like_sets(left: list[int], right: list[int]) -> None:
    ours, theirs = runs_of(set(left)), runs_of(set(right))
    assert values_of(ours.within(theirs)) == set(left) & set(right)
    assert values_of(ours.without(theirs)) == set(left) - set(right)
    assert ours.size == len(set(left))
