"""Random histories of share groups, and assignments, beside Apache Kafka's own group coordinator: about 20 seconds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.base.ids import MemberId, TopicId
from oncelog.core.groups.share import heartbeat
from oncelog.core.groups.share.assignor import Assignment, ShareMemberSpec, ShareSpec, assign
from tests.conformance.groups.share_histories import ShareHistory, assign_everything
from tests.conformance.judge import Judge, judge_of_share_groups

pytestmark = [pytest.mark.java, pytest.mark.slow]
SEEDS = 300


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judge_of_share_groups(tmp_path_factory.mktemp("judge")) as judge:
        yield judge


def test_histories_are_apache_kafkas(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "assign", assign_everything)
    for seed in range(SEEDS):
        ShareHistory(judge, seed).run()


def test_assignments_are_as_even_as_apache_kafkas_and_move_no_more(judge: Judge) -> None:
    """The order of Apache Kafka's hash maps decides who gets the odd partition, so single shares are not compared."""
    entropy, moves = random.Random(7), Counter[str]()
    for _ in range(300):
        spec = _some_spec(entropy)
        for step in range(3):
            ours = assign(spec)
            theirs = _their_assignment(judge, spec)
            _check_sharing(spec, ours)
            # Apache Kafka's walk over members may end before one that can take a partition.
            assert _holders(ours).total() >= _holders(theirs).total(), spec
            moves["ours"] += _moved(spec, ours)
            moves["theirs"] += _moved(spec, theirs)
            spec = _next_spec(entropy, spec, ours if step % 2 else theirs)
    assert moves["ours"] <= moves["theirs"] * 1.05, moves


def _some_spec(entropy: random.Random) -> ShareSpec:
    topics = [TopicId(bytes([index + 1]) * 16) for index in range(entropy.randint(1, 3))]
    assignable = {topic: sorted(entropy.sample(range(8), entropy.randint(1, 8))) for topic in topics}
    members = {MemberId(f"m{index}"): _some_member(entropy, topics) for index in range(entropy.randint(1, 9))}
    return _spec(members, assignable)


def _some_member(entropy: random.Random, topics: list[TopicId]) -> ShareMemberSpec:
    chosen = topics if entropy.random() < 0.6 else entropy.sample(topics, entropy.randint(1, len(topics)))
    return ShareMemberSpec(frozenset(chosen), {})


def _spec(members: dict[MemberId, ShareMemberSpec], assignable: dict[TopicId, list[int]]) -> ShareSpec:
    subscribed = frozenset[TopicId]().union(*(member.topics for member in members.values()))
    used = {topic: numbers for topic, numbers in assignable.items() if topic in subscribed}
    return ShareSpec(members, len({member.topics for member in members.values()}) == 1, used)


def _next_spec(entropy: random.Random, spec: ShareSpec, assignment: Assignment) -> ShareSpec:
    """A member joins or leaves, or partitions appear, after an assignment."""
    members = {
        member_id: member._replace(assigned=assignment.get(member_id, {})) for member_id, member in spec.members.items()
    }
    assignable = {topic: list(numbers) for topic, numbers in spec.assignable.items()}
    change = entropy.random()
    if change < 0.4:
        members[MemberId(f"n{entropy.randint(0, 99)}")] = _some_member(entropy, sorted(assignable))
    elif change < 0.8 and len(members) > 1:
        del members[entropy.choice(sorted(members))]
    else:
        topic = entropy.choice(sorted(assignable))
        assignable[topic] = sorted({*assignable[topic], 8, 9})
    return _spec(members, assignable)


def _their_assignment(judge: Judge, spec: ShareSpec) -> Assignment:
    answer: dict[str, Any] = judge(
        op="assign",
        members={
            member_id: {
                "topics": [topic.hex() for topic in sorted(member.topics)],
                "assigned": {topic.hex(): sorted(numbers) for topic, numbers in member.assigned.items()},
            }
            for member_id, member in spec.members.items()
        },
        assignable={topic.hex(): list(numbers) for topic, numbers in spec.assignable.items()},
    )
    return {
        MemberId(member_id): {TopicId(bytes.fromhex(topic)): frozenset(numbers) for topic, numbers in share.items()}
        for member_id, share in answer["shares"].items()
    }


def _holders(assignment: Assignment) -> Counter[tuple[TopicId, int]]:
    """How many members each partition has."""
    return Counter(
        (topic, number) for share in assignment.values() for topic, numbers in share.items() for number in numbers
    )


def _check_sharing(spec: ShareSpec, assignment: Assignment) -> None:
    """Every partition has a member, and no more than it takes to give every subscriber one."""
    holders = _holders(assignment)
    together = [(number, topic) for topic, numbers in spec.assignable.items() for number in numbers]
    for topic, numbers in spec.assignable.items():
        subscribers = sum(topic in member.topics for member in spec.members.values())
        shared = len(together) if spec.has_one_subscription else len(numbers)
        assert all(1 <= holders[topic, number] <= -(-subscribers // shared) for number in numbers), spec
    for member_id, share in assignment.items():
        assert share.keys() <= spec.members[member_id].topics


def _moved(spec: ShareSpec, assignment: Assignment) -> int:
    """Partitions that members get anew."""
    return sum(
        len(numbers - spec.members[member_id].assigned.get(topic, frozenset()))
        for member_id, share in assignment.items()
        for topic, numbers in share.items()
    )
