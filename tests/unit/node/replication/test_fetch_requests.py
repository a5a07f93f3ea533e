"""A follower's fetch session: full once, then only what changed; full again after a refusal or a lost answer."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicId, TopicName
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.sessions.fetch import FetchSessions
from oncelog.core.sessions.fetch_cache import FetchPartition, Requester
from oncelog.node.replication.fetch_requests import FetchPosition, FetchRequests, Key
from oncelog.wire.messages.fetch import FetchRequest, FetchResponse

TOPIC, OTHER = TopicId(bytes(15) + b"\1"), TopicId(bytes(15) + b"\2")
ME = BrokerId(3)
CONFIG = BrokerConfig({})


def at(offset: int, last_epoch: int = 0, high_watermark: int = 0) -> FetchPosition:
    return FetchPosition(offset, last_epoch, 5, 0, high_watermark)


def sent(requests: FetchRequests) -> FetchRequest:
    return requests.next_request(ME, 17, CONFIG)


def named(request: FetchRequest) -> dict[Key, int]:
    return {
        (TopicId(topic.topic_id), partition.partition): partition.fetch_offset
        for topic in request.topics
        for partition in topic.partitions
    }


def forgotten(request: FetchRequest) -> set[Key]:
    return {(TopicId(item.topic_id), index) for item in request.forgotten_topics_data for index in item.partitions}


def test_the_first_request_is_full_and_says_who_asks() -> None:
    entry = FetchRequests()
    entry.fetch_from((TOPIC, 0), at(4, last_epoch=2, high_watermark=3))
    request = sent(entry)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert request.replica_state is not None
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (ME, 17)
    (partition,) = request.topics[0].partitions
    assert (partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch) == (4, 2, 5)
    assert partition.high_watermark == 3


def test_later_requests_name_what_changed() -> None:
    entry = FetchRequests()
    for index in range(3):
        entry.fetch_from((TOPIC, index), at(0))
    entry.fetch_from((OTHER, 0), at(7))
    assert len(named(sent(entry))) == 4
    assert entry.answered(FetchResponse(session_id=9))
    entry.fetch_from((TOPIC, 1), at(5))
    entry.fetch_from((TOPIC, 2), at(0, high_watermark=2))  # the session's answers tell of high watermarks
    entry.stop_fetching((OTHER, 0))
    request = sent(entry)
    assert (request.session_id, request.session_epoch) == (9, 1)
    assert named(request) == {(TOPIC, 1): 5}
    assert forgotten(request) == {(OTHER, 0)}
    assert entry.answered(FetchResponse(session_id=9))
    request = sent(entry)
    assert (request.session_epoch, named(request), forgotten(request)) == (2, {}, set())


def test_what_was_forgotten_and_is_wanted_again_is_named_again() -> None:
    request = FetchRequests()
    request.fetch_from((TOPIC, 0), at(3))
    sent(request)
    request.answered(FetchResponse(session_id=9))
    request.stop_fetching((TOPIC, 0))
    assert forgotten(sent(request)) == {(TOPIC, 0)}
    request.answered(FetchResponse(session_id=9))
    request.fetch_from((TOPIC, 0), at(3))
    assert named(sent(request)) == {(TOPIC, 0): 3}


def test_what_the_leader_never_heard_of_is_not_forgotten_there() -> None:
    entry = FetchRequests()
    entry.fetch_from((TOPIC, 0), at(3))
    sent(entry)
    entry.answered(FetchResponse(session_id=9))
    entry.fetch_from((TOPIC, 1), at(3))
    entry.stop_fetching((TOPIC, 1))
    request = sent(entry)
    assert (named(request), forgotten(request)) == ({}, set())


@pytest.mark.parametrize("error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_refused_session_is_followed_by_a_full_request(error: ErrorCode) -> None:
    entry = FetchRequests()
    entry.fetch_from((TOPIC, 0), at(3))
    sent(entry)
    entry.answered(FetchResponse(session_id=9))
    sent(entry)
    assert not entry.answered(FetchResponse(error_code=error))
    request = sent(entry)
    assert (request.session_id, request.session_epoch, named(request)) == (0, 0, {(TOPIC, 0): 3})


def test_without_a_slot_every_request_is_full() -> None:
    entry = FetchRequests()
    entry.fetch_from((TOPIC, 0), at(3))
    for _ in range(3):
        request = sent(entry)
        assert (request.session_id, request.session_epoch, named(request)) == (0, 0, {(TOPIC, 0): 3})
        assert entry.answered(FetchResponse(session_id=0))


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(0, 9), st.sampled_from(["keep", "lose", "send"]))))
def test_the_leaders_session_is_what_is_wanted(steps: list[tuple[int, int | None, str]]) -> None:
    """Beside the leader's own side of the session: after each answer both have the same partitions and offsets."""
    ids = count(1)
    requests, leader = FetchRequests(), FetchSessions(2, lambda size: next(ids).to_bytes(size, "big"))
    expected: dict[Key, int] = {}
    for index, offset, then in steps:
        key = (TOPIC, index)
        if offset is None:
            requests.stop_fetching(key)
            expected.pop(key, None)
        else:
            requests.fetch_from(key, at(offset))
            expected[key] = offset
        if then == "keep" or requests.is_empty():
            continue
        request = sent(requests)
        partitions = [
            FetchPartition(TOPIC, TopicName("t"), index, offset, 100, 5, 0)
            for (_, index), offset in named(request).items()
        ]
        context = leader.begin(
            request.session_id,
            request.session_epoch,
            partitions,
            forgotten(request),
            uses_topic_ids=True,
            requester=Requester(1, BrokerId(7)),
            now_ms=0,
        )
        finished = context.finish([], 0)
        assert finished.error_code == ErrorCode.NONE
        assert {
            (partition.topic_id, partition.partition): partition.fetch_offset for partition in context.partitions
        } == expected
        assert {key: place.offset for key, place in requests.sent.items()} == expected
        if then == "lose":
            requests.reset()
        else:
            requests.answered(FetchResponse(session_id=finished.session_id))
