"""Requests of and about share groups, and share coordinators by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.base.errors import ErrorCode as E
from oncelog.core.share_state.model import ShareKey
from oncelog.wire.messages import describe_share_group_offsets as offsets_wire
from oncelog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from oncelog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import create_topic


@dataclass
class Outcome:
    error_code: E = E.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = -1
    delivery_complete_count: int = -1


@dataclass
class Coordinators:
    """Share coordinators by hand: a partition's state is its epoch and its start offset."""

    states: dict[ShareKey, tuple[int, int]] = field(default_factory=dict)
    errors: dict[int, E] = field(default_factory=dict)
    """Errors by partition."""
    knows_fenced: bool = False
    """Summaries do not fail."""
    holds: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)

    cancelled: int = 0

    def cancel(self) -> None:
        self.cancelled += 1

    def initialize(self, key, state_epoch, start_offset, done):
        def answer() -> None:
            error = self.errors.get(key.partition, E.NONE)
            if error is E.NONE:
                self.states[key] = state_epoch, start_offset
            done(Outcome(error, "no" if error else None))

        self._answer(answer)
        return self.cancel

    def delete(self, key, done):
        error = self.errors.get(key.partition, E.NONE)
        if error is E.NONE:
            self.states.pop(key, None)
        self._answer(lambda: done(Outcome(error, "no" if error else None)))
        return self.cancel

    def summary(self, key, leader_epoch, done):
        error = E.NONE if self.knows_fenced else self.errors.get(key.partition, E.NONE)
        epoch, start = self.states.get(key, (0, -1))
        self._answer(lambda: done(Outcome(error, None, epoch, 3, start, -1 if start == -1 else 0)))
        return self.cancel

    def starts(self, topic_id: bytes) -> dict[int, int]:
        return {key.partition: start for key, (_, start) in self.states.items() if key.topic_id == topic_id}

    def _answer(self, answer: Callable[[], None]) -> None:
        if self.holds:
            self.held.append(answer)
        else:
            answer()


def broker(shares: Coordinators) -> Driver:
    driver = Driver()
    driver.node.share.persister = shares
    peer = driver.connect()
    create_topic(peer, "t", 2)
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    return driver


def beat(peer: Peer, epoch: int, member: str = "m", topics: list[str] | None = None, group: str = "g"):
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
    )
    response: ShareGroupHeartbeatResponse = peer.ask(request, 1)
    return response


def join(peer: Peer, member: str = "m", topics: tuple[str, ...] = ("t",), group: str = "g"):
    response = beat(peer, 0, member, list(topics), group)
    assert response.error_code == 0, response
    return response


def assigned(response: ShareGroupHeartbeatResponse) -> list[int] | None:
    """The partitions of the one topic, None if the answer has no assignment."""
    if response.assignment is None:
        return None
    return [number for topic in response.assignment.topic_partitions for number in topic.partitions]


def topic_id(driver: Driver, name: str = "t") -> bytes:
    return driver.node.cluster.image.topics[name].topic_id


def settled(driver: Driver, peer: Peer, member: str = "m", epoch: int = 2):
    """A member with all partitions: its second heartbeat brings them, once the assignment interval has passed."""
    driver.advance(1000)
    response = beat(peer, epoch, member)
    assert response.error_code == 0, response
    return response


def describe_offsets(peer: Peer, topics: dict[str, list[int]] | None, version: int = 1, group: str = "g"):
    named = None
    if topics is not None:
        named = [
            offsets_wire.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
    request = offsets_wire.DescribeShareGroupOffsetsRequest(
        groups=[offsets_wire.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named)]
    )
    (answer,) = peer.ask(request, version).groups
    return answer


def alter(peer: Peer, starts: dict[str, dict[int, int]]):
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=start)
                for number, start in partitions.items()
            ],
        )
        for name, partitions in starts.items()
    ]
    return peer.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=topics), 0)


def delete_offsets(peer: Peer, *names: str):
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    return peer.ask(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics), 0)


def parts(answer) -> list[tuple]:
    return [
        (topic.topic_name, part.partition_index, part.start_offset, part.lag, part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    ]
