"""Incremental fetch sessions: opening, changing, refusing, evicting, and that an answer holds exactly the news."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, BrokerId, TopicId, TopicName
from oncelog.core.sessions import fetch_cache
from oncelog.core.sessions.fetch import FetchContext, FetchSessions, Finished, next_epoch
from oncelog.core.sessions.fetch_cache import EVICTION_MS, PARTITION_BYTES, FetchPartition, PartitionKey, Requester

TOPIC = TopicName("t")
CONSUMER = Requester(1)
FOLLOWER = Requester(2, BrokerId(7))


@dataclass
class Answered:
    """The answer for one partition."""

    high_watermark: int = 0
    log_start_offset: int = 0
    error_code: int = 0
    diverging_epoch: object | None = None
    preferred_read_replica: int = -1
    records: bytes = b""


@dataclass
class Fetcher:
    """A client of ``sessions`` whose partitions answer what ``state`` says."""

    sessions: FetchSessions
    state: dict[int, Answered] = field(default_factory=dict)
    by_id: bool = False
    requester: Requester | None = CONSUMER
    topic: TopicName = TOPIC
    now_ms: int = 0

    def begin(
        self, session_id: int, epoch: int, numbers: dict[int, int] | None = None, forgotten: tuple[int, ...] = ()
    ) -> FetchContext:
        topic_id = TopicId(b"i" * 16) if self.by_id else NO_TOPIC_ID
        keys: list[PartitionKey] = [(topic_id if self.by_id else self.topic, index) for index in forgotten]
        partitions = [
            FetchPartition(topic_id, self.topic, index, offset, 1000, -1, -1)
            for index, offset in (numbers or {}).items()
        ]
        return self.sessions.begin(
            session_id,
            epoch,
            partitions,
            keys,
            uses_topic_ids=self.by_id,
            requester=self.requester,
            now_ms=self.now_ms,
        )

    def finish(self, context: FetchContext) -> Finished[Answered]:
        return context.finish(
            [(partition, self.state.setdefault(partition.partition, Answered())) for partition in context.partitions],
            self.now_ms,
        )

    def fetch(
        self, session_id: int, epoch: int, numbers: dict[int, int] | None = None, forgotten: tuple[int, ...] = ()
    ) -> tuple[ErrorCode, int, list[int]]:
        context = self.begin(session_id, epoch, numbers, forgotten)
        if context.error_code:
            return context.error_code, 0, []
        error_code, answered_id, answers = self.finish(context)
        return error_code, answered_id, [partition.partition for partition, _ in answers]


def new_sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(slots, random.Random(1).randbytes)


def opened(fetcher: Fetcher, count: int = 2) -> int:
    error_code, session_id, _ = fetcher.fetch(0, 0, dict.fromkeys(range(count), 0))
    assert error_code == ErrorCode.NONE
    return session_id


def test_a_full_request_opens_a_session_and_incremental_ones_tell_only_news() -> None:
    client = Fetcher(new_sessions())
    error_code, session_id, told = client.fetch(0, 0, {0: 0, 1: 0, 2: 0})
    assert (error_code, told) == (ErrorCode.NONE, [0, 1, 2])
    assert 0 < session_id < 2**31
    assert client.fetch(session_id, 1) == (ErrorCode.NONE, session_id, [])
    client.state[1].high_watermark = 5
    client.state[2].log_start_offset = 1
    assert client.fetch(session_id, 2) == (ErrorCode.NONE, session_id, [1, 2])
    assert client.fetch(session_id, 3) == (ErrorCode.NONE, session_id, [])


def test_an_error_is_told_until_it_is_over_and_once_more_when_it_is() -> None:
    client = Fetcher(new_sessions())
    session_id = opened(client)
    client.state[0] = Answered(high_watermark=-1, log_start_offset=-1, error_code=3)
    assert [client.fetch(session_id, epoch)[2] for epoch in (1, 2)] == [[0], [0]]
    client.state[0] = Answered()
    assert [client.fetch(session_id, epoch)[2] for epoch in (3, 4)] == [[0], []]


def test_divergence_and_preferred_replicas_are_always_told() -> None:
    client = Fetcher(new_sessions())
    session_id = opened(client)
    client.state[0].diverging_epoch = object()
    client.state[1].preferred_read_replica = 2
    assert client.fetch(session_id, 1)[2] == [0, 1]


def test_a_partition_that_gave_records_goes_to_the_end() -> None:
    client = Fetcher(new_sessions())
    session_id = opened(client, 3)
    client.state[0].records = b"x"
    assert client.fetch(session_id, 1)[2] == [0]
    assert [partition.partition for partition in client.begin(session_id, 2).partitions] == [1, 2, 0]


def test_incremental_requests_add_change_and_forget() -> None:
    client = Fetcher(new_sessions())
    session_id = opened(client)
    context = client.begin(session_id, 1, {1: 9, 2: 4}, forgotten=(0, 7))
    assert {partition.partition: partition.fetch_offset for partition in context.partitions} == {1: 9, 2: 4}
    _, _, answers = client.finish(context)
    assert [asked.partition for asked, _ in answers] == [2]


def test_a_partition_named_twice_counts_as_named_last() -> None:
    sessions = new_sessions()
    twice = [FetchPartition(NO_TOPIC_ID, TOPIC, 0, offset, 1, -1, -1) for offset in (5, 9)]
    context = sessions.begin(0, -1, twice, [], uses_topic_ids=False, requester=None, now_ms=0)
    assert [partition.fetch_offset for partition in context.partitions] == [9]


def test_a_session_that_forgets_everything_is_closed() -> None:
    client = Fetcher(new_sessions())
    session_id = opened(client)
    assert client.fetch(session_id, 1, forgotten=(0, 1)) == (ErrorCode.NONE, 0, [])
    assert client.fetch(session_id, 2)[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_minus_one_closes_and_epoch_zero_replaces() -> None:
    client = Fetcher(new_sessions())
    first = opened(client)
    _, second, _ = client.fetch(first, 0, {0: 0})
    assert second not in (0, first)
    assert client.fetch(first, 1)[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.fetch(second, -1, {0: 0}) == (ErrorCode.NONE, 0, [0])
    assert len(client.sessions.cache) == 0


def test_the_wrong_epoch_and_the_wrong_kind_of_topic_are_refused_and_change_nothing() -> None:
    client = Fetcher(new_sessions())
    session_id = opened(client)
    for epoch in (2, 5, 2**31 - 1):
        assert client.fetch(session_id, epoch, {7: 0})[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    client.by_id = True
    assert client.fetch(session_id, 1)[0] == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    client.by_id = False
    assert client.fetch(session_id, 1) == (ErrorCode.NONE, session_id, [])


def test_a_request_that_waited_while_another_came_is_refused_at_its_end() -> None:
    client = Fetcher(new_sessions())
    session_id = opened(client)
    waiting = client.begin(session_id, 1)
    assert client.fetch(session_id, 2)[0] == ErrorCode.NONE
    assert client.finish(waiting)[:2] == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id)


def test_epochs_wrap_to_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 1, -1)] == [1, 2, 1, -1]


def test_a_full_cache_gives_no_session_until_one_is_stale() -> None:
    client = Fetcher(new_sessions(2))
    ids = [opened(client), opened(client)]
    assert opened(client) == 0
    client.now_ms = EVICTION_MS
    assert client.fetch(ids[0], 1)[0] == ErrorCode.NONE
    client.now_ms = EVICTION_MS + 1
    assert opened(client) != 0
    assert client.fetch(ids[1], 1)[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.fetch(ids[0], 2)[0] == ErrorCode.NONE
    assert client.sessions.cache.evictions == 1


def test_an_old_session_in_use_gives_way_to_a_larger_one_only() -> None:
    client = Fetcher(new_sessions(1))
    session_id = opened(client, 3)
    client.now_ms = EVICTION_MS + 1
    assert client.fetch(session_id, 1)[0] == ErrorCode.NONE
    assert opened(client, 2) == 0
    assert opened(client, 3) != 0
    assert client.fetch(session_id, 2)[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_follower_takes_a_consumers_slot_but_not_the_reverse() -> None:
    sessions = new_sessions(1)
    consumer, follower = Fetcher(sessions), Fetcher(sessions, requester=FOLLOWER)
    assert opened(consumer, 5) != 0
    assert opened(follower, 1) != 0
    assert opened(consumer, 5) == 0


def test_no_slots_means_no_sessions() -> None:
    assert opened(Fetcher(new_sessions(0))) == 0


def test_the_memory_of_all_sessions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_cache, "MAX_BYTES", 5 * (PARTITION_BYTES + 1))
    sessions = new_sessions()
    client, other, named_longer = (Fetcher(sessions, requester=Requester(number)) for number in range(3))
    named_longer.topic = TopicName("t" * 249)
    assert opened(client, 6) == 0
    session_id = opened(client, 3)
    assert session_id != 0
    assert opened(other, 3) == 0
    assert opened(named_longer, 2) == 0
    assert opened(other, 2) != 0
    assert client.fetch(session_id, 1, {2: 1}) == (ErrorCode.NONE, session_id, [])
    assert client.fetch(session_id, 2, {9: 1})[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.cache.size_bytes == 2 * (PARTITION_BYTES + 1)


def test_a_connection_that_lacks_room_loses_its_own_older_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_cache, "MAX_BYTES", 5 * (PARTITION_BYTES + 1))
    sessions = new_sessions()
    client, other = Fetcher(sessions), Fetcher(sessions, requester=Requester(2))
    first, second = opened(client, 2), opened(client, 2)
    assert opened(other, 3) == 0
    third = opened(client, 3)
    assert [session_id for session_id in (first, second, third) if sessions.cache.get(session_id)] == [second, third]


def test_a_session_makes_room_by_a_few_others_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_cache, "MAX_BYTES", 10 * (PARTITION_BYTES + 1))
    for count, is_opened in ((8, True), (9, False)):
        sessions = new_sessions(20)
        for number in range(10):
            assert opened(Fetcher(sessions, requester=Requester(number)), 1) != 0
        late = Fetcher(sessions, requester=Requester(99), now_ms=EVICTION_MS + 1)
        assert bool(opened(late, count)) is is_opened


def test_sessions_end_with_the_connection_that_used_them_last() -> None:
    sessions = new_sessions()
    client = Fetcher(sessions)
    session_id, moved = opened(client), opened(client)
    client.requester = Requester(2)
    assert client.fetch(moved, 1)[0] == ErrorCode.NONE
    sessions.cache.close(1)
    assert client.fetch(session_id, 1)[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.fetch(moved, 2)[0] == ErrorCode.NONE
    sessions.cache.close(2)
    sessions.cache.close(2)
    assert (len(sessions.cache), sessions.cache.size_bytes) == (0, 0)


def test_a_follower_has_one_session_and_takes_nothing_from_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_cache, "MAX_BYTES", 2 * (PARTITION_BYTES + 1))
    monkeypatch.setattr(fetch_cache, "MAX_FOLLOWER_PARTITIONS", 5)
    sessions = new_sessions()
    consumer, follower = Fetcher(sessions), Fetcher(sessions, requester=FOLLOWER)
    assert opened(follower, 6) == 0
    first = opened(follower, 5)
    assert opened(consumer) != 0
    second = opened(follower, 5)
    assert [session_id for session_id in (first, second) if sessions.cache.get(session_id)] == [second]
    assert follower.fetch(second, 1, {9: 0})[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions.cache) == 1


def test_a_request_without_a_requester_keeps_no_session() -> None:
    client = Fetcher(new_sessions())
    session_id = opened(client)
    client.requester = None
    assert opened(client) == 0
    assert client.fetch(session_id, 1)[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not len(client.sessions.cache)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("hsexrf"), st.integers(0, 3)), max_size=25))
def test_what_a_client_was_told_is_always_what_is(changes: list[tuple[int, str, int]]) -> None:
    client = Fetcher(new_sessions())
    view: dict[int, tuple[int, int, int]] = {}

    def see(answers: Finished[Answered]) -> None:
        for requests, told in answers.answers:
            view[requests.partition] = (told.error_code, told.high_watermark, told.log_start_offset)

    finished = client.finish(client.begin(0, 0, dict.fromkeys(range(4), 0)))
    see(finished)
    epoch = 1
    for index, text, value in changes:
        told = client.state.setdefault(index, Answered())
        requests: dict[int, int] = {}
        forgotten: tuple[int, ...] = ()
        if text == "h":
            told.high_watermark = value
        elif text == "s":
            told.log_start_offset = value
        elif text == "e":
            client.state[index] = Answered(high_watermark=-1, log_start_offset=-1, error_code=3)
        elif text == "x":
            client.state[index] = Answered()
        elif text == "r":
            requests = {index: value}
        else:
            forgotten = (index,) if len(view) > 1 else ()
        context = client.begin(finished.session_id, epoch, requests, forgotten)
        for gone in set(view) - {partition.partition for partition in context.partitions}:
            del view[gone]
        see(client.finish(context))
        epoch += 1
        assert view == {
            partition.partition: (
                client.state[partition.partition].error_code,
                client.state[partition.partition].high_watermark,
                client.state[partition.partition].log_start_offset,
            )
            for partition in context.partitions
        }


def test_what_a_refused_answer_would_have_told_is_looked_at_with_the_next_request() -> None:
    client = Fetcher(new_sessions(), by_id=True, requester=FOLLOWER)
    session_id = opened(client)
    refused = client.begin(session_id, 1)
    assert refused.session is not None
    assert refused.session.pending is not None
    assert len(refused.session.pending.of(refused.session.partitions, 0, 1000)) == 2
    refused.session.settle(refused.partitions)
    assert refused.session.pending.of(refused.session.partitions, 1, 1000) == []
    client.begin(session_id, 2)
    assert client.finish(refused).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert len(refused.session.pending.of(refused.session.partitions, 2, 1000)) == 2
