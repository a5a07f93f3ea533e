"""A broker that has stood still decides nothing before it knows whether it was replaced."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicName
from oncelog.base.units import MIB
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.image.cluster_image import load_image
from oncelog.node.cluster import tree_access
from oncelog.node.cluster.metadata import CHECK_AGAIN_MS
from oncelog.node.kernel.events import DeadlineReached, StoodStill
from oncelog.node.requests.pause_recovery import LONGEST_MS
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import FETCH_VERSION, PRODUCE_VERSION, batch, create_topic, fetch, produce, produced


@pytest.fixture
def driver():
    driver = Driver()
    create_topic(driver.connect(), "t")
    return driver


def test_requests_wait_until_the_metadata_have_been_read_anew(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    early, late = driver.connect(), driver.connect()
    for _ in range(2):
        early.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    late.send(MetadataRequest(), 9)
    assert not early.responses
    assert not late.responses
    driver.release()
    assert "was paused for 12.3 s" in driver.reports[-1]
    assert [produced(response)[0] for response in early.responses] == [ErrorCode.NONE, ErrorCode.NONE]
    assert [produced(response)[1] for response in early.responses] == [0, 1]
    assert len(late.responses) == 1
    assert produced(driver.connect().ask(produce("t", batch(driver, b"a")), PRODUCE_VERSION))[1] == 2


def test_a_new_connection_learns_meanwhile_that_the_process_runs(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    observer, client = driver.connect(), driver.connect()
    observer.send(ApiVersionsRequest(), 0)
    assert len(observer.responses) == 1
    client.send(MetadataRequest(), 9)
    client.send(ApiVersionsRequest(), 0)
    assert not client.responses, "in the order of the connection"
    driver.release()
    assert len(client.responses) == 2


def test_a_session_that_has_ended_meanwhile_is_replaced_first(driver):
    driver.session.follow(0, None)  # the news of its end comes late
    driver.tree.end_session(driver.session._session_id)
    epoch = driver.node.cluster.broker_epoch
    driver.dispatch(StoodStill(12_345))
    assert driver.node.cluster.broker_epoch > epoch
    assert produced(driver.connect().ask(produce("t", batch(driver, b"a")), PRODUCE_VERSION))[0] == ErrorCode.NONE


def test_what_was_read_before_the_standstill_does_not_count(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    driver.dispatch(StoodStill(12_345))
    peer = driver.connect()
    peer.send(MetadataRequest(), 9)
    driver.hold_loads = False
    answered_at_first_load = []
    load = driver._load_metadata

    def told(effect) -> None:
        answered_at_first_load.append(len(peer.responses))
        load(effect)

    driver._load_metadata = told
    driver.release()
    assert answered_at_first_load == [0, 0], "the second load began before anything was answered"
    assert len(peer.responses) == 1


def test_a_tree_out_of_reach_holds_requests_up_for_a_while_only(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    peer = driver.connect()
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.advance(LONGEST_MS - 1)
    assert not peer.responses
    driver.advance(1)
    assert produced(peer.responses[0])[0] == ErrorCode.NONE


def test_requests_of_a_client_that_leaves_meanwhile_are_carried_out(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    peer = driver.connect()
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.disconnect(peer)
    driver.release()
    assert driver.fatal is None
    assert produced(driver.connect().ask(produce("t", batch(driver, b"b")), PRODUCE_VERSION))[1] == 1


def test_one_that_sends_on_meanwhile_is_read_no_further(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    peer = driver.connect()
    for _ in range(100):
        peer.send(MetadataRequest(), 9)
    assert peer.paused
    driver.release()
    assert len(peer.responses) == 100
    assert not peer.paused


def test_a_second_standstill_is_looked_into_as_the_first(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    driver.now_ms += 30_000
    driver.dispatch(StoodStill(12_345))
    peer = driver.connect()
    peer.send(MetadataRequest(), 9)
    driver.dispatch(DeadlineReached())
    assert not peer.responses
    driver.release()
    assert len(peer.responses) == 1


def test_what_waits_is_answered_when_the_broker_stops_meanwhile(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    peer = driver.connect()
    peer.send(MetadataRequest(), 9)
    driver.shutdown()
    assert driver.stopped
    assert len(peer.responses) == 1


def test_members_are_not_judged_while_their_heartbeats_wait():
    driver = Driver({"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"})
    client = GroupClient(driver)
    client.join(session_timeout_ms=10_000)
    assert client.beat() == ErrorCode.NONE
    driver.now_ms += 12_000
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    client.send_beat()
    driver.dispatch(DeadlineReached())
    driver.advance(CHECK_AGAIN_MS)
    driver.release()
    assert [response.error_code for response in client.peer.responses] == [ErrorCode.NONE]
    client.peer.responses.clear()
    driver.advance(10_001)
    assert client.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_changes_that_came_while_the_tree_was_read_are_newer_than_what_was_read(driver):
    """The worker has read the tree; before it says so, the stream tells of a topic, and a record is written to it."""
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    (effect,) = driver.held
    loaded = tree_access.load(driver.session, effect, driver.registration, driver.now_ms)
    driver.advance(LONGEST_MS)
    create_topic(driver.connect(), "u")
    assert produced(driver.connect().ask(produce("u", batch(driver, b"a")), PRODUCE_VERSION))[1] == 0
    driver.dispatch(loaded)
    assert produced(driver.connect().ask(produce("u", batch(driver, b"b")), PRODUCE_VERSION))[1] == 1


def test_a_parked_fetch_of_a_follower_gives_way_to_what_waited(driver):
    driver.others_are_silent = True
    peer = parked_follower(driver)
    driver.hold_loads = True
    driver.dispatch(StoodStill(12_345))
    peer.send(MetadataRequest(), 9)
    driver.release()
    assert len(peer.responses) == 2


def parked_follower(driver: Driver):
    """A connection on which broker 2 waits for records of what this broker leads."""
    session = driver.tree.session()
    image = load_image(session.subtree("/"))
    session.commit(register(image, Registration(BrokerId(2), "other", 9092, None, image.cluster_id or ""), 0))
    driver.dispatch_changes()
    for name in ("r", "s"):
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=2)
        driver.connect().ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    topics = driver.node.cluster.image.topics
    led = next(name for name in ("r", "s") if topics[TopicName(name)].partitions[0].leader == 1)
    peer = driver.connect()
    first = fetch(led, 0, max_wait_ms=500)
    first.replica_id, first.session_epoch = 2, 0
    session_id = peer.ask(first, FETCH_VERSION).session_id
    for epoch in range(1, 6):
        again = FetchRequest(
            replica_id=2, max_wait_ms=500, min_bytes=1, max_bytes=MIB, session_id=session_id, session_epoch=epoch
        )
        peer.responses.clear()
        peer.send(again, FETCH_VERSION)
        if not peer.responses:
            return peer
    raise AssertionError("its fetch is never parked")


class GroupClient:
    """The one member of a group."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.peer = driver.connect()
        self.member_id = ""
        self.generation_id = 0

    def join(self, session_timeout_ms: int) -> None:
        """Be the leader of the group's first generation."""
        self.peer.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms,
            protocol_type="consumer",
            protocols=protocols,
        )
        self.peer.send(request, 3)
        self.driver.advance(10)
        joined = self.peer.responses.popleft()
        self.member_id, self.generation_id = joined.member_id, joined.generation_id
        share = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"x")
        who = {"group_id": "g", "generation_id": self.generation_id, "member_id": self.member_id}
        assert self.peer.ask(SyncGroupRequest(**who, assignments=[share]), 2).error_code == ErrorCode.NONE

    def send_beat(self) -> None:
        """A heartbeat, not waited for."""
        who = {"group_id": "g", "generation_id": self.generation_id, "member_id": self.member_id}
        self.peer.send(HeartbeatRequest(**who), 2)

    def beat(self) -> int:
        """A heartbeat; its error."""
        self.send_beat()
        return self.peer.responses.popleft().error_code
