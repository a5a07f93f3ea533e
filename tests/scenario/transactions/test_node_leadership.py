"""Leadership of single partitions comes and goes: coordinators resign and lead, markers wait for a leader."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import (
    CONSUMER_OFFSETS,
    NO_BROKER,
    TRANSACTION_STATE,
    BrokerId,
    LeaderEpoch,
    TopicName,
    TopicPartition,
)
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import load_image
from oncelog.core.controller.replicas.failover import begin_controlled_shutdown, claim_controller
from oncelog.ports import Set
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.scenario.node.requests import PRODUCE_VERSION, batch, produce, produced
from tests.scenario.transactions.node_client import TOPIC, Client, StepwiseDriver, committed_offset, read, run, state_of
from tests.scenario.transactions.node_scenes import begun, both, new_driver, nothing_open

ME = BrokerId(1)


@pytest.fixture
def driver() -> StepwiseDriver:
    """A broker in a cluster whose controller is another one: :func:`elect`."""
    driver = new_driver()
    driver.others_are_silent = True
    session = driver.tree.session()
    image = load_image(session.subtree("/"))
    other = Registration(BrokerId(2), "other", 9092, None, image.cluster_id or "")
    session.commit([*register(image, other, 0), *claim_controller(image, other.broker_id, 0)])
    session.commit(begin_controlled_shutdown(load_image(session.subtree("/")), other.broker_id, 0))  # given no replicas
    driver.dispatch_changes()
    assert not driver.node.controller.is_controller
    return driver


def elect(driver: StepwiseDriver, topic: str, leader: BrokerId, index: int | None = None) -> None:
    """Another broker, as controller, gives partitions (all, or one) a leader, each in a new epoch."""
    session = driver.tree.session()
    image = load_image(session.subtree("/"))
    operations = []
    for number, partition in enumerate(image.topics[TopicName(topic)].partitions):
        if index in (None, number):
            led = partition._replace(leader=leader, leader_epoch=LeaderEpoch(partition.leader_epoch + 1))
            value = layout.state_value(led, image.controller_epoch)
            operations.append(Set(layout.state_path(TopicName(topic), number), value, partition.version))
    session.commit(operations)
    driver.dispatch_changes()


def join(peer, member_id: str = "") -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )
    peer.send(request, 3)


def test_a_partition_without_leadership_takes_and_gives_nothing(driver: StepwiseDriver) -> None:
    client = begun(driver, True)
    run(driver.connect(), client.transaction("a", (0,), True, None))
    records = len(read(driver, 0)[0])
    elect(driver, TOPIC, NO_BROKER, 0)
    refused = driver.connect().ask(produce(TOPIC, batch(driver, b"a")), PRODUCE_VERSION)
    assert produced(refused)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    others = driver.connect().ask(produce(TOPIC, batch(driver, b"a"), 1), PRODUCE_VERSION)
    assert produced(others)[0] == ErrorCode.NONE, "its other partitions are led"
    elect(driver, TOPIC, ME, 0)
    leader = driver.node.partitions.leader_log(TopicPartition(TopicName(TOPIC), 0))
    assert leader.leader_epoch == 2
    assert produced(driver.connect().ask(produce(TOPIC, batch(driver, b"a")), PRODUCE_VERSION))[0] == ErrorCode.NONE
    assert len(read(driver, 0)[0]) == records + 1
    assert leader.log.leader_epochs.latest == 2


def test_a_produce_that_waits_for_its_sync_when_leadership_goes_is_told_so(driver: StepwiseDriver) -> None:
    driver.hold_syncs = True
    peer = driver.connect()
    peer.send(produce(TOPIC, batch(driver, b"a")), PRODUCE_VERSION)
    assert not peer.responses
    elect(driver, TOPIC, NO_BROKER, 0)
    assert produced(peer.responses.popleft())[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    driver.hold_syncs = False
    driver.finish_held()
    assert driver.fatal is None


def test_what_waits_in_a_group_coordinator_that_resigns_is_sent_away(driver: StepwiseDriver) -> None:
    run(driver.connect(), begun(driver, True).transaction("a", (0,), True, 5))
    waiting = driver.connect()
    join(waiting)
    assert not waiting.responses, "the first rebalance waits for others"
    elect(driver, CONSUMER_OFFSETS, NO_BROKER)
    assert waiting.responses.popleft().error_code == ErrorCode.NOT_COORDINATOR
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert driver.connect().ask(heartbeat, 3).error_code == ErrorCode.NOT_COORDINATOR
    elect(driver, CONSUMER_OFFSETS, ME)
    assert committed_offset(driver) == 5, "read back from the log in the new epoch"


def test_a_coordinator_led_in_the_same_epoch_stays_as_it_is(driver: StepwiseDriver) -> None:
    run(driver.connect(), begun(driver, True).transaction("a", (0,), True, None))
    shards = list(driver.node.transactions.shards())
    elect(driver, TOPIC, ME)
    assert list(driver.node.transactions.shards()) == shards, "not loaded again (KAFKA-15468)"
    elect(driver, TRANSACTION_STATE, ME)
    assert [shard.coordinator_epoch for shard in driver.node.transactions.shards()] == [1] * len(shards)


@both
def test_a_decided_transaction_is_finished_by_the_coordinator_of_the_next_epoch(
    driver: StepwiseDriver, v2: bool
) -> None:
    """The coordinator resigns between the decision and its markers."""
    client = begun(driver, v2, 0, 1, 2)
    run(driver.connect(), client.commit_offset(42))
    elect(driver, TOPIC, NO_BROKER, 2)
    ender = driver.connect()
    assert ender.ask(*client.end_request(True)).error_code == ErrorCode.NONE
    driver.advance(1_000)
    assert state_of(driver, "x") == "PrepareCommit", "a partition without a leader is never taken for marked"
    elect(driver, TRANSACTION_STATE, NO_BROKER)
    elect(driver, TRANSACTION_STATE, ME)
    driver.advance(1_000)
    assert state_of(driver, "x") == "PrepareCommit"
    elect(driver, TOPIC, ME, 2)
    driver.advance(1_000)
    assert state_of(driver, "x") == "CompleteCommit"
    assert nothing_open(driver)
    assert committed_offset(driver, require_stable=True) == 42


def test_a_marker_on_its_way_to_the_disk_when_leadership_goes_is_written_again(driver: StepwiseDriver) -> None:
    client = begun(driver, True, 0)
    driver.hold_syncs = True
    ender = driver.connect()
    ender.send(*client.end_request(True))
    driver.finish_held()
    assert state_of(driver, "x") == "PrepareCommit"
    elect(driver, TOPIC, NO_BROKER, 0)
    driver.hold_syncs = False
    driver.finish_held()
    driver.advance(1_000)
    assert state_of(driver, "x") == "PrepareCommit"
    elect(driver, TOPIC, ME, 0)
    driver.advance(1_000)
    assert state_of(driver, "x") == "CompleteCommit"
    assert nothing_open(driver)


def test_a_transactional_produce_asks_a_coordinator_that_resigned_in_vain(driver: StepwiseDriver) -> None:
    client: Client = begun(driver, True)
    elect(driver, TRANSACTION_STATE, NO_BROKER)
    client.begin()
    response = driver.connect().ask(*client.produce_request(0, b"late"))
    assert produced(response)[0] == ErrorCode.NOT_ENOUGH_REPLICAS, "retried by every client"
    elect(driver, TRANSACTION_STATE, ME)
    assert produced(driver.connect().ask(*client.produce_request(0, b"late")))[0] == ErrorCode.NONE
