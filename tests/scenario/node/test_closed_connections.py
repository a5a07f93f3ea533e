"""Requests that have arrived whole are carried out in order, also when their client has closed behind them."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.units import MIB
from oncelog.handlers.broker.waits import UntilReadable
from oncelog.node.kernel.events import Continued
from oncelog.node.requests import connections as closed_connections
from oncelog.node.requests.connections import MAX_UNANSWERED
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    batch,
    create_topic,
    fetch,
    log_of,
    produce,
    produced,
)
from tests.scenario.node.test_quotas import set_quota
from tests.scenario.node.test_when_things_fail import NO_DESCRIPTOR, refuses


@pytest.fixture
def driver():
    driver = Driver({"group.initial.rebalance.delay.ms": "0"})
    create_topic(driver.connect(), "t")
    return driver


def member_of(driver, group: str = "g") -> tuple[Peer, str, int]:
    """A connection whose member is the only one of a stable group, with its id and generation."""
    peer = driver.connect()
    peer.ask(FindCoordinatorRequest(key=group), 2)
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    peer.send(join, 3)
    driver.advance(1)
    joined = peer.responses.popleft()
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")]
    sync = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    sync.assignments = assignments
    peer.ask(sync, 2)
    return peer, joined.member_id, joined.generation_id


def commit(member_id: str, generation: int, offset: int, group: str = "g") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics
    )


def leave(member_id: str, group: str = "g") -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)])


def state_of(driver, group: str = "g") -> tuple[str, int]:
    """The group's state and how many members it has."""
    described = driver.connect().ask(DescribeGroupsRequest(groups=[group]), 4).groups[0]
    return described.group_state, len(described.members)


def committed(driver, group: str = "g") -> int:
    answer = driver.connect().ask(OffsetFetchRequest(group_id=group, topics=None), 5)
    return next((p.committed_offset for t in answer.topics for p in t.partitions), -1)


@pytest.mark.parametrize("half_closes", [False, True])
def test_a_consumer_that_commits_leaves_and_closes_has_done_both(driver, half_closes):
    peer, member_id, generation = member_of(driver)
    driver.hold_syncs = True
    peer.send(commit(member_id, generation, 7), 8)
    peer.send(leave(member_id), 3)
    if half_closes:
        driver.half_close(peer)
    driver.disconnect(peer)
    driver.release()
    assert state_of(driver) == ("Empty", 0)
    assert committed(driver) == 7


def test_a_member_that_waits_for_its_group_and_has_left_behind_it(driver):
    waiting, member_id, _ = member_of(driver)
    rejoin = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"new")],
    )
    other = driver.connect()
    rejoining = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    other.send(rejoining, 3)
    assert not other.responses, "the group waits for its first member"
    third = driver.connect()
    third.send(rejoining, 3)
    waiting.send(commit(member_id, 1, 3), 8)
    third.send(ListGroupsRequest(), 2)
    third.send(produce("t", batch(driver, b"behind the join")), PRODUCE_VERSION)
    driver.disconnect(third)
    assert log_of(driver, "t").log_end_offset == 1, "nothing is left of a join but its answer"
    waiting.send(rejoin, 3)
    waiting.send(leave(member_id), 3)
    driver.disconnect(waiting)
    assert state_of(driver)[1] == 2


def test_a_parked_fetch_ends_with_its_client_and_what_is_behind_it_is_carried_out(driver):
    peer = driver.connect()
    peer.send(fetch("t", 0, max_wait_ms=2**31 - 1), FETCH_VERSION)
    for name in (b"a", b"b"):
        peer.send(produce("t", batch(driver, name)), PRODUCE_VERSION)
    assert log_of(driver, "t").log_end_offset == 0
    driver.disconnect(peer)
    assert log_of(driver, "t").log_end_offset == 2
    assert driver.node._delayed_fetches._by_key == {}
    assert len(driver.node.requests.closed) == 0


def test_a_client_that_may_still_read_gets_its_answers_and_then_the_end(driver):
    peer = driver.connect()
    peer.send(fetch("t", 0, max_wait_ms=2**31 - 1), FETCH_VERSION)
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.half_close(peer)
    fetched, appended = peer.responses
    assert fetched.responses[0].partitions[0].error_code == E.NONE
    assert produced(appended) == (0, 0)
    assert peer.closed


def test_a_client_that_has_nothing_under_way_is_closed_at_once(driver):
    peer = driver.connect()
    driver.half_close(peer)
    assert peer.closed


def test_acks_0_and_the_end(driver):
    peer = driver.connect()
    driver.hold_syncs = True
    for _ in range(3):
        peer.send(produce("t", batch(driver, b"a"), acks=0), PRODUCE_VERSION)
    driver.half_close(peer)
    assert peer.closed
    driver.disconnect(peer)
    assert log_of(driver, "t").log_end_offset == 3


def test_a_throttled_client_cannot_close_to_be_carried_out_sooner(driver):
    peer = driver.connect()
    set_quota(peer, producer_byte_rate=1000.0)
    throttle_ms = peer.ask(produce("t", batch(driver, b"x" * 20_000)), PRODUCE_VERSION).throttle_time_ms
    assert throttle_ms > 1
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.disconnect(peer)
    driver.advance(throttle_ms - 1)
    assert log_of(driver, "t").log_end_offset == 1
    driver.advance(1)
    assert log_of(driver, "t").log_end_offset == 2
    assert len(driver.node.requests.closed) == 0
    assert not driver.node.requests.mutes


def test_nothing_is_carried_out_for_a_client_that_has_not_logged_in():
    driver = Driver({"sasl.enabled.mechanisms": "PLAIN", "listeners": "SASL_PLAINTEXT://:9092"})
    peer = driver.connect("SASL_PLAINTEXT")
    driver.dispatch_changes()
    driver.half_close(peer)
    assert peer.closed


def test_garbage_behind_a_waiting_request_changes_nothing_about_it(driver):
    peer = driver.connect()
    driver.hold_metadata = True
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    peer.send_frame(b"\x7f\xff\0\0\0\0\0\0\0\0")
    peer.send(produce("t", batch(driver, b"behind the garbage")), PRODUCE_VERSION)
    driver.disconnect(peer)
    driver.release()
    assert "u" in driver.node.cluster.image.topics
    assert log_of(driver, "t").log_end_offset == 0


def test_very_many_requests_leave_others_their_turn(driver):
    peer = driver.connect()
    peer.send(fetch("t", 0, max_wait_ms=2**31 - 1), FETCH_VERSION)
    count = 3 * MAX_UNANSWERED
    for _ in range(count):
        peer.send(produce("t", batch(driver, b"a"), acks=1), PRODUCE_VERSION)
    ends = []
    go_on = driver.node.requests.serve_closed

    def watched() -> None:
        ends.append(log_of(driver, "t").log_end_offset)
        go_on()

    driver.node.requests.serve_closed = watched
    driver.disconnect(peer)
    assert ends == [MAX_UNANSWERED, 2 * MAX_UNANSWERED]
    assert log_of(driver, "t").log_end_offset == count


def test_what_closed_connections_leave_behind_is_bounded(driver, monkeypatch):
    monkeypatch.setattr(closed_connections, "MAX_CONNECTIONS", 3)
    driver.hold_metadata = True
    for index in range(5):
        peer = driver.connect()
        topic = CreatableTopic(name=f"u{index}", num_partitions=1, replication_factor=1)
        peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        for _ in range(2 if index == 3 else 1):
            peer.send(produce("t", batch(driver, b"%d" % index)), PRODUCE_VERSION)
        driver.disconnect(peer)
        assert len(driver.node.requests.closed) <= 3
    driver.release()
    assert len(driver.node.requests.closed) == 0
    assert log_of(driver, "t").log_end_offset == 3, "the one with the most gave way, then the first of the others"


def test_one_large_request_alone_is_not_too_much(driver):
    peer = driver.connect()
    peer.send(fetch("t", 0, max_wait_ms=2**31 - 1), FETCH_VERSION)
    driver.hold_metadata = True
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    connection = driver.node.connections.by_id[peer.id]
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    connection.backlog_bytes += 100 * MIB
    driver.disconnect(peer)
    connection.backlog_bytes -= 100 * MIB
    driver.release()
    assert log_of(driver, "t").log_end_offset == 1


def test_the_end_of_the_broker_waits_for_what_has_arrived(driver):
    gone, alive = driver.connect(), driver.connect()
    driver.hold_metadata = True
    for index, peer in enumerate((gone, alive)):
        topic = CreatableTopic(name=f"u{index}", num_partitions=1, replication_factor=1)
        peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.disconnect(gone)
    driver.shutdown()
    assert not driver.stopped
    driver.release()
    assert driver.stopped
    assert log_of(driver, "t").log_end_offset == 2
    assert len(alive.responses) == 2
    assert alive.closed


def test_the_end_of_the_broker_waits_no_longer_than_it_may(driver):
    peer = driver.connect()
    driver.hold_metadata = True
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.disconnect(peer)
    driver.shutdown(within_ms=1000)
    driver.advance(999)
    assert not driver.stopped
    driver.advance(1)
    assert driver.stopped


def throttled(driver):
    """A connection whose client has to wait for a minute or so."""
    peer = driver.connect()
    set_quota(peer, producer_byte_rate=1000.0)
    assert peer.ask(produce("t", batch(driver, b"x" * 60_000)), PRODUCE_VERSION).throttle_time_ms > 30_000
    return peer


@pytest.mark.parametrize("closes", [False, True])
def test_the_end_of_the_broker_waits_for_no_throttled_client(driver, closes):
    peer, silent = throttled(driver), driver.connect()
    silent.send(produce("t", batch(driver, b"x" * 60_000)), PRODUCE_VERSION)
    for _ in range(3):
        peer.send(produce("t", batch(driver, b"x" * 60_000)), PRODUCE_VERSION)
    if closes:
        driver.disconnect(peer)
    driver.shutdown()
    assert driver.stopped
    assert log_of(driver, "t").log_end_offset == 5, "what had arrived is carried out all the same"
    assert len(peer.responses) == (0 if closes else 3)
    assert silent.closed
    assert not driver.node.requests.mutes


def test_the_end_of_the_broker_waits_for_no_handler_that_cannot_be_loaded(driver, monkeypatch):
    alive, gone = driver.connect(), driver.connect()
    monkeypatch.setattr(driver.node.requests.apis, "find", refuses(NO_DESCRIPTOR))
    for peer in (alive, gone):
        for _ in range(2):
            peer.send(ListGroupsRequest(), 2)
    driver.disconnect(gone)
    driver.shutdown()
    assert driver.stopped
    assert alive.closed
    assert driver.fatal is None


def test_the_end_of_the_broker_does_not_wait_for_what_waits_for_others(driver):
    def stalled(api, handle):
        def steps(request, context):
            if api.name == "ListGroups":
                never = context.now_ms + 1_000_000
                yield UntilReadable((), lambda _changed: False, never, ends_with_client=False)
            return (yield from handle(request, context))

        return steps

    driver.node.put_around_handlers(stalled)
    alive, gone = driver.connect(), driver.connect()
    for peer in (alive, gone):
        peer.send(ListGroupsRequest(), 2)
        peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.disconnect(gone)
    driver.shutdown()
    assert driver.stopped


def joining(group: str = "g") -> JoinGroupRequest:
    """A request that waits until the first rebalance of a new group begins."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


@pytest.fixture
def slow_groups():
    driver = Driver({"group.initial.rebalance.delay.ms": "60000"})
    peer = driver.connect()
    create_topic(peer, "t")
    peer.ask(FindCoordinatorRequest(key="g"), 2)
    return driver


def test_a_client_that_sends_nothing_more_and_waits_for_its_group_is_closed(slow_groups):
    peer = slow_groups.connect()
    peer.send(joining(), 3)
    assert not peer.responses
    slow_groups.half_close(peer)
    assert peer.closed


def test_a_join_that_is_decided_after_the_client_has_ended_leaves_no_connection(slow_groups):
    peer = slow_groups.connect()
    slow_groups.hold_metadata = True
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    peer.send(joining(), 3)
    slow_groups.half_close(peer)
    assert not peer.closed
    slow_groups.release()
    assert len(peer.responses) == 1
    assert peer.closed


def test_a_join_behind_a_throttle_leaves_no_connection(slow_groups):
    peer = throttled(slow_groups)
    peer.send(joining(), 3)
    slow_groups.half_close(peer)
    slow_groups.advance(50_000)
    if not peer.closed:
        slow_groups.advance(20_000)
    assert not peer.responses
    assert peer.closed


def test_a_join_behind_a_standstill_leaves_no_connection(slow_groups):
    peer = slow_groups.connect()
    slow_groups.node.requests.postpone()
    peer.send(joining(), 3)
    slow_groups.half_close(peer)
    assert not peer.closed
    slow_groups.node.requests.go_on()
    slow_groups.dispatch(Continued())
    assert slow_groups.node.connections.by_id[peer.id].open is False


def test_a_fetch_behind_the_close_leaves_no_session(driver):
    peer = driver.connect()
    driver.hold_metadata = True
    peer.send(CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]), 5)
    session = fetch("t", 0, max_wait_ms=0)
    session.session_epoch = 0
    peer.send(session, FETCH_VERSION)
    driver.disconnect(peer)
    driver.hold_metadata = False
    driver.release()
    assert len(driver.node.requests.closed) == 0
    assert len(driver.node.partitions.fetch_sessions.cache) == 0
