"""Random histories of groups whose members speak both protocols, through the handlers and the shard.

After every step no partition has two owners, and exactly the members have timers. In the end each prefix of the log is
loaded as a cleaner may have left it at boundaries of batches, to the state that the group had then; and each window of
it is loaded without a failure, and without a partition of two owners (KAFKA-21102).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import CONSUMER_OFFSETS, GroupId
from oncelog.core.groups.classic.rebalance import TimerKey, TimerKind
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.model import GroupDecision
from oncelog.core.groups.modern.members import bytes_of_names, bytes_of_share
from oncelog.core.groups.shard import GroupShard
from oncelog.node.coordinators.group_topics import GroupTopics
from oncelog.wire.messages import heartbeat as classic
from oncelog.wire.messages import leave_group as lg
from oncelog.wire.messages import sync_group as sg
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.conformance.groups.log import compacted, state_of
from tests.scenario.groups.driver import Driver, replayed
from tests.unit.handlers.groups.bench import T_ID, U_ID, Bench, image, topic

STEPS: Final = 60
MEMBERS: Final = ("a", "b", "c")
INSTANCES: Final = (None, None, "i", "k")
SUBSCRIPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {"subscribed_topic_names": ["t"]},
    {"subscribed_topic_names": ["t", "u"]},
    {"subscribed_topic_names": [], "subscribed_topic_regex": "t|v"},
    {"subscribed_topic_names": ["u"], "subscribed_topic_regex": "."},
)


@dataclass
class BatchDriver(Driver):
    """A driver that remembers where each batch begins, and the state after it."""

    starts: list[int] = field(default_factory=list)
    states: list[object] = field(default_factory=list)

    def carry_out(self, decision: GroupDecision, token: int = 0) -> Any:
        if not decision.records or self.refuse_appends:
            return super().carry_out(decision, token)
        self.starts.append(len(self.log))
        reply = super().carry_out(decision, token)
        self.states.append(loaded_state(self.shard))
        return reply

    def check(self) -> None:
        # The base class replays the whole log after every step; this test does so in the end.
        self.shard.check()

    def batches(self) -> list[list[Any]]:
        return [self.log[start:end] for start, end in zip(self.starts, [*self.starts[1:], None], strict=True)]


class History:
    """Three clients and an administrator of one group, each of whom speaks either protocol."""

    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        self.bench = Bench()
        self.driver = self.bench.driver = BatchDriver(self.bench.driver.settings, topics=self.bench.driver.topics)
        assert isinstance(self.driver.topics, GroupTopics)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, list[TopicPartitions]] = {}
        self.classic: dict[str, int] = {}
        """Members of the classic protocol, by id, with their generations."""

    def step(self) -> None:
        self.driver.refuse_appends = self.entropy.random() < 0.1
        steps = (self.beat, self.beat, self.join, self.leave, self.classic_join, self.classic_beat, self.wait)
        self.entropy.choice((*steps, self.classic_join, self.classic_leave, self.commit, self.change_topics))()
        self.driver.refuse_appends = False

    def join(self) -> None:
        instance = self.entropy.choice(INSTANCES)
        member_id = self.entropy.choice(MEMBERS) if instance is None else f"{instance}{self.entropy.randint(0, 2)}"
        self.heartbeat(
            member_id,
            0,
            instance_id=instance,
            rebalance_timeout_ms=self.entropy.choice((5_000, 60_000)),
            topic_partitions=[],
            **self.entropy.choice(SUBSCRIPTIONS),
        )

    def beat(self) -> None:
        """A heartbeat that may keep what has to be given up."""
        if self.epochs:
            member_id = self.entropy.choice(sorted(self.epochs))
            owned = self.entropy.choice((None, self.owned[member_id], self.owned[member_id], []))
            change = self.entropy.choice((*SUBSCRIPTIONS, {}, {}, {}, {}, {}, {}))
            self.heartbeat(member_id, self.epochs[member_id], topic_partitions=owned, **change)

    def leave(self) -> None:
        if self.epochs:
            member_id = self.entropy.choice(sorted(self.epochs))
            self.heartbeat(member_id, self.entropy.choice((-1, -1, -2)), topic_partitions=None)

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> None:
        if epoch != 0 and member_id[0] in "ik":
            fields["instance_id"] = member_id[0]
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        answer = self.bench.ask(request, 1)
        if answer is None or answer.error_code != E.NONE or answer.member_epoch < 0:
            self.epochs.pop(member_id, None)
            return
        self.epochs[member_id] = answer.member_epoch
        owned = self.owned.setdefault(member_id, [])
        if answer.assignment is not None:
            owned[:] = [
                TopicPartitions(topic_id=part.topic_id, partitions=part.partitions)
                for part in answer.assignment.topic_partitions
            ]

    def classic_join(self) -> None:
        """JoinGroup and SyncGroup, of a new member or a known one."""
        instance = self.entropy.choice(INSTANCES)
        member_id = self.entropy.choice(("", "", *sorted(self.classic)))
        answer = self.bench.join(member_id, instance=instance)
        if answer is None:
            return
        if answer.error_code == E.MEMBER_ID_REQUIRED:
            answer = self.bench.join(answer.member_id)
        if answer is not None and answer.error_code == E.NONE:
            self.classic[answer.member_id] = answer.generation_id
            assignments = [
                sg.SyncGroupRequestAssignment(member_id=member.member_id, assignment=bytes(10))
                for member in answer.members
            ]
            fields = {"generation_id": answer.generation_id, "member_id": answer.member_id, "assignments": assignments}
            self.bench.ask(sg.SyncGroupRequest(group_id="g", **fields), 4)

    def classic_beat(self) -> None:
        if self.classic:
            member_id = self.entropy.choice(sorted(self.classic))
            request = classic.HeartbeatRequest(group_id="g", generation_id=self.classic[member_id], member_id=member_id)
            if self.bench.ask(request, 3).error_code == E.UNKNOWN_MEMBER_ID:
                del self.classic[member_id]

    def classic_leave(self) -> None:
        if self.classic:
            member_id = self.entropy.choice(sorted(self.classic))
            del self.classic[member_id]
            self.bench.ask(lg.LeaveGroupRequest(group_id="g", members=[lg.MemberIdentity(member_id=member_id)]), 5)

    def commit(self) -> None:
        self.bench.commit()

    def wait(self) -> None:
        self.driver.advance(self.entropy.choice((1, 1_000, 1_000, 5_000, 12_000, 46_000)))

    def change_topics(self) -> None:
        topics = [topic("t", T_ID, self.entropy.randint(2, 4)), topic("u", U_ID, 1)]
        if self.entropy.random() < 0.5:
            topics.append(topic("v", b"v" * 16, 2))
        self.bench.image = image(*topics, topic(CONSUMER_OFFSETS, b"o" * 16, 1))

    def check(self) -> None:
        group = self.driver.shard._groups.get(GroupId("g"))
        timers = self.driver.shard._timers
        deadline_of = timers.deadline_of
        members = group.members if isinstance(group, ConsumerGroup) else {}
        owners_of_timers = {key.member_id for key in timers._deadlines if key.kind > TimerKind.EXPIRY}
        assert owners_of_timers <= members.keys(), "a timer without a member"
        if group is None:
            return
        kind = TimerKind.MEMBER_SESSION if isinstance(group, ConsumerGroup) else TimerKind.SESSION
        for member_id in group.members:
            assert deadline_of(TimerKey(kind, "g", member_id)) is not None, f"{member_id} can stay for ever"
        if not isinstance(group, ConsumerGroup):
            return
        assert group.size_bytes() == counted_bytes(group), "the running count of the quota"
        check_owners(group)


def check_owners(group: object) -> None:
    """No partition of a consumer group has two owners."""
    owners: set[tuple[bytes, int]] = set()
    for member in group.members.values() if isinstance(group, ConsumerGroup) else ():
        mine = {
            (topic_id, partition)
            for part in (member.assigned, member.pending_revocation)
            for topic_id, partitions in part.items()
            for partition in partitions
        }
        assert owners.isdisjoint(mine), "a partition has two owners"
        owners |= mine
        assert isinstance(group, ConsumerGroup)
        assert all(group.owner(topic_id, partition) == member.member_id for topic_id, partition in mine)


def counted_bytes(group: ConsumerGroup) -> int:
    members = sum(member.size_bytes() for member in group.members.values())
    targets = sum(bytes_of_share(share) for share in group.target.values())
    return members + targets + sum(len(regex) + bytes_of_names(found.topics) for regex, found in group.regexes.items())


def loaded_state(shard: GroupShard) -> object:
    """The state that a load must restore; of a classic group only offsets, as rebalances are not in the log."""
    group = shard._groups.get(GroupId("g"))
    offsets = {group_id: offsets for group_id, (_, offsets) in shard.persisted(()).items() if offsets}
    return state_of(group) if isinstance(group, ConsumerGroup) else None, offsets


def run(seed: int) -> History:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
        history.check()
    return history


def check_loads(history: History, boundaries: int) -> None:
    """Load each prefix of the log after ``boundaries`` compactions, and as many windows that end with it."""
    batches, states, entropy = history.driver.batches(), history.driver.states, history.entropy
    assert len(batches) == len(states)
    for end, state in enumerate(states, 1):
        for _ in range(boundaries):
            mapped = entropy.randint(0, end)
            cleaned, drops = entropy.randint(0, mapped), entropy.random() < 0.5
            prefix = replayed(compacted(batches[:end], mapped, cleaned, drops_tombstones=drops))
            prefix.check()
            assert loaded_state(prefix) == state, (end, mapped, cleaned, drops)
            start = entropy.randint(0, mapped)
            window = replayed(
                compacted(batches[start:end], mapped - start, min(cleaned, mapped - start), drops_tombstones=drops)
            )
            window.check()
            for shard in (prefix, window):
                check_owners(shard._groups.get(GroupId("g")))


@pytest.mark.parametrize("seed", range(12))
def test_groups_of_both_protocols_hold_their_invariants_and_load_after_any_compaction(seed: int) -> None:
    check_loads(run(seed), 1)
