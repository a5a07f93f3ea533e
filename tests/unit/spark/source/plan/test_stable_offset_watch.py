"""The watch on last stable offsets: when one counts as standing still, and the line about it."""

from __future__ import annotations

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.source.plan.stable_offset_watch import StableOffsets, describe_held

ZERO, ONE = (TopicPartition(TopicName("t"), number) for number in range(2))


def test_it_stands_still_after_the_time_given_and_not_before() -> None:
    watch = StableOffsets(1000)
    assert watch.stalled({ZERO: 5, ONE: 5}, {ZERO: 9, ONE: 5}, 0) == []
    assert watch.stalled({ZERO: 5, ONE: 5}, {ZERO: 12, ONE: 5}, 999) == []
    assert watch.stalled({ZERO: 5, ONE: 5}, {ZERO: 12, ONE: 5}, 1000) == [ZERO]


def test_a_step_begins_the_time_anew() -> None:
    watch = StableOffsets(1000)
    watch.stalled({ZERO: 5}, {ZERO: 9}, 0)
    assert watch.stalled({ZERO: 6}, {ZERO: 9}, 1000) == []
    assert watch.stalled({ZERO: 9}, {ZERO: 9}, 2500) == []
    assert watch.stalled({ZERO: 9}, {ZERO: 10}, 2600) == []


def test_without_a_holder_the_problem_is_said() -> None:
    assert describe_held(ONE, 5, 9, None, 0, "its leader names no open transaction") == (
        "t-1 at offset 5, 4 offsets below its end: held by a transaction (its leader names no open transaction); "
        "see `oncelog txn explain --topic t --partition 1`"
    )
