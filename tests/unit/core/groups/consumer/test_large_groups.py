"""Work that a large group costs, counted: it must not grow with members times topics."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import GroupId, MemberId, TopicId, TopicName
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat
from oncelog.core.groups.model import GroupDecision
from oncelog.core.groups.modern.members import MemberState
from oncelog.core.groups.modern.topics import Topics
from oncelog.node.coordinators.group_topics import GroupTopics
from tests.scenario.groups.driver import Driver
from tests.unit.handlers.groups.bench import Bench, image, topic

MEMBERS, TOPICS = 60, 30
NAMES = [TopicName(f"t{number}") for number in range(TOPICS)]


class CountedTopics(GroupTopics):
    """Counts the look-ups of topics by name."""

    look_ups = 0

    def id_of(self, name: TopicName) -> TopicId | None:
        self.look_ups += 1
        return super().id_of(name)


class LargeGroup:
    """A group whose members all subscribe to the same topics."""

    def __init__(self) -> None:
        bench: Any = Bench()
        bench.image = image(*(topic(name, b"%16d" % number, 4) for number, name in enumerate(NAMES)))
        self.topics = CountedTopics(bench)
        topics: Topics = self.topics
        self.driver = Driver(topics=topics)
        self.epochs = {f"m{number}": self.beat(f"m{number}", 0)[0] for number in range(MEMBERS)}

    def beat(self, member: str, epoch: int) -> tuple[int, GroupDecision]:
        """The member's epoch, and the decision; nothing is owned yet, so that nothing has to be given up."""
        names = frozenset(NAMES) if epoch == 0 else None
        request = ConsumerHeartbeat(
            GroupId("g"), MemberId(member), epoch, rebalance_timeout_ms=9000, topics=names, owned={}
        )
        token = self.driver.token()
        decision = self.driver.shard.consumer_heartbeat(request, token, self.driver.now_ms)
        for record in decision.records:
            self.driver.shard.apply(*record)
        assert decision.follow_up is not None
        decision.follow_up(self.driver.now_ms)
        reply: Any = decision.reply
        assert reply.error_code is E.NONE
        return reply.answer.epoch, decision


@pytest.fixture
def large() -> LargeGroup:
    return LargeGroup()


def test_a_target_looks_up_topics_once_for_all_who_subscribe_alike(large: LargeGroup) -> None:
    large.driver.now_ms += 1000
    large.topics.look_ups = 0
    _, decision = large.beat("late", 0)
    assert len(decision.records) > MEMBERS, "a new share for nearly every member"
    assert large.topics.look_ups < 5 * TOPICS


def test_a_steady_heartbeat_writes_nothing_and_looks_nothing_up(large: LargeGroup) -> None:
    large.driver.now_ms += 1000
    for _ in range(3):
        for member, epoch in large.epochs.items():
            large.epochs[member] = large.beat(member, epoch)[0]
    large.topics.look_ups = 0
    _, decision = large.beat("m1", large.epochs["m1"])
    assert decision.records == []
    assert large.topics.look_ups == 0


def test_a_member_that_waits_for_partitions_looks_up_only_its_own(large: LargeGroup) -> None:
    large.driver.now_ms += 1000
    member = large.driver.shard._groups[GroupId("g")].members[MemberId("m2")]
    large.beat("m2", member.epoch)  # compares the topics with the last epoch's, once
    member = large.driver.shard._groups[GroupId("g")].members[MemberId("m2")]
    waiting = member._replace(state=MemberState.UNRELEASED_PARTITIONS, assigned={})
    large.driver.shard.apply(*records.encode(records.current_assignment(GroupId("g"), waiting)))
    large.topics.look_ups = 0
    large.beat("m2", member.epoch)
    assert large.topics.look_ups < TOPICS
