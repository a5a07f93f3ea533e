"""The range algorithm: each consumer computes its own share, and all shares together are the whole."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import TopicPartition
from oncelog.legacy.zookeeper_groups.machine.assignment import GroupSnapshot, assign_partitions, java_order
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription, registration_value


def topic(partitions: int) -> bytes:
    return json.dumps({"version": 1, "partitions": {str(number): [0] for number in range(partitions)}}).encode()


def shares(members: dict[str, Subscription], topics: dict[str, int]) -> dict[str, dict[TopicPartition, str]]:
    registered = {name: registration_value(one, 0) for name, one in members.items()}
    picture = GroupSnapshot(registered, {name: topic(count) for name, count in topics.items()}, 1)
    return {name: assign_partitions(name, one, picture, exclude_internal=True) for name, one in members.items()}


def indexes(share: dict[TopicPartition, str]) -> list[int]:
    return [partition.partition for partition in share]


def test_the_first_threads_get_one_more() -> None:
    result = shares({name: Subscription.to_topics(["t"]) for name in ("g_b", "g_a", "g_c")}, {"t": 8})
    assert {name: indexes(share) for name, share in result.items()} == {
        "g_a": [0, 1, 2],
        "g_b": [3, 4, 5],
        "g_c": [6, 7],
    }


def test_threads_are_sorted_as_text() -> None:
    result = shares({"g_a": Subscription.to_topics(["t"], 11), "g_b": Subscription.to_topics(["t"])}, {"t": 12})
    assert list(result["g_a"].values()) == [f"g_a-{number}" for number in (0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9)]
    assert result["g_b"] == {TopicPartition("t", 11): "g_b-0"}  # type: ignore[arg-type]  # a topic's name


def test_more_threads_than_partitions_leaves_some_without() -> None:
    result = shares({name: Subscription.to_topics(["t"]) for name in ("g_a", "g_b")}, {"t": 1})
    assert [len(share) for share in result.values()] == [1, 0]


def test_who_cannot_be_read_is_no_member() -> None:
    picture = GroupSnapshot({"g_0": b'{"t":1}', "g_a": b"?"}, {"t": topic(2)}, 1)
    assert indexes(assign_partitions("g_a", Subscription.to_topics(["t"]), picture, exclude_internal=True)) == [0, 1]


def test_text_sorts_by_utf_16() -> None:
    assert sorted(["\U0001f600", "\uffff", "a"], key=java_order) == ["a", "\U0001f600", "\uffff"]


@given(
    st.dictionaries(st.text("abc-0", min_size=1, max_size=4), st.integers(1, 12), min_size=1, max_size=6),
    st.integers(0, 30),
)
def test_every_partition_has_one_owner_and_shares_are_even(members: dict[str, int], partitions: int) -> None:
    subscriptions = {f"g_{name}": Subscription.to_topics(["t"], count) for name, count in members.items()}
    result = shares(subscriptions, {"t": partitions})
    assert sorted(index for share in result.values() for index in indexes(share)) == list(range(partitions))
    threads = [thread for share in result.values() for thread in share.values()]
    counts = {threads.count(thread) for thread in threads} | (
        {0} if len(set(threads)) < sum(members.values()) else set()
    )
    assert not partitions or max(counts) - min(counts) <= 1
