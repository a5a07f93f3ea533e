"""Writes of share states at other brokers: messages that their receiver decodes."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, GroupId, LeaderEpoch, Offset, TopicId
from oncelog.core.share_state.model import ShareKey, StateReply, WriteState
from oncelog.handlers.share.state_messages import requests_of, response_to
from oncelog.node.brokers.messages import UNREACHABLE, ChangeShareState
from oncelog.node.brokers.requests.share_states import ShareStateRequests
from oncelog.records.internal.share_state_records import StateBatch
from oncelog.wire.message import REQUEST_MAX_ELEMENTS
from oncelog.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from tests.unit.node.brokers.requests.links import FakeLinks

OTHER = BrokerId(2)
OK, FENCED = StateReply(), StateReply(ErrorCode.FENCED_LEADER_EPOCH, "no")


def write(partition: int, batch_count: int) -> WriteState:
    key = ShareKey(GroupId("g"), TopicId(b"t" * 16), partition)
    batches = [StateBatch(2 * at, 2 * at, 2 + 2 * (at % 2), 1) for at in range(batch_count)]
    return WriteState(key, 3, LeaderEpoch(4), Offset(5), 6, batches)


def taken(message: WriteShareGroupStateRequest) -> list[tuple[int, int]]:
    """(partition, batches) of a message."""
    assert 1 + sum(1 + len(fields.state_batches) for fields in message.topics[0].partitions) <= REQUEST_MAX_ELEMENTS
    return [(fields.partition, len(fields.state_batches)) for fields in message.topics[0].partitions]


class Bench:
    def __init__(self) -> None:
        self.links = FakeLinks()
        self.requests = ShareStateRequests(self.links)
        self.answers: list[Any] = []

    def send(self, request: WriteState):
        return self.requests.send(OTHER, ChangeShareState(request), self.answers.append)

    def next_message(self) -> WriteShareGroupStateRequest:
        self.requests.send_queued()
        return self.links.asked[0].message

    def answer(self, reply: StateReply | None) -> None:
        message = self.links.asked[0].message
        replies = {(request.key.topic_id, request.key.partition): reply for request in requests_of(message)}
        self.links.answer(None if reply is None else response_to(message, replies))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_joined_writes_stay_decodable(bench) -> None:
    for partition in range(2):
        bench.send(write(partition, 17_000))
    for partition in range(2):
        assert taken(bench.next_message()) == [(partition, 17_000)]
        bench.answer(OK)
    assert bench.answers == [OK] * 2


def test_small_writes_share_a_message(bench) -> None:
    for partition in range(3):
        bench.send(write(partition, 5))
    assert taken(bench.next_message()) == [(0, 5), (1, 5), (2, 5)]


def test_a_large_write_goes_in_parts(bench) -> None:
    request = write(0, 34_000)
    bench.send(request)
    batches: list[StateBatch] = []
    while len(batches) < 34_000:
        assert bench.answers == []
        message = bench.next_message()
        taken(message)
        (part,) = requests_of(message)
        assert isinstance(part, WriteState)
        assert part._replace(batches=()) == request._replace(batches=())
        batches += part.batches
        bench.answer(OK)
    assert batches == request.batches
    assert bench.answers == [OK]


@pytest.mark.parametrize(("reply", "expected"), [(FENCED, FENCED), (None, UNREACHABLE)])
def test_a_large_write_fails_if_a_part_does(bench, reply, expected) -> None:
    bench.send(write(0, 27_000))
    bench.next_message()
    bench.answer(reply)
    bench.next_message()
    bench.answer(OK)
    assert bench.answers == [expected]


def test_a_large_write_that_is_cancelled(bench) -> None:
    cancel = bench.send(write(0, 27_000))
    bench.next_message()
    cancel()
    bench.answer(OK)
    assert not bench.requests.send_queued()
    assert bench.answers == []
