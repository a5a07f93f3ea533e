"""The ``uniform`` assignor beside Apache Kafka's, on the same histories: as balanced, and no more moves.

Equal assignments are no aim: Apache Kafka's follow from the order of hash maps. Neither of its assignors, ``uniform``
and ``range``, looks at racks (4.3.1); ours neither.
"""

from __future__ import annotations

import random

import pytest

from oncelog.base.ids import MemberId, TopicId
from oncelog.core.groups.consumer.assignors import uniform
from oncelog.core.groups.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec
from tests.conformance.judge import Judge, judge_of_groups

pytestmark = [pytest.mark.java, pytest.mark.peer("group-judge"), pytest.mark.slow]

SEEDS = 200
"""About two seconds."""
STEPS = 10


def kafkas(judge: Judge, group: GroupSpec) -> Assignment:
    """Apache Kafka's assignment."""
    members = {
        member_id: {
            "topics": [topic.hex() for topic in member.topics],
            "assigned": {topic.hex(): sorted(partitions) for topic, partitions in member.assigned.items()},
        }
        for member_id, member in group.members.items()
    }
    counts = {topic.hex(): count for topic, count in group.partition_counts.items()}
    shares = judge(op="assign", members=members, counts=counts)["shares"]
    return {
        MemberId(member_id): {
            TopicId(bytes.fromhex(topic)): frozenset(partitions) for topic, partitions in share.items() if partitions
        }
        for member_id, share in shares.items()
    }


def moves(group: GroupSpec, assignment: Assignment) -> int:
    """The partitions that members lose although they still subscribe to their topic."""
    return sum(
        len(partitions - assignment.get(member_id, {}).get(topic, frozenset()))
        for member_id, member in group.members.items()
        for topic, partitions in member.assigned.items()
        if topic in member.topics
    )


def imbalance(group: GroupSpec, assignment: Assignment) -> int:
    """The largest gap that a move could narrow: one member has a partition of a topic, another could take it."""
    sizes = {member_id: sum(map(len, assignment.get(member_id, {}).values())) for member_id in group.members}
    return max(
        (
            sizes[giver] - sizes[taker]
            for giver, share in assignment.items()
            for topic in share
            for taker, member in group.members.items()
            if topic in member.topics
        ),
        default=0,
    )


def changed(entropy: random.Random, group: GroupSpec, number: int, *, same: bool) -> GroupSpec:
    """A member joins or leaves, or a topic grows."""
    members, counts = dict(group.members), dict(group.partition_counts)
    chance = entropy.random()
    if members and chance < 0.35:
        members.pop(entropy.choice(sorted(members)))
    elif chance < 0.45:
        counts[entropy.choice(sorted(counts))] += entropy.randint(1, 5)
    if not members or chance >= 0.45:
        topics = list(counts) if same else entropy.sample(list(counts), entropy.randint(1, len(counts)))
        members[MemberId(f"m{number}")] = MemberSpec(frozenset(topics), {})
    return GroupSpec(members, counts)


@pytest.mark.parametrize("same", [True, False], ids=["same-topics", "different-topics"])
def test_as_balanced_as_apache_kafka_with_no_more_moves(same: bool) -> None:
    ours_moved = theirs_moved = ours_worst = theirs_worst = 0
    with judge_of_groups() as judge:
        for seed in range(SEEDS):
            entropy = random.Random(seed)
            counts = {TopicId(bytes([number]) * 16): entropy.randint(1, 20) for number in range(entropy.randint(1, 6))}
            group = GroupSpec({}, counts)
            for step in range(STEPS):
                group = changed(entropy, group, step, same=same)
                ours, theirs = uniform.assign(group), kafkas(judge, group)
                ours_worst = max(ours_worst, imbalance(group, ours))
                theirs_worst = max(theirs_worst, imbalance(group, theirs))
                ours_moved += moves(group, ours)
                theirs_moved += moves(group, theirs)
                assert imbalance(group, ours) <= 1, seed
                if same:
                    assert moves(group, ours) <= moves(group, theirs), seed
                taken_over = {
                    member_id: member._replace(assigned=ours.get(member_id, {}))
                    for member_id, member in group.members.items()
                }
                group = group._replace(members=taken_over)
    print(f"moves: {ours_moved}, Apache Kafka's {theirs_moved}; worst gap {ours_worst}, {theirs_worst}")
    assert ours_moved <= theirs_moved
