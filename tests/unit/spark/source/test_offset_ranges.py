"""Dividing ranges among tasks loses and repeats nothing."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.source.offset_ranges import OffsetRange, divide, ranges_between


def partition(number: int) -> TopicPartition:
    return TopicPartition(TopicName("t"), number)


RANGES = st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 10**7)), min_size=1, max_size=8).map(
    lambda pairs: [
        OffsetRange("t", number, start, start + size, f"id{number}") for number, (start, size) in enumerate(pairs)
    ]
)


@given(RANGES, st.none() | st.integers(1, 50), st.none() | st.integers(10**5, 10**7))
def test_pieces_add_up_to_the_ranges(
    ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = divide(ranges, min_partitions, max_records)
    for range_ in ranges:
        own = [piece for piece in pieces if piece.partition == range_.partition]
        assert (own[0].start, own[-1].end) == (range_.start, range_.end)
        assert all(piece.topic_id == range_.topic_id for piece in own)
        assert all(before.end == after.start for before, after in pairwise(own))
        assert max_records is None or all(piece.size <= max_records for piece in own)


def test_a_partition_with_nothing_to_read_has_no_range() -> None:
    assert ranges_between({partition(0): 5, partition(1): 5}, {partition(0): 5, partition(1): 7}, {"t": "id"}) == [
        OffsetRange("t", 1, 5, 7, "id")
    ]
