"""Each row once, whatever dies when: the commit protocol against a modelled cluster and a modelled Spark."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.sink.model import Spark


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_each_row_is_committed_once_after_any_schedule_of_deaths(seed: int) -> None:
    spark = Spark(seed)
    spark.run()
    assert sorted(spark.model.visible) == sorted(spark.expected(spark.epochs))
