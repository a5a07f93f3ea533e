"""Fetch: what Apache Kafka 4.3.1 answers, case by case (asked with raw requests)."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, Offset, TopicName, TopicPartition
from oncelog.handlers.api import CLUSTER_NAME, Operation
from oncelog.handlers.fetch import reads
from oncelog.handlers.fetch.handler import handle
from oncelog.records.batch import iter_headers
from oncelog.records.builder import end_transaction_marker
from oncelog.storage.file_range import FileRange
from oncelog.storage.log.rolling import roll
from oncelog.wire.chunks import join_chunks
from oncelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tests.unit.handlers.log_broker import NOW_MS, LogBroker, Parked, answered, context_of, topic_id_of

FETCH = 1


@pytest.fixture
def broker() -> LogBroker:
    """Topic ``a``: partition 0 has offsets 0 to 9 in two batches, partition 1 is empty."""
    broker = LogBroker()
    broker.add_topic("a", 2)
    for _ in range(2):
        broker.append("a", values=[b"v" * 100] * 5)
    return broker


def request(
    *partitions: FetchPartition,
    topic: str = "a",
    version: int = 12,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    replica_id: int = -1,
    forgotten: tuple[int, ...] = (),
) -> FetchRequest:
    by_id = version >= 13
    topic_id = topic_id_of(topic) if by_id else NO_TOPIC_ID
    name = "" if by_id else topic
    return FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=ReplicaState(replica_id=replica_id) if version >= 15 else None,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=list(partitions))] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic=name, topic_id=topic_id, partitions=list(forgotten))],
    )


def of(
    partition: int = 0,
    offset: int = 0,
    *,
    max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=current_leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )


def at_once(broker: LogBroker, asked: FetchRequest, version: int = 12, *denied: tuple[Operation, str]) -> FetchResponse:
    return answered(handle(asked, context_of(broker, FETCH, version, *denied)))


def parked(broker: LogBroker, asked: FetchRequest, version: int = 12) -> Parked[FetchResponse]:
    return Parked(handle(asked, context_of(broker, FETCH, version)))


def only(response: FetchResponse) -> PartitionData:
    ((answer,),) = [topic.partitions for topic in response.responses]
    return answer


def content(answer: PartitionData) -> bytes:
    """The bytes that would be sent."""
    if not isinstance(answer.records, list):
        assert not answer.records
        return b""
    return join_chunks(
        [chunk.file.read(chunk.position, chunk.size_bytes) for chunk in answer.records if isinstance(chunk, FileRange)]
    )


def offsets(answer: PartitionData) -> list[int]:
    return [header.base_offset for _, header in iter_headers(content(answer))]


def failure(error_code: ErrorCode, index: int = 0, *, tried: bool = True) -> PartitionData:
    """The answer for a partition that could not be read, or was not even ``tried``."""
    return PartitionData(
        partition_index=index,
        error_code=error_code,
        high_watermark=-1,
        aborted_transactions=None if tried else [],
        records=b"",
    )


def test_records_come_at_once_with_the_offsets_of_the_log(broker: LogBroker) -> None:
    answer = only(at_once(broker, request(of())))
    assert offsets(answer) == [0, 5]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (10, 10, 0)
    assert answer.aborted_transactions is None
    assert answer.preferred_read_replica == -1


def test_a_batch_that_begins_before_the_offset_is_given_whole(broker: LogBroker) -> None:
    assert offsets(only(at_once(broker, request(of(0, 7))))) == [5]


@pytest.mark.parametrize("offset", [-5, -1, 11, 1000])
def test_an_offset_that_is_not_in_the_log_is_an_error_at_once(broker: LogBroker, offset: int) -> None:
    assert only(at_once(broker, request(of(0, offset)))) == failure(ErrorCode.OFFSET_OUT_OF_RANGE)


def test_at_the_end_it_waits_for_more(broker: LogBroker) -> None:
    waiting = parked(broker, request(of(0, 10)))
    assert waiting.wait.partitions == [TopicPartition(TopicName("a"), 0)]
    assert waiting.wait.deadline_ms == NOW_MS + 500
    assert not waiting.is_ready()
    broker.append("a")
    assert waiting.is_ready()
    assert offsets(only(waiting.resume())) == [10]


def test_the_time_being_over_it_answers_with_what_there_is(broker: LogBroker) -> None:
    response = parked(broker, request(of(0, 10), isolation_level=1)).resume()
    answer = only(response)
    assert (answer.error_code, answer.high_watermark, answer.aborted_transactions) == (0, 10, [])
    assert content(answer) == b""


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (-1, 1), (500, 0), (500, -1)])
def test_who_does_not_want_to_wait_is_answered(broker: LogBroker, max_wait_ms: int, min_bytes: int) -> None:
    response = request(of(0, 10), max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    assert content(only(at_once(broker, response))) == b""


def test_min_bytes_are_waited_for_over_all_partitions(broker: LogBroker) -> None:
    size = len(content(only(at_once(broker, request(of())))))
    waiting = parked(broker, request(of(0, 0), of(1, 0), min_bytes=size + 1))
    assert not waiting.is_ready()
    broker.append("a", 1)
    assert waiting.is_ready()
    response = waiting.resume()
    assert [offsets(answer) for answer in response.responses[0].partitions] == [[0, 5], [0]]


def test_data_in_an_older_segment_is_not_waited_upon(broker: LogBroker) -> None:
    log = broker.logs.logs[TopicPartition(TopicName("a"), 0)]
    assert log is not None
    roll(log, NOW_MS)
    broker.append("a")
    assert offsets(only(at_once(broker, request(of(), min_bytes=1 << 19)))) == [0, 5]


def test_min_bytes_above_max_bytes_are_never_waited_for(broker: LogBroker) -> None:
    assert content(only(at_once(broker, request(of(), min_bytes=1 << 30, max_bytes=100))))


def test_one_whole_batch_comes_however_small_the_limits(broker: LogBroker) -> None:
    broker.append("a", 1)
    for asked in (
        request(of(0, 0, max_bytes=0), of(1, 0, max_bytes=0)),
        request(of(0, 0), of(1, 0), max_bytes=0),
        request(of(0, 0, max_bytes=1), of(1, 0), max_bytes=1),
    ):
        first, second = at_once(broker, asked).responses[0].partitions
        assert offsets(first) == [0]
        assert content(second) == b""


def test_what_is_left_of_the_limit_goes_to_the_first_partition_whose_batch_fits() -> None:
    broker = LogBroker()
    broker.add_topic("a", 3)
    for partition, size in enumerate((100, 1000, 10)):
        broker.append("a", partition, [bytes(size)])
    ofs = [of(partition, 0) for partition in range(3)]
    sizes = [len(content(answer)) for answer in at_once(broker, request(*ofs)).responses[0].partitions]
    limited = request(*ofs, max_bytes=sizes[0] + sizes[2] + 40, isolation_level=1)
    first, second, third = at_once(broker, limited).responses[0].partitions
    assert [len(content(answer)) for answer in (first, second, third)] == [sizes[0], 0, sizes[2]]
    assert (second.error_code, second.high_watermark, second.aborted_transactions) == (ErrorCode.NONE, 1, None)
    assert (first.aborted_transactions, third.aborted_transactions) == ([], [])


def test_a_negative_limit_is_used_up_by_the_partition_that_it_fails(broker: LogBroker) -> None:
    broker.append("a", 1)
    first, second = at_once(broker, request(of(0, 0), of(1, 0), max_bytes=-1)).responses[0].partitions
    assert first == failure(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert offsets(second) == [0]


def test_the_limits_of_partition_request_and_broker_hold() -> None:
    broker = LogBroker(config={"fetch.max.bytes": "2048"})
    broker.add_topic("a", 2)
    for _ in range(8):
        broker.append("a", 0, [bytes(500)])
        broker.append("a", 1, [bytes(500)])
    first, second = at_once(broker, request(of(0, 0, max_bytes=600), of(1, 0))).responses[0].partitions
    assert len(content(first)) == 600
    assert len(content(second)) == 2048 - 600


@pytest.mark.parametrize("asked", [request(of(max_bytes=-1)), request(of(), max_bytes=-1)])
def test_negative_sizes_are_a_server_error_as_in_apache_kafka(broker: LogBroker, asked: FetchRequest) -> None:
    assert only(at_once(broker, asked)) == failure(ErrorCode.UNKNOWN_SERVER_ERROR)


def test_an_isolation_level_that_does_not_exist(broker: LogBroker) -> None:
    response = at_once(broker, request(of(), isolation_level=7))
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert only(response).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    response = at_once(broker, request(of(), isolation_level=7, version=13), 13)
    assert (response.error_code, response.responses) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])


def test_unknown_topics_partitions_and_ids(broker: LogBroker) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(at_once(broker, request(of(), topic="nope"))) == failure(unknown, tried=False)
    for index in (9, -1):
        assert only(at_once(broker, request(of(index)))) == failure(unknown, index, tried=False)
    response = at_once(broker, request(of(), topic="nope", version=13), 13)
    assert only(response).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (response.responses[0].topic, response.responses[0].topic_id) == ("", topic_id_of("nope"))


def test_what_cannot_be_read_does_not_end_the_wait_for_what_can(broker: LogBroker) -> None:
    response = parked(broker, request(of(9), of(0, 10))).resume()
    assert [(p.partition_index, p.error_code) for p in response.responses[0].partitions] == [(0, 0), (9, 3)]


def test_topics_go_by_id_from_version_13_on(broker: LogBroker) -> None:
    response = at_once(broker, request(of(), version=18), 18)
    assert response.responses[0].topic_id == topic_id_of("a")
    assert offsets(only(response)) == [0, 5]


def test_leader_epochs_are_checked_and_the_leader_is_told() -> None:
    broker = LogBroker()
    broker.add_topic("a", leader_epoch=2)
    broker.append("a")
    ok = at_once(broker, request(of(current_leader_epoch=2)))
    assert only(ok).error_code == ErrorCode.NONE
    newer = at_once(broker, request(of(current_leader_epoch=3), version=17), 17)
    assert only(newer).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert only(newer).current_leader is None
    older = at_once(broker, request(of(current_leader_epoch=1), version=17), 17)
    assert only(older).error_code == ErrorCode.FENCED_LEADER_EPOCH
    leader = only(older).current_leader
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (1, 2)
    assert [(node.node_id, node.host, node.port) for node in older.node_endpoints] == [(1, "127.0.0.1", 19092)]
    assert at_once(broker, request(of(current_leader_epoch=1))).node_endpoints == []


def test_a_change_of_leader_epoch_ends_the_wait(broker: LogBroker) -> None:
    waiting = parked(broker, request(of(0, 10, current_leader_epoch=0)))
    broker.add_topic("a", 2, leader_epoch=1)
    assert waiting.is_ready()
    response = waiting.resume()
    assert only(response).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_deleted_partition_ends_the_wait(broker: LogBroker) -> None:
    waiting = parked(broker, request(of(0, 10)))
    del broker.logs.logs[TopicPartition(TopicName("a"), 0)]
    assert waiting.is_ready()
    response = waiting.resume()
    assert only(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_diverging_epochs_are_told() -> None:
    broker = LogBroker()
    broker.add_topic("a", leader_epoch=0)
    broker.append("a", values=[b"v"] * 10)
    diverged = only(at_once(broker, request(of(0, 50, last_fetched_epoch=0))))
    assert diverged.diverging_epoch is not None
    assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 10)
    assert (diverged.error_code, diverged.high_watermark, content(diverged)) == (0, 10, b"")
    assert offsets(only(at_once(broker, request(of(0, 0, last_fetched_epoch=0))))) == [0]
    assert only(at_once(broker, request(of(0, 0, last_fetched_epoch=3)))) == failure(ErrorCode.OFFSET_OUT_OF_RANGE)


def test_the_leaders_epoch_is_known_where_nothing_was_ever_written() -> None:
    broker = LogBroker()
    broker.add_topic("a", leader_epoch=2)
    at_end = only(parked(broker, request(of(0, 0, last_fetched_epoch=2))).resume())
    assert (at_end.error_code, at_end.high_watermark, at_end.diverging_epoch) == (ErrorCode.NONE, 0, None)
    beyond = only(at_once(broker, request(of(0, 4, last_fetched_epoch=2))))
    assert beyond.diverging_epoch is not None
    assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (2, 0)
    assert only(at_once(broker, request(of(0, 0, last_fetched_epoch=3)))) == failure(ErrorCode.OFFSET_OUT_OF_RANGE)


def test_read_committed_stops_at_the_last_stable_offset_and_names_what_was_aborted() -> None:
    broker = LogBroker()
    broker.add_topic("a")
    log = broker.logs.logs[TopicPartition(TopicName("a"), 0)]
    assert log is not None
    broker.append("a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    committed = request(of(), isolation_level=1)
    assert content(only(at_once(broker, request(of())))) != b""
    waiting = parked(broker, committed)
    marker = end_transaction_marker(
        producer_id=7, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp=NOW_MS
    )
    broker.append_bytes(log, marker)
    assert waiting.is_ready()
    response = waiting.resume()
    answer = only(response)
    assert (answer.last_stable_offset, offsets(answer)) == (2, [0, 1])
    assert answer.aborted_transactions is not None
    assert [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions] == [(7, 0)]


def test_records_above_the_high_watermark_are_not_read(broker: LogBroker) -> None:
    log = broker.logs.logs[TopicPartition(TopicName("a"), 0)]
    assert log is not None
    log.high_watermark = Offset(5)
    assert offsets(only(at_once(broker, request(of())))) == [0]
    assert not parked(broker, request(of(0, 5))).is_ready()


def test_other_brokers_are_no_replicas_yet(broker: LogBroker) -> None:
    response = at_once(broker, request(of(), version=17, replica_id=5), 17)
    assert only(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    denied = at_once(broker, request(of(), replica_id=5), 12, (Operation.CLUSTER_ACTION, CLUSTER_NAME))
    assert only(denied).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_topics_that_may_not_be_read(broker: LogBroker) -> None:
    broker.add_topic("b")
    broker.append("b")
    response = request(of())
    response.topics += request(of(), topic="b").topics
    a, b = at_once(broker, response, 12, (Operation.READ, "b")).responses
    assert offsets(a.partitions[0]) == [0, 5]
    assert b.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_zstd_topics_are_read_in_every_version() -> None:
    broker = LogBroker()
    broker.add_topic("z", compression_type="zstd")
    broker.append("z")
    for version in (4, 9, 10):
        assert offsets(only(at_once(broker, request(of(), topic="z", version=version), version))) == [0]


def test_storage_errors_are_told_as_the_version_knows_them(broker: LogBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("bad disk")

    monkeypatch.setattr(reads, "read_batches", fail)
    assert only(at_once(broker, request(of()), 12)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert only(at_once(broker, request(of(), version=5), 5)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_session_answers_news_only(broker: LogBroker) -> None:
    first = at_once(broker, request(of(0, 0), of(1, 0), session_epoch=0))
    assert first.session_id != 0
    assert len(first.responses[0].partitions) == 2

    def again(epoch: int, *partitions: FetchPartition, **more: object) -> FetchRequest:
        return request(*partitions, session_id=first.session_id, session_epoch=epoch, **more)  # type: ignore[arg-type]

    waiting = parked(broker, again(1, of(0, 10)))
    broker.append("a", 1)
    response = waiting.resume()
    assert [answer.partition_index for answer in response.responses[0].partitions] == [1]
    empty = at_once(broker, again(2, of(1, 1), max_wait_ms=0))
    assert (empty.error_code, empty.session_id, empty.responses) == (0, first.session_id, [])
    assert at_once(broker, again(2)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    closed = at_once(broker, again(3, forgotten=(0, 1)))
    assert (closed.error_code, closed.session_id, closed.responses) == (0, 0, [])
    gone = at_once(broker, again(4))
    assert (gone.error_code, gone.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_a_session_by_id_finds_a_topic_that_comes_later_and_notices_one_made_anew(broker: LogBroker) -> None:
    first = at_once(broker, request(of(), topic="late", version=13, session_epoch=0), 13)
    assert only(first).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    broker.add_topic("late")
    broker.append("late")
    second = request(version=13, session_id=first.session_id, session_epoch=1)
    assert offsets(only(at_once(broker, second, 13))) == [0]
    partition = TopicPartition(TopicName("late"), 0)
    broker.logs.delete(partition, bytes(16))
    broker.add_topic("late", topic_id=topic_id_of("late again"))
    third = request(version=13, session_id=first.session_id, session_epoch=2)
    assert only(at_once(broker, third, 13)).error_code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_partitions_are_grouped_by_topic_as_they_follow_each_other(broker: LogBroker) -> None:
    broker.add_topic("b")
    requests = request(of(0), of(1), max_wait_ms=0)
    requests.topics += request(of(), topic="b").topics + request(of(9)).topics
    response = at_once(broker, requests)
    assert [(topic.topic, len(topic.partitions)) for topic in response.responses] == [("a", 2), ("b", 1), ("a", 1)]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_is_encoded_with_its_ranges_untouched(broker: LogBroker, version: int) -> None:
    response = at_once(broker, request(of(), version=version), version)
    ranges = [chunk for chunk in response.encode(version) if isinstance(chunk, FileRange)]
    assert sum(chunk.size_bytes for chunk in ranges) == len(content(only(response)))
