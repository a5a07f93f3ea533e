"""Share coordinators of one broker: APIs 83 to 87, durability, restarts, pruning, the topic."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import SHARE_GROUP_STATE, GroupId, LeaderEpoch, Offset, TopicId, TopicPartition
from oncelog.core.share.model import ShareState
from oncelog.core.share_state.model import DeleteState, ShareKey, SummarizeState
from oncelog.records.internal.share_state_records import SnapshotValue, StateBatch
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import batch, create_topic, log_of, produce, produced
from tests.scenario.share.state_requests import Persister, ask, find, initialize, key_of, read, send, write

ONE = {"share.coordinator.state.topic.num.partitions": "1"}
MINUTE = 60_000


def started(**config: str) -> tuple[Driver, Peer, ShareKey]:
    """A broker with a topic, and its coordinators at work."""
    driver = Driver({**ONE, **{key.replace("_", "."): value for key, value in config.items()}})
    peer = driver.connect()
    create_topic(peer, "t", 3)
    key = key_of(driver)
    (coordinator,) = find(peer, key.coordinator_key)
    assert (coordinator.error_code, coordinator.node_id, coordinator.error_message) == (0, 1, "")
    return driver, peer, key


def test_the_topic_has_apache_kafkas_configs() -> None:
    driver, peer, _ = started()
    resource = DescribeConfigsResource(resource_type=2, resource_name=SHARE_GROUP_STATE, configuration_keys=None)
    (result,) = peer.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    own = {config.name: config.value for config in result.configs if config.config_source == 1}
    assert own == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }
    assert len(driver.node.cluster.image.topics[SHARE_GROUP_STATE].partitions) == 1


def test_clients_may_neither_write_nor_delete_in_the_topic() -> None:
    driver, peer, _ = started()
    refused = peer.ask(produce(SHARE_GROUP_STATE, batch(driver, b"x")), 9)
    assert produced(refused)[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    deletion = DeleteRecordsTopic(name=SHARE_GROUP_STATE, partitions=[DeleteRecordsPartition(offset=0)])
    (topic,) = peer.ask(DeleteRecordsRequest(topics=[deletion], timeout_ms=1000), 2).topics
    assert topic.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_state_is_written_read_summarized_and_deleted() -> None:
    driver, peer, key = started()
    other = key._replace(partition=2)
    assert [reply.error_code for reply in ask(peer, initialize(key), initialize(other, 4, -1))] == [0, 0]
    assert ask(peer, read(key, 3))[0].state == SnapshotValue(0, 0, 0, 0)
    assert ask(peer, write(key, (0, 4, 2, 1), (5, 9, 0, 2), leader_epoch=3))[0].error_code is ErrorCode.NONE
    (kept,) = ask(peer, read(key, 3))
    assert kept.state is not None
    assert kept.state.batches == (StateBatch(Offset(0), Offset(4), 2, 1), StateBatch(Offset(5), Offset(9), 0, 2))
    summaries = ask(peer, SummarizeState(key, LeaderEpoch(3)), SummarizeState(other, LeaderEpoch(-1)))
    assert [reply.state for reply in summaries] == [SnapshotValue(0, 0, 3, 0, 0), SnapshotValue(0, 4, 0, -1, -1)]
    assert ask(peer, DeleteState(key), DeleteState(other)) == [(0, None, None)] * 2
    assert ask(peer, SummarizeState(key, LeaderEpoch(3)))[0].state == SnapshotValue(0, 0, 0, -1, -1)
    assert ask(peer, read(key, 3))[0].message == "Read operation on uninitialized share partition not allowed."
    assert driver.fatal is None


@pytest.mark.parametrize(
    "message",
    [
        ReadShareGroupStateRequest(group_id="", topics=[ReadStateData(partitions=[])]),
        ReadShareGroupStateRequest(group_id="g"),
        ReadShareGroupStateRequest(group_id="g", topics=[ReadStateData(topic_id=bytes(16))]),
    ],
)
def test_a_message_without_content_gets_an_empty_response(message: ReadShareGroupStateRequest) -> None:
    _, peer, _ = started()
    assert peer.ask(message, 0).results == []


def test_without_the_topic_no_broker_is_the_coordinator() -> None:
    driver = Driver(ONE)
    peer = driver.connect()
    create_topic(peer, "t")
    (reply,) = ask(peer, read(key_of(driver)))
    assert reply.error_code is ErrorCode.NOT_COORDINATOR
    assert reply.message == "Unable to read share group state: This is not the correct coordinator."


@pytest.mark.parametrize("key", ["", "g", "g:short:0", ":AAAAAAAAAAAAAAAAAAAAAA:0", "g:AAAAAAAAAAAAAAAAAAAAAA:x"])
def test_a_malformed_key_has_no_coordinator(key: str) -> None:
    _, peer, _ = started()
    (coordinator,) = find(peer, key)
    assert (coordinator.error_code, coordinator.node_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_share_coordinators_are_found_from_version_6_on() -> None:
    _, peer, key = started()
    (coordinator,) = find(peer, key.coordinator_key, version=5)
    assert coordinator.error_code == ErrorCode.INVALID_REQUEST


def test_no_reply_comes_before_its_records_are_durable() -> None:
    driver, peer, key = started()
    driver.hold_syncs = True
    send(peer, initialize(key))
    send(driver.connect(), initialize(key, 1))
    assert not peer.responses
    # A reader sees the state that is not durable yet, so it waits, too.
    reader = driver.connect()
    send(reader, SummarizeState(key, LeaderEpoch(0)))
    assert not reader.responses
    driver.release()
    assert peer.responses
    assert reader.responses


def test_a_write_that_is_not_durable_in_time_fails_and_may_be_repeated() -> None:
    driver, peer, key = started(share_coordinator_write_timeout_ms="700")
    ask(peer, initialize(key))
    driver.hold_syncs = True
    send(peer, write(key, (0, 0, 2, 1)))
    driver.advance(699)
    assert not peer.responses
    driver.advance(1)
    (result,) = peer.responses.popleft().results
    assert result.partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert result.partitions[0].error_message == "Unable to write share group state: The coordinator is not available."
    driver.release()
    driver.hold_syncs = False
    assert ask(peer, write(key, (0, 0, 2, 1)))[0].error_code is ErrorCode.NONE


def test_what_was_acknowledged_outlives_power_cuts() -> None:
    driver, peer, key = started(share_coordinator_snapshot_update_records_per_snapshot="3")
    ask(peer, initialize(key))
    for leader_epoch in range(4):
        ask(peer, read(key, leader_epoch))
        for offset in range(4 * leader_epoch, 4 * leader_epoch + 4):
            change = write(key, (offset, offset, 2 * (offset % 2), 1), leader_epoch=leader_epoch)
            assert ask(peer, change)[0].error_code is ErrorCode.NONE
        before = ask(peer, read(key, leader_epoch))[0].state
        driver.crash_and_restart(leader_epoch)
        peer = driver.connect()
        if leader_epoch:
            assert ask(peer, write(key, leader_epoch=leader_epoch - 1))[0].error_code is ErrorCode.FENCED_LEADER_EPOCH
        assert ask(peer, read(key, leader_epoch))[0].state == before


def test_the_log_is_pruned_behind_the_snapshots() -> None:
    driver, peer, key = started(share_coordinator_snapshot_update_records_per_snapshot="2")
    ask(peer, initialize(key), initialize(key._replace(partition=1)))
    for offset in range(9):
        ask(peer, write(key, (offset, offset, 2, 1)))
    log = log_of(driver, SHARE_GROUP_STATE)
    assert (log.log_start_offset, log.log_end_offset) == (0, 11)
    driver.advance(10 * MINUTE)  # the cold partition has a new snapshot by then
    assert log.log_start_offset >= 9
    assert driver.node.share.states.pruned_offsets == {0: log.log_start_offset}
    states = [reply.state for reply in ask(peer, read(key), read(key._replace(partition=1)))]
    driver.crash_and_restart(5)
    assert log_of(driver, SHARE_GROUP_STATE).log_start_offset == log.log_start_offset
    peer = driver.connect()
    assert [reply.state for reply in ask(peer, read(key), read(key._replace(partition=1)))] == states


def test_states_of_a_deleted_topic_go() -> None:
    driver, peer, key = started()
    ask(peer, initialize(key), initialize(key._replace(partition=1)))
    peer.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    (shard,) = driver.node.share.states.shards()
    assert shard.states() == {}
    driver.advance(1)
    assert log_of(driver, SHARE_GROUP_STATE).log_end_offset == 4


def test_a_state_too_large_for_a_record_is_an_error_that_names_the_way_out() -> None:
    driver, peer, key = started(message_max_bytes="2000")
    ask(peer, initialize(key))
    batches = [(2 * offset, 2 * offset, 0, 1) for offset in range(200)]
    (reply,) = ask(peer, write(key, *batches))
    assert reply.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert any("Lower share.partition.max.record.locks" in report for report in driver.reports)
    assert ask(peer, read(key))[0].state == SnapshotValue(0, 0, 0, 0)


class TestPersister:
    def test_the_first_request_makes_the_topic_and_is_answered_at_once(self) -> None:
        driver = Driver(ONE)
        create_topic(driver.connect(), "t")
        persister, key, now_ms = Persister(driver), key_of(driver), driver.now_ms
        driver.hold_metadata = True
        persister.call("initialize", key, 2, Offset(7))
        persister.call("initialize", key._replace(group_id=GroupId("h")), 2, Offset(7))
        assert persister.answers == []
        driver.release()
        driver.hold_metadata = False
        assert persister.answers == [(ErrorCode.NONE, None)] * 2
        assert driver.now_ms == now_ms

    def test_each_request_is_answered(self) -> None:
        driver, _, key = started()
        persister = Persister(driver)
        epoch, batches = LeaderEpoch(1), (StateBatch(Offset(7), Offset(8), 2, 1),)
        persister.call("initialize", key, 2, Offset(7))
        persister.call("read", key, epoch)
        persister.call("write", key, epoch, ShareState(2, Offset(7), 2, batches))
        persister.call("summary", key, epoch)
        persister.call("read", key, epoch)
        persister.call("delete", key)
        persister.call("summary", key, epoch)
        assert persister.answers == [
            (ErrorCode.NONE, None),
            (ErrorCode.NONE, None, ShareState(2, Offset(7), -1, ())),
            (ErrorCode.NONE, None),
            (ErrorCode.NONE, None, 2, 1, 7, 2),
            (ErrorCode.NONE, None, ShareState(2, Offset(7), -1, batches)),
            (ErrorCode.NONE, None),
            (ErrorCode.NONE, None, 0, 0, -1, -1),
        ]

    def test_errors_that_do_not_pass_come_at_once_with_kafkas_message(self) -> None:
        driver, _, key = started()
        persister = Persister(driver)
        persister.call("read", key, LeaderEpoch(0))
        message = "Error in read state RPC. Read operation on uninitialized share partition not allowed."
        assert persister.answers == [(ErrorCode.INVALID_REQUEST, message, None)]

    def test_errors_that_may_pass_are_repeated_for_thirty_seconds(self) -> None:
        driver, _, key = started()
        persister = Persister(driver)
        persister.call("delete", key._replace(topic_id=TopicId(b"unknown topic id")))
        driver.advance(29_999)
        assert persister.answers == []
        driver.advance(1)
        (answer,) = persister.answers
        assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.message == (
            "Error in delete state RPC. Exhausted max retries to complete delete state RPC without success."
        )

    def test_an_initialization_is_not_repeated_once_its_group_may_have_begun_another(self) -> None:
        driver, peer, key = started()
        persister = Persister(driver)
        # A coordinator whose disk stalls: each write fails after five seconds.
        driver.hold_syncs = True
        persister.call("initialize", key, 1, Offset(0))
        driver.advance(36_000)
        driver.release()
        driver.hold_syncs = False
        persister.call("initialize", key, 1, Offset(0))
        epoch, batches = LeaderEpoch(0), (StateBatch(Offset(0), Offset(9), 2, 1),)
        persister.call("write", key, epoch, ShareState(1, Offset(0), 10, batches))
        driver.advance(MINUTE)
        assert [answer.error_code for answer in persister.answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0, 0]
        assert ask(peer, read(key))[0].state == SnapshotValue(0, 1, 0, 0, batches=batches)

    @pytest.mark.parametrize(("method", "arguments"), [("initialize", (1, Offset(0))), ("delete", ())])
    def test_a_later_initialization_ends_what_would_wipe_its_state(
        self, method: str, arguments: tuple[object, ...]
    ) -> None:
        driver, peer, key = started()
        persister = Persister(driver)
        ask(peer, initialize(key))
        driver.hold_syncs = True
        persister.call(method, key, *arguments)
        driver.advance(5_000)  # it has failed, and waits to be repeated
        driver.release()
        driver.hold_syncs = False
        persister.call("initialize", key, 1, Offset(0))
        epoch, batches = LeaderEpoch(0), (StateBatch(Offset(0), Offset(9), 2, 1),)
        persister.call("write", key, epoch, ShareState(1, Offset(0), 10, batches))
        driver.advance(MINUTE)
        assert [answer.error_code for answer in persister.answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0, 0]
        assert ask(peer, read(key))[0].state == SnapshotValue(0, 1, 0, 0, batches=batches)

    def test_a_cancelled_request_is_not_answered(self) -> None:
        driver, _, key = started()
        persister = Persister(driver)
        driver.hold_syncs = True
        persister.call("initialize", key, 0, Offset(0), cancel=True)
        persister.call("read", key._replace(topic_id=TopicId(bytes(16))), LeaderEpoch(0), cancel=True)
        persister.call("initialize", key._replace(topic_id=TopicId(bytes(16))), 0, Offset(0), cancel=True)
        driver.release()
        driver.advance(MINUTE)
        assert persister.answers == []


def test_the_partition_of_a_key_is_kafkas() -> None:
    """Java's hash of ``group:topicId:partition``."""
    driver = Driver()
    peer = driver.connect()
    create_topic(peer, "t")
    find(peer, key_of(driver).coordinator_key)
    key = ShareKey(GroupId("group"), TopicId(bytes(range(16))), 3)
    assert key.coordinator_key == "group:AAECAwQFBgcICQoLDA0ODw:3"
    assert driver.node.share.states.partition_of(key.coordinator_key) == TopicPartition(SHARE_GROUP_STATE, 32)
