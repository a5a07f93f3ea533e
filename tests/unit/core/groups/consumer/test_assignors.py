"""Server-side assignors: complete, balanced, sticky, and the same for the same input."""

from __future__ import annotations

import random

import pytest

from oncelog.base.ids import MemberId, TopicId
from oncelog.core.groups.consumer.assignors import range as range_assignor
from oncelog.core.groups.consumer.assignors import uniform
from oncelog.core.groups.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec

TOPICS = [TopicId(bytes([number]) * 16) for number in range(1, 8)]
A, B, C = TOPICS[:3]


def members(**topics: list[TopicId]) -> dict[MemberId, MemberSpec]:
    return {MemberId(name): MemberSpec(frozenset(subscribed), {}) for name, subscribed in topics.items()}


def following(group: GroupSpec, assignment: Assignment) -> GroupSpec:
    """The group after its members have taken an assignment over."""
    return group._replace(
        members={
            member_id: member._replace(assigned=assignment.get(member_id, {}))
            for member_id, member in group.members.items()
        }
    )


def owners(assignment: Assignment) -> dict[tuple[TopicId, int], MemberId]:
    pairs = [
        ((topic, partition), member_id)
        for member_id, share in assignment.items()
        for topic, partitions in share.items()
        for partition in partitions
    ]
    assert len(dict(pairs)) == len(pairs), "a partition has two owners"
    return dict(pairs)


def sizes(assignment: Assignment) -> list[int]:
    return sorted(sum(map(len, share.values())) for share in assignment.values())


def test_range_gives_contiguous_ranges_larger_ones_first() -> None:
    group = GroupSpec(members(m1=[A, B], m2=[A, B], m3=[A]), {A: 7, B: 3})
    assignment = range_assignor.assign(group)
    assert assignment == {
        "m1": {A: {0, 1, 2}, B: {0, 1}},
        "m2": {A: {3, 4}, B: {2}},
        "m3": {A: {5, 6}},
    }


def test_range_puts_static_members_first_by_instance() -> None:
    static = {
        MemberId("z"): MemberSpec(frozenset([A]), {}, instance_id="i1"),
        MemberId("y"): MemberSpec(frozenset([A]), {}, instance_id="i2"),
        MemberId("a"): MemberSpec(frozenset([A]), {}),
    }
    assert range_assignor.assign(GroupSpec(static, {A: 3})) == {"z": {A: {0}}, "y": {A: {1}}, "a": {A: {2}}}


def test_uniform_moves_only_what_balance_needs_when_members_come_and_go() -> None:
    group = GroupSpec(members(m1=[A], m2=[A]), {A: 9})
    first = uniform.assign(group)
    assert sizes(first) == [4, 5]
    grown = following(group._replace(members={**group.members, **members(m3=[A])}), first)
    second = uniform.assign(grown)
    assert sizes(second) == [3, 3, 3]
    moved = {partition for partition, owner in owners(second).items() if owners(first)[partition] != owner}
    assert len(moved) == 3
    shrunk = following(
        grown._replace(members={name: grown.members[name] for name in grown.members if name != "m1"}), second
    )
    third = uniform.assign(shrunk)
    kept = [partition for partition, owner in owners(second).items() if owner != "m1"]
    assert all(owners(third)[partition] == owners(second)[partition] for partition in kept)


@pytest.mark.parametrize("seed", range(200))
def test_uniform_over_random_histories(seed: int) -> None:
    entropy = random.Random(seed)
    counts = {topic: entropy.randint(1, 12) for topic in TOPICS[: entropy.randint(1, 7)]}
    same = entropy.random() < 0.5
    subscribed = entropy.sample(list(counts), entropy.randint(1, len(counts)))
    group = GroupSpec({}, counts)
    for step in range(8):
        alive = dict(group.members)
        if alive and entropy.random() < 0.4:
            alive.pop(entropy.choice(sorted(alive)))
        else:
            topics = subscribed if same else entropy.sample(list(counts), entropy.randint(1, len(counts)))
            alive[MemberId(f"m{step}")] = MemberSpec(frozenset(topics), {})
        group = group._replace(members=alive)
        assignment = uniform.assign(group)
        expected = {
            (topic, partition)
            for topic in {topic for member in alive.values() for topic in member.topics}
            for partition in range(counts[topic])
        }
        assert owners(assignment).keys() == expected
        assert all(topic in alive[member].topics for (topic, _), member in owners(assignment).items())
        if same and alive:
            assert max(sizes(assignment)) - min(sizes(assignment)) <= 1
        group = following(group, assignment)
        assert uniform.assign(group) == assignment, "a balanced assignment stays"


def test_a_partition_that_two_members_claim_has_one_owner() -> None:
    claims = {A: frozenset([0, 1])}
    group = GroupSpec({MemberId(name): MemberSpec(frozenset([A]), claims) for name in ("m1", "m2")}, {A: 2})
    assert sizes(uniform.assign(group)) == [1, 1]
