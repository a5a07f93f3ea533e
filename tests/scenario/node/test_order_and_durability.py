"""The node's promises about order, durability and parked requests, with time and disk in the test's hands."""

from __future__ import annotations

import errno

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.records.batch import iter_headers
from oncelog.records.record import read_records
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.scenario.node.driver import Driver
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


@pytest.fixture
def driver():
    driver = Driver()
    create_topic(driver.connect(), "t", 2)
    return driver


def values_of(records: bytes) -> list[bytes]:
    return [
        record.value
        for position, header in iter_headers(records)
        for record in read_records(records, position, header, 1 << 20)
    ]


def test_acks_all_is_answered_only_after_the_sync(driver):
    peer = driver.connect()
    driver.hold_syncs = True
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    assert not peer.responses
    driver.release()
    assert produced(peer.responses.popleft()) == (0, 0)


def test_acks_1_is_answered_from_the_page_cache_but_not_readable_before_the_sync(driver):
    peer, reader = driver.connect(), driver.connect()
    driver.hold_syncs = True
    assert produced(peer.ask(produce("t", batch(driver, b"a"), acks=1), PRODUCE_VERSION)) == (0, 0)
    reader.send(fetch("t", 0, max_wait_ms=0), FETCH_VERSION)
    assert not reader.responses
    driver.release()
    error, high_watermark, records = fetched(reader.responses.popleft())
    assert (error, high_watermark, values_of(records)) == (0, 1, [b"a"])


def test_pipelined_produces_share_the_next_sync_and_answer_in_order(driver):
    peer = driver.connect()
    driver.hold_syncs = True
    for value in (b"a", b"b", b"c"):
        peer.send(produce("t", batch(driver, value)), PRODUCE_VERSION)
    assert len(driver.held) == 1, "one sync under way, the others wait for the next"
    driver.release()
    assert [produced(response)[1] for response in peer.responses] == [0, 1, 2]


def test_an_acknowledgement_that_times_out_says_so(driver):
    peer = driver.connect()
    driver.hold_syncs = True
    peer.send(produce("t", batch(driver, b"a"), timeout_ms=100), PRODUCE_VERSION)
    driver.advance(100)
    assert produced(peer.responses.popleft())[0] == ErrorCode.REQUEST_TIMED_OUT


def test_an_assignment_that_does_not_get_to_the_disk_holds_no_member_of_its_group(driver):
    """Neither the leader, who brings it, nor a member that waits for the leader."""
    peers = [driver.connect(), driver.connect()]
    peers[0].ask(FindCoordinatorRequest(key="g"), 2)
    for peer in peers:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        join = JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=protocols)
        join.session_timeout_ms = join.rebalance_timeout_ms = 45_000
        peer.send(join, 3)
    driver.advance(10_000)
    joined = [peer.responses.popleft() for peer in peers]
    driver.hold_syncs = True
    for peer, member in sorted(zip(peers, joined, strict=True), key=lambda item: bool(item[1].members)):
        sync = SyncGroupRequest(group_id="g", generation_id=member.generation_id, member_id=member.member_id)
        sync.assignments = [SyncGroupRequestAssignment(member_id=m.member_id, assignment=b"") for m in member.members]
        peer.send(sync, 2)
    driver.advance(driver.config.get("offsets.commit.timeout.ms"))
    late = [[response.error_code for response in peer.responses] for peer in peers]
    assert late == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]] * 2
    driver.release()
    assert [len(peer.responses) for peer in peers] == [1, 1]


def test_responses_keep_the_order_of_requests_when_a_later_one_is_ready_first(driver):
    peer = driver.connect()
    driver.hold_syncs = True
    peer.send(produce("t", batch(driver, b"slow")), PRODUCE_VERSION)
    peer.send(ApiVersionsRequest(), 0)
    assert not peer.responses
    driver.release()
    assert [type(response).__name__ for response in peer.responses] == ["ProduceResponse", "ApiVersionsResponse"]


def test_a_fetch_waits_for_data_and_holds_its_connection_only(driver):
    reader, other = driver.connect(), driver.connect()
    reader.send(fetch("t", 0, max_wait_ms=10_000), FETCH_VERSION)
    reader.send(ApiVersionsRequest(), 0)
    assert not reader.responses
    other.ask(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    assert values_of(fetched(reader.responses.popleft())[2]) == [b"a"]
    assert type(reader.responses.popleft()).__name__ == "ApiVersionsResponse"


def test_a_fetch_answers_empty_when_its_time_is_up(driver):
    reader = driver.connect()
    reader.send(fetch("t", 0, max_wait_ms=300), FETCH_VERSION)
    driver.advance(299)
    assert not reader.responses
    driver.advance(1)
    assert fetched(reader.responses.popleft()) == (0, 0, b"")


def test_min_bytes_counts_what_arrives_in_several_appends(driver):
    reader, writer = driver.connect(), driver.connect()
    one = batch(driver, b"x" * 100)
    reader.send(fetch("t", 0, max_wait_ms=10_000, min_bytes=2 * len(one)), FETCH_VERSION)
    writer.ask(produce("t", one), PRODUCE_VERSION)
    assert not reader.responses
    writer.ask(produce("t", one), PRODUCE_VERSION)
    assert len(values_of(fetched(reader.responses.popleft())[2])) == 2


def test_reading_pauses_while_too_much_is_unanswered_and_resumes(driver):
    peer = driver.connect()
    driver.hold_syncs = True
    for index in range(100):
        assert not peer.paused
        peer.send(produce("t", batch(driver, b"%d" % index)), PRODUCE_VERSION)
    assert peer.paused
    driver.release()
    assert not peer.paused
    assert [produced(response)[1] for response in peer.responses] == list(range(100))


def test_requests_behind_a_parked_fetch_pause_reading_by_their_size(driver):
    reader, writer = driver.connect(), driver.connect()
    reader.send(fetch("t", 1, max_wait_ms=100), FETCH_VERSION)  # beyond the end: answered at once
    assert fetched(reader.responses.popleft())[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    reader.send(fetch("t", 0, max_wait_ms=10_000), FETCH_VERSION)
    while not reader.paused:
        reader.send(produce("t", batch(driver, b"x" * 300_000), partition=1), PRODUCE_VERSION)
    assert log_of(driver, "t", 1).log_end_offset == 0, "nothing behind the fetch was decided"
    writer.ask(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    assert not reader.paused
    assert log_of(driver, "t", 1).log_end_offset == 4


def test_a_client_that_leaves_takes_its_parked_fetch_with_it(driver):
    reader, writer = driver.connect(), driver.connect()
    reader.send(fetch("t", 0, max_wait_ms=2**31 - 1), FETCH_VERSION)
    waiting = driver.node.next_deadline_ms()
    driver.disconnect(reader)
    assert driver.node._delayed_fetches._by_key == {}
    assert driver.node.next_deadline_ms() is None or driver.node.next_deadline_ms() <= waiting
    assert produced(writer.ask(produce("t", batch(driver, b"a")), PRODUCE_VERSION)) == (0, 0)


def test_a_produce_goes_on_when_its_client_has_left(driver):
    peer = driver.connect()
    driver.hold_syncs = True
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.disconnect(peer)
    driver.release()
    assert log_of(driver, "t").high_watermark == 1


@pytest.mark.parametrize("seed", range(20))
def test_what_was_acknowledged_survives_a_power_cut_once(driver, seed):
    peer = driver.connect()
    acknowledged = []
    for index in range(10):
        driver.hold_syncs = index >= 5 + seed % 5
        peer.send(produce("t", batch(driver, b"%d" % index)), PRODUCE_VERSION)
        if peer.responses:
            assert produced(peer.responses.popleft()) == (0, index)
            acknowledged.append(b"%d" % index)
    driver.hold_syncs = False
    driver.crash_and_restart(seed)
    records = fetched(driver.connect().ask(fetch("t", 0, max_wait_ms=0), FETCH_VERSION))[2]
    assert values_of(records)[: len(acknowledged)] == acknowledged


def test_a_failed_sync_stops_the_node_and_acknowledges_nothing(driver):
    peer = driver.connect()
    driver.files.fail_syncs(1)
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    assert not peer.responses
    assert driver.fatal is not None
    assert "has failed: [Errno 5]" in driver.fatal


def test_a_sync_that_fails_because_its_topic_was_deleted_is_no_failure(driver):
    peer, admin = driver.connect(), driver.connect()
    driver.hold_syncs = True
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    response = admin.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
    assert [topic.error_code for topic in response.responses] == [0]
    driver.files.fail_syncs(1, errno.ENOENT)
    driver.release()
    assert driver.fatal is None
    assert produced(peer.responses.popleft())[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acks_0_has_no_response_and_an_error_closes_the_connection(driver):
    peer = driver.connect()
    peer.send(produce("t", batch(driver, b"a"), acks=0), PRODUCE_VERSION)
    assert not peer.responses
    assert not peer.closed
    peer.send(produce("nowhere", batch(driver, b"a"), acks=0), PRODUCE_VERSION)
    assert peer.closed


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0", b"\0\0", bytes(8), b"\x7f\xff\0\0\0\0\0\1\xff\xff", b"\0\x03\0\x7f\0\0\0\1\xff\xff", b"\xff" * 64],
    ids=["empty", "one byte", "two bytes", "produce v0", "unknown api", "metadata v127", "noise"],
)
def test_garbage_costs_its_connection_and_nothing_else(driver, frame):
    peer, other = driver.connect(), driver.connect()
    peer.send_frame(frame)
    assert peer.closed
    assert not peer.responses
    assert produced(other.ask(produce("t", batch(driver, b"a")), PRODUCE_VERSION)) == (0, 0)


def test_what_was_asked_before_garbage_is_answered_before_the_connection_closes(driver):
    peer = driver.connect()
    driver.hold_syncs = True
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    peer.send_frame(b"\xff" * 16)
    peer.send(ApiVersionsRequest(), 0)
    assert not peer.closed
    driver.release()
    assert [type(response).__name__ for response in peer.responses] == ["ProduceResponse"]
    assert peer.closed


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(driver):
    peer = driver.connect()
    peer._asked[7] = (ApiVersionsRequest(), 0)
    peer.send_frame(b"\0\x12\0\x63\0\0\0\x07\xff\xff\0")
    response = peer.responses.popleft()
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(k.min_version, k.max_version) for k in response.api_keys if k.api_key == 18] == [(0, 5)]
    assert not peer.closed


def test_shutdown_finishes_what_is_in_flight(driver):
    peer = driver.connect()
    driver.hold_syncs = True
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.shutdown()
    assert not driver.stopped
    driver.release()
    assert driver.stopped
    assert produced(peer.responses.popleft()) == (0, 0)


def test_shutdown_brings_the_page_cache_to_disk():
    driver = Driver({"log.sync.policy": "none"})
    peer = driver.connect()
    create_topic(peer, "t", 3)
    for partition in range(3):
        peer.ask(produce("t", batch(driver, b"a"), partition), PRODUCE_VERSION)
    assert log_of(driver, "t", 1).durable_offset == 0
    driver.hold_syncs = True
    driver.shutdown()
    assert len(driver.held) == 3, "all under way at once"
    driver.release()
    assert driver.stopped
    assert [log_of(driver, "t", partition).durable_offset for partition in range(3)] == [1, 1, 1]


def test_group_requests_before_any_group_exists_are_refused_politely(driver):
    response = driver.connect().ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    assert response.error_code == ErrorCode.NOT_COORDINATOR


def test_deleted_records_stay_deleted_after_a_power_cut(driver):
    peer = driver.connect()
    for value in (b"a", b"b", b"c"):
        peer.ask(produce("t", batch(driver, value)), 9)
    assert delete_before(peer, 2).low_watermark == 2
    driver.crash_and_restart(1)
    assert driver.node.logs.logs["t", 0].log_start_offset == 2


def test_what_delete_records_could_not_keep_is_not_deleted(driver):
    """Else clients would see it gone until the next start, and to ask again would be answered well: nothing to do."""
    peer = driver.connect()
    for value in (b"a", b"b", b"c"):
        peer.ask(produce("t", batch(driver, value)), 9)
    driver.files.fail_syncs(1)
    refused = delete_before(peer, 2)
    assert (refused.error_code, refused.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert driver.node.logs.logs["t", 0].log_start_offset == 0
    assert delete_before(peer, 2).low_watermark == 2
    driver.crash_and_restart(1)
    assert driver.node.logs.logs["t", 0].log_start_offset == 2


def delete_before(peer, offset):
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=1000)
    return peer.ask(request, 2).topics[0].partitions[0]
