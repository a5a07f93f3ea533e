"""Requests about states of share partitions, short, and a persister's answers."""

from __future__ import annotations

from typing import Any

from oncelog.base.ids import GroupId, LeaderEpoch, Offset, TopicId
from oncelog.core.share_state.model import InitializeState, ReadState, ShareKey, StateReply, StateRequest, WriteState
from oncelog.handlers.share.state_messages import message_of, replies_in
from oncelog.records.internal.share_state_records import StateBatch
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest

VERSIONS = {83: 0, 84: 0, 85: 1, 86: 0, 87: 1}
SHARE = 2


def key_of(driver: Any, topic: str = "t", partition: int = 0, group: str = "g") -> ShareKey:
    topic_id: TopicId = driver.node.cluster.image.topics[topic].topic_id
    return ShareKey(GroupId(group), topic_id, partition)


def find(peer: Any, *keys: str, version: int = 6) -> list[Any]:
    """Find the coordinators of keys, which creates the topic."""
    request = FindCoordinatorRequest(coordinator_keys=list(keys), key_type=SHARE)
    coordinators: list[Any] = peer.ask(request, version).coordinators
    return coordinators


def send(peer: Any, *requests: StateRequest) -> None:
    message = message_of(requests)
    peer.send(message, VERSIONS[message.API_KEY])


def ask(peer: Any, *requests: StateRequest) -> list[StateReply]:
    """The replies, in the order of the requests."""
    message = message_of(requests)
    replies = replies_in(type(requests[0]), peer.ask(message, VERSIONS[message.API_KEY]))
    return [replies[request.key.topic_id, request.key.partition] for request in requests]


def initialize(key: ShareKey, state_epoch: int = 0, start: int = 0) -> InitializeState:
    return InitializeState(key, state_epoch, Offset(start))


def read(key: ShareKey, leader_epoch: int = 0) -> ReadState:
    return ReadState(key, LeaderEpoch(leader_epoch))


def write(key: ShareKey, *batches: tuple[int, int, int, int], start: int = 0, leader_epoch: int = 0) -> WriteState:
    stored = [StateBatch(Offset(first), Offset(last), state, count) for first, last, state, count in batches]
    return WriteState(key, 0, LeaderEpoch(leader_epoch), Offset(start), 0, stored)


class Persister:
    """A node's persister, called as by an event."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.answers: list[Any] = []

    def call(self, method: str, *arguments: Any, cancel: bool = False) -> None:
        """Call a method and carry out all that follows at once; its answer is added to ``answers``."""

        def begin(_now_ms: int) -> None:
            give_up = getattr(self.driver.node.share.persister, method)(*arguments, self.answers.append)
            if cancel:
                give_up()

        self.driver.node._deadlines.at(self.driver.now_ms, begin)
        getattr(self.driver, "cluster", self.driver).advance(0)
