"""The cost of a failure: the request or the connection it befell, or the node when nobody could go on from there."""

from __future__ import annotations

import errno

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition, uuid_text
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import PRODUCE_VERSION, batch, create_topic, fetch, log_of, produce, produced

NO_SPACE = OSError(28, "No space left on device")


STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def refuses(error):
    def raises(*_args, **_options):
        raise error

    return raises


def fails(*_args, **_options):
    raise NO_SPACE


@pytest.fixture
def driver():
    driver = Driver({"log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "1000"})
    create_topic(driver.connect(), "t", 2, retention_ms="5000", segment_ms="1000")
    return driver


def still_serves(driver) -> bool:
    return produced(driver.connect().ask(produce("t", batch(driver, b"a")), PRODUCE_VERSION))[0] == 0


def test_a_response_that_its_version_cannot_say_costs_its_connection(driver):
    peer = driver.connect()
    topic = CreatableTopic(name="x" * 32_700, num_partitions=1, replication_factor=1)
    peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 4)
    assert peer.closed
    assert driver.fatal is None
    assert len(driver.reports[-1]) < 5000
    assert still_serves(driver)


def test_a_decoder_that_fails_otherwise_costs_its_connection(driver, monkeypatch):
    peer = driver.connect()
    monkeypatch.setattr(MetadataRequest, "decode", fails)
    peer.send(MetadataRequest(topics=[]), 9)
    assert peer.closed
    assert driver.fatal is None


def test_a_failure_in_the_node_itself_ends_it_and_keeps_the_effects_before_it(driver, monkeypatch):
    peer = driver.connect()
    monkeypatch.setattr(driver.node._producer_ids, "prefetch", fails)
    assert produced(peer.ask(produce("t", batch(driver, b"a"), acks=1), PRODUCE_VERSION)) == (0, 0)
    assert "No space left" in driver.fatal


def test_checkpoints_are_written_again_when_the_disk_has_room_again(driver, monkeypatch):
    written = []
    checkpoints = driver.node.logs.checkpoints
    monkeypatch.setattr(driver.node.logs, "checkpoints", fails)
    driver.advance(130_000)
    assert sum("checkpoints could not be written" in report for report in driver.reports) == 2
    monkeypatch.setattr(driver.node.logs, "checkpoints", lambda: written.append(checkpoints()))
    driver.advance(60_000)
    assert written
    assert driver.fatal is None


def test_retention_of_one_log_goes_on_when_that_of_another_fails(driver, monkeypatch):
    peer = driver.connect()
    for partition in (0, 1):
        peer.ask(produce("t", batch(driver, b"old"), partition), PRODUCE_VERSION)
    due_jobs = driver.node.logs.due_jobs
    monkeypatch.setattr(
        driver.node.logs,
        "due_jobs",
        lambda log, *rest, **options: fails() if log.partition == 0 else due_jobs(log, *rest, **options),
    )
    driver.advance(20_000)
    assert log_of(driver, "t", 1).log_start_offset == 1
    assert any("maintenance of t-0 failed" in report for report in driver.reports)
    monkeypatch.undo()
    driver.advance(2_000)
    assert log_of(driver, "t", 0).log_start_offset == 1


def test_records_of_long_ago_are_there_until_retention_looks_for_them():
    driver = Driver({"log.retention.check.interval.ms": "100000"})
    create_topic(driver.connect(), "t", retention_ms="5000")
    peer = driver.connect()

    def starts_after(milliseconds: int) -> int:
        driver.advance(milliseconds)
        return log_of(driver, "t").log_start_offset

    peer.ask(produce("t", batch(driver, b"old")), PRODUCE_VERSION)
    assert (starts_after(29_000), starts_after(3_000)) == (0, 1), "30 s after the start"
    peer.ask(produce("t", batch(driver, b"old")), PRODUCE_VERSION)
    assert (starts_after(95_000), starts_after(20_000)) == (1, 2), "then at the interval"


def test_what_was_created_and_deleted_again_while_a_removal_waits_is_removed_too(driver):
    admin = driver.connect()
    driver.hold_jobs = True
    for _ in range(3):
        create_topic(admin, "again")
        admin.ask(DeleteTopicsRequest(topic_names=["again"], timeout_ms=1000), 3)
    driver.release()
    assert [name for name in driver.files.list("") if name.startswith("again")] == []


@pytest.mark.parametrize("policy", ["commit", "none"])
def test_a_deleted_segment_is_not_kept_open_for_a_sync_that_never_comes(policy):
    driver = Driver({"log.retention.check.interval.ms": "1000", "log.sync.policy": policy})
    create_topic(driver.connect(), "t", retention_ms="5000", segment_ms="1000")
    peer = driver.connect()
    for _ in range(3):
        peer.ask(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
        driver.advance(1_500)
    driver.advance(60_000)
    assert log_of(driver, "t").log_start_offset == 3
    assert not log_of(driver, "t").has_unsynced_segments


def test_a_client_cannot_write_the_brokers_own_records(driver):
    peer = driver.connect()
    peer.ask(FindCoordinatorRequest(key="g"), 2)
    records = bytes(build_batch([Record(0, driver.now_ms, b"\0\2", b"poison", ())]))
    end = driver.node.partitions.leader_log(TopicPartition(CONSUMER_OFFSETS, 0)).log.log_end_offset
    assert produced(peer.ask(produce(CONSUMER_OFFSETS, records), PRODUCE_VERSION)) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        -1,
    )
    assert driver.node.partitions.leader_log(TopicPartition(CONSUMER_OFFSETS, 0)).log.log_end_offset == end


def test_a_hundred_thousand_topics_in_one_metadata_request_are_answered_in_linear_time(driver):
    names = [MetadataRequestTopic(name=f"n{index}") for index in range(3_000)]
    response = driver.connect().ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
    assert len(response.topics) == 3_000


def test_who_waits_for_a_group_record_is_told_when_the_offsets_topic_is_deleted(driver):
    peer, admin = driver.connect(), driver.connect()
    peer.ask(FindCoordinatorRequest(key="g"), 2)
    driver.hold_syncs = True
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    peer.send(join, 3)
    driver.advance(4_000)
    admin.ask(DeleteTopicsRequest(topic_names=[CONSUMER_OFFSETS], timeout_ms=1000), 3)
    assert peer.responses, "it does not wait for a sync that will tell nobody"


def test_the_same_partition_twice_is_not_acknowledged_before_all_of_it_is_durable(driver):
    peer = driver.connect()
    first = batch(driver, b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    second = batch(driver, b"b", producer_id=7, producer_epoch=0, base_sequence=1)
    peer.ask(produce("t", first), PRODUCE_VERSION)
    driver.hold_syncs = True
    request = produce("t", second)
    request.topic_data[0].partition_data.append(produce("t", first).topic_data[0].partition_data[0])
    peer.send(request, PRODUCE_VERSION)
    assert not peer.responses, "the duplicate is durable, what came before it in the request is not"
    driver.release()
    assert [p.base_offset for p in peer.responses.popleft().responses[0].partition_responses] == [1, 0]


def test_a_fetch_whose_topic_is_deleted_meanwhile_is_told(driver):
    reader, admin = driver.connect(), driver.connect()
    reader.send(fetch("t", 0, max_wait_ms=2**31 - 1), 11)
    admin.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
    error = reader.responses.popleft().responses[0].partitions[0].error_code
    assert error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_power_cut_may_take_the_file_that_names_the_topic(driver):
    """Found by ``oncelog sim --seed 6``: every fetch by topic id was refused with INCONSISTENT_TOPIC_ID for ever."""
    driver.files.overwrite("t-0/partition.metadata", b"")
    driver.crash_and_restart(seed=1)
    topic_id = driver.node.cluster.image.topics["t"].topic_id
    assert log_of(driver, "t").topic_id == topic_id
    assert uuid_text(topic_id).encode() in driver.files.content("t-0/partition.metadata")


NO_DESCRIPTOR = OSError(errno.EMFILE, "Too many open files")


def test_a_log_that_cannot_be_created_now_is_an_error_to_try_again_after_and_is_created_later(driver, monkeypatch):
    peer = driver.connect()
    with monkeypatch.context() as patched:
        patched.setattr(driver.files, "make_directory", refuses(NO_DESCRIPTOR))
        create_topic(peer, "new", 40)
        assert produced(peer.ask(produce("new", batch(driver, b"a")), PRODUCE_VERSION))[0] == STORAGE_ERROR
        assert driver.fatal is None
        assert [report for report in driver.reports if "cannot be created" in report] == [
            "the log of new-0 cannot be created and is retried: [Errno 24] Too many open files"
        ]
        driver.advance(5000)
        assert len([report for report in driver.reports if "cannot be created" in report]) == 1
    assert not driver.node.logs.logs.keys() & {TopicPartition("new", index) for index in range(40)}
    driver.advance(1000)
    assert driver.node.logs.logs.keys() >= {TopicPartition("new", index) for index in range(40)}
    assert produced(peer.ask(produce("new", batch(driver, b"a")), PRODUCE_VERSION)) == (0, 0)


def test_a_topic_is_deleted_whose_logs_could_not_be_created(driver, monkeypatch):
    peer = driver.connect()
    with monkeypatch.context() as patched:
        patched.setattr(driver.files, "make_directory", refuses(NO_DESCRIPTOR))
        create_topic(peer, "new", 2)
        peer.ask(DeleteTopicsRequest(topic_names=["new"], timeout_ms=1000), 5)
        driver.advance(5000)
    driver.advance(5000)
    assert driver.fatal is None
    create_topic(peer, "new", 2)
    assert produced(peer.ask(produce("new", batch(driver, b"a")), PRODUCE_VERSION)) == (0, 0)


def test_a_request_whose_handler_cannot_be_imported_now_is_answered_later_and_in_order(driver, monkeypatch):
    peer = driver.connect()
    with monkeypatch.context() as patched:
        patched.setattr(driver.node.requests.apis, "find", refuses(NO_DESCRIPTOR))
        for _ in range(3):
            peer.send(MetadataRequest(topics=[]), 9)
        driver.advance(3000)
        assert not peer.closed
        assert len([report for report in driver.reports if "handler cannot be loaded" in report]) == 1
    before = len(peer.responses)
    driver.advance(1000)
    assert len(peer.responses) == before + 3
    assert not driver.node.requests.mutes
    assert still_serves(driver)


def test_files_without_a_descriptor_are_reported_once_a_minute(driver):
    for _ in range(3):
        driver.files.errors.note(NO_DESCRIPTOR)
        driver.advance(1000)
    assert len([report for report in driver.reports if "no file descriptor is left" in report]) == 1
    driver.advance(60_000)
    driver.files.errors.note(NO_DESCRIPTOR)
    driver.advance(1000)
    assert len([report for report in driver.reports if "no file descriptor is left" in report]) == 2
