"""The offsets to begin at, and the warnings."""

from __future__ import annotations

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.legacy.zookeeper_groups.machine.starting_offsets import Storage, Stored, start_warnings, starts

A, B, C = (TopicPartition(TopicName("t"), number) for number in range(3))
STORED = Stored({A: 50, B: 10}, {A: 70, C: 5})


@pytest.mark.parametrize(
    ("storage", "dual_commit", "expected"),
    [
        (Storage.ZOOKEEPER, False, {A: 50, B: 10}),
        (Storage.KAFKA, False, {A: 70, C: 5}),
        (Storage.KAFKA, True, {A: 70, B: 10, C: 5}),
        (Storage.ZOOKEEPER, True, {A: 70, B: 10, C: 5}),
    ],
)
def test_with_dual_commit_the_larger_offset_counts(
    storage: Storage, dual_commit: bool, expected: dict[TopicPartition, int]
) -> None:
    assert starts(STORED, storage, dual_commit) == expected


def test_offsets_that_are_passed_over_are_warned_of() -> None:
    [warning] = start_warnings(STORED, Storage.ZOOKEEPER, False)
    assert "in 2 of its partitions (1 have none there)" in warning
    [warning] = start_warnings(STORED, Storage.KAFKA, False)
    assert "offsets in ZooKeeper are ahead of those in Kafka in 1 of" in warning


def test_nothing_is_warned_of_where_nothing_is_passed_over() -> None:
    assert start_warnings(Stored({A: 50}, {A: 50}), Storage.ZOOKEEPER, False) == []
    assert start_warnings(STORED, Storage.KAFKA, True) == []


def test_dual_commit_on_zookeeper_is_ours_alone() -> None:
    [warning] = start_warnings(STORED, Storage.ZOOKEEPER, True)
    assert "Java's consumers ignore dual.commit.enabled" in warning
