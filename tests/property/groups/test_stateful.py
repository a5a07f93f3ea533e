"""Random requests in random order: offsets against a naive model, groups against their invariants and their log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, TopicName, TopicPartition
from oncelog.core.groups.model import CommitReply, JoinReply, SyncReply
from oncelog.core.groups.settings import GroupSettings
from tests.scenario.groups.driver import Driver

GROUPS = st.sampled_from(["g", "h"])
TOPICS = st.sampled_from(["t", "u"])
PARTITIONS = st.integers(0, 2)


class Offsets(RuleBasedStateMachine):
    """Commits, deletions and transactions of simple groups, against dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.model: dict[tuple[str, str, int], int] = {}

    @rule(group=GROUPS, topic=TOPICS, offsets=st.dictionaries(PARTITIONS, st.integers(-2, 2**63 - 1), min_size=1))
    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """OffsetCommit."""
        reply = self.driver.commit(offsets, group=group, topic=topic)
        assert isinstance(reply, CommitReply)
        assert set(reply.partitions) == {ErrorCode.NONE}
        self.model.update({(group, topic, partition): offset for partition, offset in offsets.items()})

    @rule(group=GROUPS, offset=st.integers(0, 9))
    def refused_append(self, group: str, offset: int) -> None:
        """A commit that the log does not take leaves no trace."""
        self.driver.refuse_appends = True
        assert self.driver.commit({0: offset}, group=group) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    @rule(group=GROUPS, topic=TOPICS, partition=PARTITIONS)
    def delete(self, group: str, topic: str, partition: int) -> None:
        """OffsetDelete."""
        gone = [TopicPartition(TopicName(topic), partition)]
        self.driver.carry_out(self.driver.shard.delete_offsets(GroupId(group), gone, 0, 0))
        self.model.pop((group, topic, partition), None)

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        """DeleteGroups."""
        self.driver.carry_out(self.driver.shard.delete_group(GroupId(group), 0, 0))
        self.model = {key: offset for key, offset in self.model.items() if key[0] != group}

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        """A topic with three partitions goes."""
        gone = [TopicPartition(TopicName(topic), partition) for partition in range(3)]
        self.driver.carry_out(self.driver.shard.partitions_deleted(gone, 0))
        self.model = {key: offset for key, offset in self.model.items() if key[1] != topic}

    @invariant()
    def all_offsets_are_those_of_the_model(self) -> None:
        """The driver has compared the log already."""
        for group in ("g", "h"):
            mine = {(group, topic, partition): o for (topic, partition), o in self.driver.fetch(group).items()}
            assert mine == {key: offset for key, offset in self.model.items() if key[0] == group}


class Members(RuleBasedStateMachine):
    """Members that come, go, die and forget; after each step the driver checks G1–G8, O1–O4 and the log."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(GroupSettings(initial_rebalance_delay_ms=1000, max_size=4))
        self.known: list[tuple[str, str | None]] = [("zz", None)]
        self.seen: set[int] = set()
        self.generation = 0

    def learn(self) -> None:
        """Note ids from replies; a token is answered once (the driver asserts that), generations only rise."""
        for token in sorted(self.driver.replies.keys() - self.seen):
            reply = self.driver.replies[token]
            if isinstance(reply, JoinReply) and reply.member_id:
                instance = reply.member_id[:2] if reply.member_id.startswith("i") else None
                self.known.append((reply.member_id, instance))
        self.seen.update(self.driver.replies)  # not in the order of their requests: a join waits for others

    @rule(
        static=st.sampled_from([None, None, "i1", "i2"]),
        version=st.sampled_from([3, 9]),
        protocols=st.sampled_from([("x",), ("x", "y"), ("y", "x")]),
    )
    def join_new(self, static: str | None, version: int, protocols: tuple[str, ...]) -> None:
        """A member without an id."""
        self.driver.join(instance=static, version=version, protocols=protocols)
        self.learn()

    @rule(data=st.data(), protocols=st.sampled_from([("x",), ("x", "y"), ("y", "x")]))
    def join_again(self, data: st.DataObject, protocols: tuple[str, ...]) -> None:
        """A member with an id, still valid or not."""
        member_id, instance = self.pick(data)
        self.driver.join(member_id, instance=instance, protocols=protocols)
        self.learn()

    @rule(data=st.data(), refuse=st.booleans())
    def sync(self, data: st.DataObject, refuse: bool) -> None:
        """SyncGroup of the current generation, with an assignment for all."""
        member_id, instance = self.pick(data)
        self.driver.refuse_appends = refuse
        assignment = {m: m.encode() for m in self.driver.members()}
        reply = self.driver.sync(member_id, self.current(), assignment, instance=instance)
        self.driver.refuse_appends = False
        if isinstance(reply, SyncReply) and reply.error_code is ErrorCode.NONE:
            assert reply.assignment.decode() in {*(m for m, _ in self.known), ""}

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        """Heartbeat."""
        member_id, instance = self.pick(data)
        self.driver.heartbeat(member_id, self.current(), instance=instance)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """LeaveGroup of two."""
        self.driver.leave(self.pick(data), self.pick(data))
        self.learn()

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """OffsetCommit."""
        member_id, instance = self.pick(data)
        self.driver.commit({0: 1}, member_id, self.current(), instance=instance)

    @rule(milliseconds=st.sampled_from([1, 999, 1000, 9_999, 60_000, 300_000]))
    def pass_time(self, milliseconds: int) -> None:
        """Sessions, delays and rebalances end."""
        self.driver.advance(milliseconds)
        self.learn()

    @rule()
    def restart(self) -> None:
        """Another broker loads the log; whoever waited is sent away."""
        before = self.driver
        self.driver = Driver(before.settings, before.now_ms, before.log, before.ids)
        self.seen.clear()
        self.generation = 0

    @rule()
    def settle(self) -> None:
        """Everybody behaves: the delay passes, all join, all bring or ask for the assignment."""
        self.driver.advance(1000)
        for member_id, instance in self.members():
            self.driver.join(member_id, instance=instance, protocols=("x", "y"))
        for member_id, instance in self.members():
            assignment = {m: m.encode() for m, _ in self.members()}
            self.driver.sync(member_id, self.current(), assignment, instance=instance)
        self.learn()

    def members(self) -> list[tuple[str, str | None]]:
        """The members of the group now, by the shard's own account."""
        group: Any = self.driver.shard._groups.get(GroupId("g"))
        return [] if group is None else [(m.member_id, m.group_instance_id) for m in group.members.values()]

    def pick(self, data: st.DataObject) -> tuple[str, str | None]:
        """One of the members, or of the newest ids."""
        return data.draw(st.sampled_from([*self.members(), *self.members(), *self.known[-2:]]))

    def current(self) -> int:
        """The generation by the shard's own account."""
        group: Any = self.driver.shard._groups.get(GroupId("g"))
        return 0 if group is None else int(group.generation)

    @invariant()
    def generations_rise(self) -> None:
        """G9, while the group lives."""
        self.generation = 0 if self.driver.state() == "Dead" else self.generation
        assert self.current() >= self.generation
        self.generation = self.current()


TestOffsets = pytest.mark.slow(Offsets.TestCase)
TestOffsets.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestMembers = pytest.mark.slow(Members.TestCase)
TestMembers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
