"""Records told "written" can be seen: questions about the end wait for appended records on their way to the disk.

With ``log.sync.policy=commit`` a Produce with acks=1 is answered before its records may be read. Apache Kafka 4.3.1
answers a ListOffsets, DeleteRecords or Fetch after it by the log end at once; here the answer comes with the sync.
"""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.scenario.node.driver import START_MS, Driver, Peer
from tests.scenario.node.requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    batch,
    create_topic,
    fetch,
    fetched,
    log_of,
    produce,
    produced,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
REQUEST_TIMEOUT_MS = 30_000
MIN_WAIT_MS = 500


@pytest.fixture
def driver() -> Driver:
    """A topic of two partitions with a record each; the disk is slow from then on."""
    driver = Driver()
    create_topic(driver.connect(), "t", 2)
    for partition in range(2):
        write(driver, partition, acks=-1)
    driver.hold_syncs = True
    return driver


def write(driver: Driver, partition: int = 0, *, acks: int = 1) -> int:
    """One record more, of the next millisecond, acknowledged; its offset."""
    driver.now_ms += 1
    request = produce("t", batch(driver, b"v"), partition, acks=acks)
    error, offset = produced(driver.connect().ask(request, PRODUCE_VERSION))
    assert error == 0
    return offset


def list_offsets(*timestamps: int, isolation: int = 0, timeout_ms: int = 0) -> tuple[ListOffsetsRequest, int]:
    """ListOffsets of the partitions 0, 1 …, by what is asked of each."""
    partitions = [ListOffsetsPartition(partition_index=i, timestamp=asked) for i, asked in enumerate(timestamps)]
    topics = [ListOffsetsTopic(name="t", partitions=partitions)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=timeout_ms), 10


def listed(peer: Peer) -> list[int | E] | None:
    """The offset or error of each partition; None: the client waits."""
    if not peer.responses:
        return None
    partitions = peer.responses.popleft().topics[0].partitions
    return [E(p.error_code) if p.error_code else p.offset for p in partitions]


def asked(driver: Driver, request, version: int) -> Peer:
    """A client that has sent a request."""
    peer = driver.connect()
    peer.send(request, version)
    return peer


@pytest.mark.parametrize("isolation", [0, 1])
def test_the_end_is_told_when_what_was_acknowledged_can_be_read(driver: Driver, isolation: int) -> None:
    assert write(driver) == 1
    peer = asked(driver, *list_offsets(LATEST, isolation=isolation))
    assert listed(peer) is None
    driver.release()
    assert listed(peer) == [2]


def test_only_what_depends_on_the_disk_waits_for_it(driver: Driver) -> None:
    write(driver)
    for timestamp, offset in ((EARLIEST, 0), (START_MS, 0), (START_MS + 1_000_000, -1)):
        assert listed(asked(driver, *list_offsets(timestamp))) == [offset]
    assert listed(asked(driver, *list_offsets(EARLIEST, LATEST))) == [0, 1], "nothing is on its way to the other one"


@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, START_MS + 3])
def test_a_record_that_is_found_at_the_end_is_waited_for(driver: Driver, timestamp: int) -> None:
    write(driver)
    peer = asked(driver, *list_offsets(timestamp))
    assert listed(peer) is None
    driver.release()
    assert listed(peer) == [1]


def test_what_is_appended_meanwhile_is_not_waited_for(driver: Driver) -> None:
    """Else who asks a partition that is written to all the time would never be answered."""
    write(driver)
    latest, maximum = asked(driver, *list_offsets(LATEST)), asked(driver, *list_offsets(MAX_TIMESTAMP))
    write(driver)
    (sync,) = driver.held
    driver.held.clear()
    driver.dispatch(driver._sync(sync))
    assert log_of(driver, "t").log_end_offset == 3
    assert (listed(latest), listed(maximum)) == ([2], [1])


def test_partitions_are_waited_for_together_and_answered_in_their_order(driver: Driver) -> None:
    write(driver, 0)
    write(driver, 1)
    peer = asked(driver, *list_offsets(LATEST, MAX_TIMESTAMP))
    first, second = driver.held
    driver.held.clear()
    driver.dispatch(driver._sync(second))
    assert listed(peer) is None
    driver.dispatch(driver._sync(first))
    assert listed(peer) == [2, 1]


@pytest.mark.parametrize(("timeout_ms", "waits_ms"), [(0, REQUEST_TIMEOUT_MS), (700, 700)])
def test_a_disk_that_does_not_answer_holds_nobody_for_ever(driver: Driver, timeout_ms: int, waits_ms: int) -> None:
    write(driver)
    latest = asked(driver, *list_offsets(LATEST, timeout_ms=timeout_ms))
    maximum = asked(driver, *list_offsets(MAX_TIMESTAMP, timeout_ms=timeout_ms))
    driver.advance(waits_ms - 1)
    assert (listed(latest), listed(maximum)) == (None, None)
    driver.advance(1)
    assert (listed(latest), listed(maximum)) == ([1], [-1]), "what is true then"


def test_who_waits_holds_the_connection_and_no_other(driver: Driver) -> None:
    write(driver)
    peer = asked(driver, *list_offsets(LATEST))
    peer.send(ApiVersionsRequest(), 0)
    assert not peer.responses
    assert asked(driver, ApiVersionsRequest(), 0).responses
    driver.release()
    assert [type(response).__name__ for response in peer.responses] == ["ListOffsetsResponse", "ApiVersionsResponse"]


def test_a_topic_that_is_deleted_meanwhile_is_not_waited_for(driver: Driver) -> None:
    write(driver)
    waiting = [
        asked(driver, *list_offsets(LATEST)),
        asked(driver, *list_offsets(MAX_TIMESTAMP)),
        asked(driver, delete_records(-1), 2),
        asked(driver, fetch("t", 1, max_wait_ms=0), FETCH_VERSION),
    ]
    driver.connect().send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
    latest, maximum, deleting, fetching = waiting
    assert (listed(latest), listed(maximum)) == ([E.UNKNOWN_TOPIC_OR_PARTITION],) * 2
    assert deleted(deleting) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert fetched(fetching.responses.popleft())[0] == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_that_leaves_while_it_waits(driver: Driver) -> None:
    write(driver)
    for request, version in (list_offsets(LATEST), (delete_records(2), 2), (fetch("t", 1, max_wait_ms=0), 11)):
        driver.disconnect(asked(driver, request, version))
    driver.release()
    assert driver.fatal is None
    assert driver.reports == []
    assert (log_of(driver, "t").log_start_offset, log_of(driver, "t").high_watermark) == (2, 2), "it was carried out"


def delete_records(offset: int, *, timeout_ms: int = 1000) -> DeleteRecordsRequest:
    """DeleteRecords of partition 0."""
    expected = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[expected])], timeout_ms=timeout_ms)


def deleted(peer: Peer) -> int | E | None:
    """The low watermark or the error; None: the client waits."""
    if not peer.responses:
        return None
    partition = peer.responses.popleft().topics[0].partitions[0]
    return E(partition.error_code) if partition.error_code else partition.low_watermark


@pytest.mark.parametrize("offset", [-1, 2])
def test_what_was_acknowledged_can_be_deleted(driver: Driver, offset: int) -> None:
    write(driver)
    peer = asked(driver, delete_records(offset), 2)
    assert deleted(peer) is None
    driver.release()
    assert (deleted(peer), log_of(driver, "t").log_start_offset) == (2, 2)


def test_what_is_on_disk_is_deleted_at_once_and_beyond_the_end_is_out_of_range(driver: Driver) -> None:
    write(driver)
    assert deleted(asked(driver, delete_records(1), 2)) == 1
    assert deleted(asked(driver, delete_records(3), 2)) is E.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("timeout_ms", "waits_ms"), [(0, MIN_WAIT_MS), (1000, 1000)])
def test_records_that_do_not_reach_the_disk_are_not_deleted(driver: Driver, timeout_ms: int, waits_ms: int) -> None:
    """An offset before the log end is not out of range: Apache Kafka's word for what was not done in time."""
    write(driver)
    to_end = asked(driver, delete_records(2, timeout_ms=timeout_ms), 2)
    all_readable = asked(driver, delete_records(-1, timeout_ms=timeout_ms), 2)
    driver.advance(waits_ms - 1)
    assert (deleted(to_end), deleted(all_readable)) == (None, None)
    driver.advance(1)
    assert (deleted(to_end), deleted(all_readable)) == (E.REQUEST_TIMED_OUT, 1)
    assert log_of(driver, "t").log_start_offset == 1


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (0, 0), (500, 0), (5, 1), (500, 1), (5, 1 << 20)])
def test_a_fetch_at_the_end_is_answered_with_what_was_acknowledged(
    driver: Driver, max_wait_ms: int, min_bytes: int
) -> None:
    write(driver)
    peer = asked(driver, fetch("t", 1, max_wait_ms=max_wait_ms, min_bytes=min_bytes), FETCH_VERSION)
    assert not peer.responses
    driver.advance(10)
    assert not peer.responses
    driver.release()
    error, high_watermark, records = fetched(peer.responses.popleft())
    assert (error, high_watermark, bool(records)) == (0, 2, True)


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (0, 0), (500, 0)])
def test_a_fetch_that_finds_something_or_that_nothing_is_coming_for_does_not_wait(
    driver: Driver, max_wait_ms: int, min_bytes: int
) -> None:
    limits = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes}
    assert fetched(asked(driver, fetch("t", 1, **limits), FETCH_VERSION).responses.popleft()) == (0, 1, b"")
    write(driver)
    error, high_watermark, records = fetched(asked(driver, fetch("t", 0, **limits), FETCH_VERSION).responses.popleft())
    assert (error, high_watermark, bool(records)) == (0, 1, True)
    assert fetched(asked(driver, fetch("t", 2, **limits), FETCH_VERSION).responses.popleft()) == (0, 1, b"")


@pytest.mark.parametrize(("max_wait_ms", "waits_ms"), [(0, MIN_WAIT_MS), (20, MIN_WAIT_MS), (2000, 2000)])
def test_a_fetch_waits_no_longer_than_it_says_or_half_a_second(driver: Driver, max_wait_ms: int, waits_ms: int) -> None:
    write(driver)
    peer = asked(driver, fetch("t", 1, max_wait_ms=max_wait_ms), FETCH_VERSION)
    driver.advance(waits_ms - 1)
    assert not peer.responses
    driver.advance(1)
    assert fetched(peer.responses.popleft()) == (0, 1, b"")


def test_the_end_of_the_present_epoch_is_the_log_end_at_once(driver: Driver) -> None:
    """As in Apache Kafka: it is what the leader has, and tells no client to go back."""
    write(driver)
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topics = [OffsetForLeaderTopic(topic="t", partitions=[partition])]
    answer = asked(driver, OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4).responses.popleft()
    assert answer.topics[0].partitions[0].end_offset == 2


def test_from_the_page_cache_nobody_waits() -> None:
    driver = Driver({"log.sync.policy": "none"})
    create_topic(driver.connect(), "t", 2)
    driver.hold_syncs = True
    write(driver)
    assert listed(asked(driver, *list_offsets(LATEST))) == [1]
    assert deleted(asked(driver, delete_records(1), 2)) == 1
