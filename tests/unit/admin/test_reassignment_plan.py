"""Plans of reassignments: nothing moves that need not, nothing is lost, everything is spread."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.admin.reassignment_plan import (
    PlanRefused,
    assignment_json,
    parse_assignment,
    plan_departure,
    plan_spread,
    rack_of,
)
from oncelog.base.ids import TopicName, TopicPartition

Plan = Mapping[TopicPartition, tuple[int, ...]]


def at(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)


def all_over(brokers: list[int], count: int, factor: int) -> dict[TopicPartition, tuple[int, ...]]:
    """Partitions whose replicas follow each other round the brokers."""
    return {
        at(index): tuple(brokers[(index + step) % len(brokers)] for step in range(factor)) for index in range(count)
    }


def replicas_of(plan: Plan) -> Counter[int]:
    return Counter(broker for brokers in plan.values() for broker in brokers)


def leads_of(plan: Plan) -> Counter[int]:
    return Counter(brokers[0] for brokers in plan.values())


NO_RACKS = dict.fromkeys(range(1, 6))


def test_a_departure_touches_only_what_the_broker_has() -> None:
    before = all_over([1, 2, 3, 4], 8, 2)
    plan = plan_departure(before, {1: None, 2: None, 3: None, 4: None}, 4)
    assert set(plan) == {partition for partition, brokers in before.items() if 4 in brokers}
    for partition, new in plan.items():
        assert set(before[partition]) - {4} <= set(new)
    after = {**before, **plan}
    assert sorted(replicas_of(after).values()) == [5, 5, 6]
    assert max(leads_of(after).values()) - min(leads_of(after).values()) <= 1


def test_a_new_broker_takes_what_leaves() -> None:
    plan = plan_departure({at(0): (1, 2, 3)}, {1: None, 2: None, 4: None}, 3)
    assert plan == {at(0): (1, 2, 4)}


def test_a_leader_that_leaves_is_followed_by_one_that_has_the_records() -> None:
    assert plan_departure({at(0): (3, 1)}, {1: None, 2: None, 3: None}, 3) == {at(0): (1, 2)}


def test_the_rack_that_has_none_comes_first() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "a", 5: "c"}
    assert plan_departure({at(0): (1, 2, 3)}, racks, 3) == {at(0): (1, 2, 5)}


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(PlanRefused, match=r"t-0 has 3 replicas, and without broker 3 no other broker"):
        plan_departure({at(0): (1, 2, 3)}, {1: None, 2: None, 3: None}, 3)


def test_a_broker_that_has_nothing_has_no_plan() -> None:
    assert plan_departure(all_over([1, 2], 4, 2), NO_RACKS, 5) == {}


def test_one_replica_alone_moves() -> None:
    assert plan_departure({at(0): (1,)}, {1: None, 2: None}, 1) == {at(0): (2,)}


def test_a_spread_over_more_brokers_moves_no_more_than_their_share() -> None:
    before = {at(index): (1,) for index in range(6)}
    plan = plan_spread(before, {1: None, 2: None, 3: None})
    assert replicas_of({**before, **plan}) == {1: 2, 2: 2, 3: 2}
    assert len(plan) == 4


def test_a_spread_that_is_even_stays_as_it_is() -> None:
    assert plan_spread(all_over([1, 2, 3], 6, 2), {1: None, 2: None, 3: None}) == {}


def test_a_higher_replication_factor_keeps_what_is_there() -> None:
    before = {at(index): (1,) for index in range(3)}
    plan = plan_spread(before, {1: None, 2: None, 3: None}, 3)
    assert {tuple(sorted(new)) for new in plan.values()} == {(1, 2, 3)}
    assert leads_of(plan) == {1: 1, 2: 1, 3: 1}


def test_a_lower_replication_factor_takes_some_away() -> None:
    before = all_over([1, 2, 3], 6, 3)
    plan = plan_spread(before, {1: None, 2: None, 3: None}, 1)
    assert replicas_of(plan) == {1: 2, 2: 2, 3: 2}


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(PlanRefused, match="replication factor 3 is larger than the number of available brokers"):
        plan_spread({at(0): (1,)}, {1: None, 2: None}, 3)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]]:
    """An assignment, and the racks of its brokers."""
    brokers = list(range(1, draw(st.integers(2, 7)) + 1))
    racks = {broker: draw(st.sampled_from(["a", "b", "c", None])) for broker in brokers}
    factor = draw(st.integers(1, min(3, len(brokers))))
    choices = list(combinations(brokers, factor))
    count = draw(st.integers(1, 20))
    assignment = {at(index): tuple(draw(st.permutations(draw(st.sampled_from(choices))))) for index in range(count)}
    return assignment, racks


@given(clusters(), st.integers(1, 7))
def test_a_departure_keeps_the_rules(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]], leaving: int
) -> None:
    assignment, racks = cluster
    try:
        plan = plan_departure(assignment, racks, leaving)
    except PlanRefused:
        assert any(leaving in old and len(racks) <= len(old) for old in assignment.values())
        return
    for partition, new in plan.items():
        old = assignment[partition]
        assert leaving not in new
        assert len(set(new)) == len(new) == len(old)
        assert len(set(new) - set(old)) == 1
        if old[0] != leaving:
            assert new[0] == old[0]
    assert all(leaving not in ({**assignment, **plan})[partition] for partition in assignment)


@given(clusters(), st.integers(1, 3))
def test_a_spread_keeps_the_rules(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]], factor: int
) -> None:
    assignment, racks = cluster
    if factor > len(racks):
        return
    after = {**assignment, **plan_spread(assignment, racks, factor)}
    kinds = len({rack_of(racks, broker) for broker in racks})
    for new in after.values():
        assert len(set(new)) == len(new) == factor
        assert len({rack_of(racks, broker) for broker in new}) == min(factor, kinds)
    if not any(racks.values()):
        share = -(-len(after) * factor // len(racks))
        assert max(replicas_of(after).values()) <= share + 1


def test_a_plan_is_written_and_read_in_kafkas_form() -> None:
    plan = {at(1): (2, 3), at(0): (1,)}
    document = assignment_json(plan)
    assert document["partitions"][0] == {"topic": "t", "partition": 0, "replicas": [1]}
    assert parse_assignment(json.dumps(document)) == plan


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "it is not JSON"),
        ("[]", 'it has no list "partitions"'),
        ('{"partitions":[]}', 'it has no list "partitions"'),
        ('{"version":2,"partitions":[{}]}', "version 2 is not supported; use 1"),
        ('{"partitions":[1]}', r"partitions\[0\] is not an object"),
        ('{"partitions":[{"topic":"t"}]}', r'partitions\[0\] needs "topic"'),
        ('{"partitions":[{"topic":"t","partition":0}]}', r't-0\) needs "replicas"'),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[]}]}', r't-0\) needs "replicas"'),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[true]}]}', r't-0\) needs "replicas"'),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1,1]}]}', "names a broker twice"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/d"]}]}', "names a log directory"),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}]}',
            "names t-0 a second time",
        ),
    ],
)
def test_what_is_no_plan_is_named(text: str, says: str) -> None:
    with pytest.raises(PlanRefused, match=says):
        parse_assignment(text)


def test_log_directories_may_be_left_to_the_broker() -> None:
    text = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}'
    assert parse_assignment(text) == {at(0): (1,)}
