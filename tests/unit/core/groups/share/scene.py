"""A share group in a shard with its log, topics that change, and share coordinators that answer when told."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, Offset, TopicId, TopicName, TopicPartition
from oncelog.core.groups.model import GroupDecision, Record
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.shard import GroupShard
from oncelog.core.groups.share.decision import PartitionState
from oncelog.core.groups.share.group import ShareGroup
from oncelog.core.groups.share.heartbeat import ShareHeartbeat
from oncelog.core.groups.share.settings import ShareGroupSettings
from oncelog.core.groups.share_groups import OffsetsReply, ShareHeartbeatReply
from tests.shard_time import ShardTime

GROUP = GroupId("g")


class SomeTopics:
    """Topics by name, each with an id and a number of partitions."""

    def __init__(self, **partitions: int) -> None:
        self.version = self.version_with_new_topics = 0
        self._topics: dict[TopicName, tuple[TopicId, int]] = {}
        self._made = 0
        for name, count in partitions.items():
            self.put(name, count)

    def put(self, name: str, count: int, *, anew: bool = False) -> None:
        """Make a topic, or let it grow; ``anew``: after it was deleted."""
        topic = self._topics.get(TopicName(name))
        if topic is None or anew:
            self._made += 1
            topic = TopicId(bytes([self._made]) * 16), count
        self._topics[TopicName(name)] = topic[0], count
        self.version += 1

    def delete(self, name: str) -> None:
        del self._topics[TopicName(name)]
        self.version += 1

    def names(self) -> list[str]:
        return sorted(self._topics)

    def id_of(self, name: TopicName) -> TopicId | None:
        topic = self._topics.get(name)
        return None if topic is None else topic[0]

    def name_of(self, topic: TopicId) -> TopicName | None:
        return next((name for name, (topic_id, _) in self._topics.items() if topic_id == topic), None)

    def partitions_of(self, topic: TopicId) -> int:
        return next((count for topic_id, count in self._topics.values() if topic_id == topic), 0)

    def hash_of(self, name: TopicName) -> int:
        topic, count = self._topics[name]
        return topic[0] * 1000 + count


@dataclass
class Scene(ShardTime):
    """Drives a shard: decisions are appended and applied at once, unless ``refuses_appends``."""

    topics: SomeTopics = field(default_factory=lambda: SomeTopics(t=2))
    settings: ShareGroupSettings = field(default_factory=lambda: ShareGroupSettings(assignment_interval_ms=0))
    limits: GroupSettings = field(default_factory=GroupSettings)
    now_ms: int = 1_000
    batches: list[list[Record]] = field(default_factory=list)
    pending: list[Sequence[PartitionState]] = field(default_factory=list)
    """Initializations without an outcome."""
    refuses_appends: bool = False
    states: list[object] = field(default_factory=list)
    """The group's state after each batch."""

    def __post_init__(self) -> None:
        self.shard = self.loaded(record for batch in self.batches for record in batch)

    def loaded(self, records: Iterable[Record]) -> GroupShard:
        """A shard that has loaded a log."""
        shard = GroupShard(0, self.limits, topics=self.topics, share_settings_of=lambda _group_id: self.settings)
        for key, value in records:
            shard.apply(key, value)
        shard.loaded(self.now_ms)
        return shard

    @property
    def group(self) -> ShareGroup | None:
        group = self.shard._groups.get(GROUP)
        assert group is None or isinstance(group, ShareGroup), group
        return group

    def carry_out(self, decision: GroupDecision) -> Any:
        """Append and apply; returns the reply, or the error of a log that refuses."""
        if decision.records and self.refuses_appends:
            self.carry_out(self.shard.append_failed(decision, ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now_ms))
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if decision.records:
            self.batches.append(list(decision.records))
        for key, value in decision.records:
            self.shard.apply(key, value)
        if decision.records:
            self.states.append(state_of(self.shard._groups.get(GROUP)))
        if decision.follow_up is not None:
            decision.follow_up(self.now_ms)
        self.shard.check()
        return decision.reply

    def beat(
        self, epoch: int, member: str = "m", topics: Sequence[str] | None = None, *, initializes: bool = True
    ) -> ShareHeartbeatReply | ErrorCode:
        """A heartbeat; unless told otherwise share coordinators succeed at once."""
        names = None if topics is None else frozenset(map(TopicName, topics))
        request = ShareHeartbeat(GROUP, MemberId(member), epoch, None, names, "client", "/host")
        reply: ShareHeartbeatReply | ErrorCode = self.carry_out(self.shard.share.heartbeat(request, self.now_ms))
        if isinstance(reply, ShareHeartbeatReply) and reply.to_initialize:
            self.pending.append(reply.to_initialize)
            if initializes:
                self.initialized(-1)
        return reply

    def join(self, member: str = "m", topics: Sequence[str] = ("t",)) -> int:
        """The member's epoch."""
        reply = self.beat(0, member, topics)
        assert isinstance(reply, ShareHeartbeatReply)
        assert reply.answer is not None, reply
        return reply.answer.epoch

    def initialized(self, index: int, *, failed: bool = False) -> None:
        """An outcome of an initialization arrives."""
        partitions: dict[TopicId, frozenset[int]] = {}
        for state in self.pending.pop(index):
            partitions[state.topic] = partitions.get(state.topic, frozenset()) | {state.partition}
        none: Mapping[TopicId, frozenset[int]] = {}
        done, lost = (none, partitions) if failed else (partitions, none)
        self.carry_out(self.shard.share.initialized(GROUP, done, lost))

    def alter(self, **starts: Mapping[int, int]) -> OffsetsReply | ErrorCode:
        offsets = {
            TopicName(name): {number: Offset(start) for number, start in starts[name].items()} for name in starts
        }
        reply: OffsetsReply | ErrorCode = self.carry_out(self.shard.share.alter_offsets(GROUP, offsets))
        return reply

    def delete_topic(self, name: str) -> None:
        gone = [TopicPartition(TopicName(name), number) for number in range(20)]
        self.topics.delete(name)
        self.carry_out(self.shard.partitions_deleted(gone, self.now_ms))
        self.advance(0)


class RandomHistory:
    """Members, share coordinators, topics and an administrator of one group, drawn by a seed."""

    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        self.scene = Scene(
            SomeTopics(t=2, u=1), ShareGroupSettings(assignment_interval_ms=self.entropy.choice([0, 1000]))
        )
        self.epochs: dict[str, int] = {}

    def step(self) -> None:
        scene, entropy = self.scene, self.entropy
        scene.refuses_appends = entropy.random() < 0.1
        steps = [self.join, self.beat, self.beat, self.beat, self.answer, self.answer, self.leave, self.wait]
        entropy.choice([*steps, self.change_topics, self.alter, self.delete])()
        scene.refuses_appends = False

    def send(self, member: str, epoch: int, topics: Sequence[str] | None = None) -> None:
        reply = self.scene.beat(epoch, member, topics, initializes=False)
        if isinstance(reply, ShareHeartbeatReply) and reply.answer is not None and reply.answer.epoch >= 0:
            self.epochs[member] = reply.answer.epoch
        else:
            self.epochs.pop(member, None)

    def join(self) -> None:
        names = self.entropy.sample(["t", "u", "new"], self.entropy.randint(1, 3))
        self.send(self.entropy.choice("abcd"), 0, names)

    def beat(self) -> None:
        for member in self.entropy.sample(sorted(self.epochs), min(1, len(self.epochs))):
            self.send(member, self.epochs[member], self.entropy.choice([None, None, ["t"], ["t", "u"]]))

    def leave(self) -> None:
        for member in self.entropy.sample(sorted(self.epochs), self.entropy.randint(0, len(self.epochs))):
            self.send(member, -1)

    def answer(self) -> None:
        if self.scene.pending:
            index = self.entropy.randrange(len(self.scene.pending))
            self.scene.initialized(index, failed=self.entropy.random() < 0.2)

    def wait(self) -> None:
        self.scene.advance(self.entropy.choice([10, 1000, 31_000, 46_000]))

    def change_topics(self) -> None:
        topics, name = self.scene.topics, self.entropy.choice(["t", "u", "new"])
        if name not in topics.names():
            topics.put(name, 1, anew=True)
        elif self.entropy.random() < 0.3:
            self.scene.delete_topic(name)
        else:
            topics.put(name, topics.partitions_of(topics.id_of(TopicName(name)) or TopicId(b"")) + 1)

    def alter(self) -> None:
        reply = self.scene.alter(t={0: 5}, u={0: 1})
        if isinstance(reply, OffsetsReply) and reply.states:
            self.scene.pending.append(reply.states)

    def delete(self) -> None:
        scene = self.scene
        scene.carry_out(scene.shard.share.delete_offsets(GROUP, [TopicName("t")], scene.now_ms))
        if self.entropy.random() < 0.5:
            reply = scene.carry_out(scene.shard.share.begin_group_deletion(GROUP, scene.now_ms))
            if isinstance(reply, OffsetsReply) and reply.error_code is ErrorCode.NONE:
                scene.carry_out(scene.shard.delete_group(GROUP, 0, scene.now_ms))


def state_of(group: object) -> object:
    """Everything that a load must restore of a group."""
    if not isinstance(group, ShareGroup):
        return None
    return (
        (group.epoch, group.metadata_hash, group.target_epoch, group.target_timestamp_ms),
        sorted((member_id, tuple(member)) for member_id, member in group.members.items()),
        {member_id: share for member_id, share in group.target.items() if share},
        group.state_topics,
        group.state,
    )
