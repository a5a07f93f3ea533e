"""Offsets of share groups with a node: altered, described, and deleted with their group or topic."""

from __future__ import annotations

from itertools import pairwise

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.node.coordinators.share_state_requests import REQUESTS_PER_SLICE
from oncelog.node.kernel.events import DeadlineReached
from oncelog.wire.messages import describe_share_group_offsets as offsets_wire
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.list_groups import ListGroupsRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import batch, create_topic, produce
from tests.scenario.share.groups import (
    Coordinators,
    alter,
    beat,
    broker,
    delete_offsets,
    describe_offsets,
    join,
    parts,
    settled,
    topic_id,
)


@pytest.fixture
def shares() -> Coordinators:
    return Coordinators()


@pytest.fixture
def driver(shares: Coordinators) -> Driver:
    return broker(shares)


def test_offsets_are_altered_described_with_their_lag_and_deleted(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    peer.ask(produce("t", batch(driver, b"a", b"b", b"c"), 1), 9)
    assert parts(describe_offsets(peer, None)) == []
    altered = alter(peer, {"t": {1: 2, 7: 0}, "missing": {0: 0}})
    assert altered.error_code == 0
    errors = {
        (topic.topic_name, part.partition_index): part.error_code
        for topic in altered.responses
        for part in topic.partitions
    }
    missing = E.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {("t", 1): 0, ("t", 7): missing, ("missing", 0): missing}
    assert shares.starts(topic_id(driver)) == {1: 2}
    assert parts(describe_offsets(peer, None)) == [("t", 1, 2, 1, 0)]
    assert parts(describe_offsets(peer, None, version=0)) == [("t", 1, 2, -1, 0)]
    named = describe_offsets(peer, {"t": [0, 1], "missing": [3]})
    assert parts(named) == [("t", 0, -1, -1, 0), ("t", 1, 2, 1, 0), ("missing", 3, -1, -1, 0)]
    assert parts(describe_offsets(peer, {"t": [9]})) == [("t", 9, -1, -1, 0)]
    twice = [offsets_wire.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)] * 2
    assert len(peer.ask(offsets_wire.DescribeShareGroupOffsetsRequest(groups=twice), 1).groups) == 1
    for impossible in ([-1], []):
        assert describe_offsets(peer, {"t": impossible}).error_code == E.UNKNOWN_SERVER_ERROR
    (group,) = peer.ask(ListGroupsRequest(), 5).groups
    assert (group.group_id, group.group_state) == ("g", "Empty")
    deleted = delete_offsets(peer, "t", "missing")
    assert {topic.topic_name: topic.error_code for topic in deleted.responses} == {"t": 0, "missing": missing}
    assert not shares.states
    assert parts(describe_offsets(peer, None)) == []
    (again,) = delete_offsets(peer, "t").responses
    assert (again.error_code, again.error_message) == (missing, "There is no offset information to delete.")


def test_lags_of_offsets_at_the_ends_of_the_numbers(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    peer.ask(produce("t", batch(driver, b"a"), 1), 9)
    largest = 2**63 - 1
    (topic,) = alter(peer, {"t": {0: -largest - 1, 1: largest}}).responses
    assert [part.error_code for part in topic.partitions] == [0, 0]
    assert parts(describe_offsets(peer, None)) == [
        ("t", 0, -largest - 1, largest, 0),
        ("t", 1, largest, 1 - largest, 0),
    ]


def test_offsets_of_a_group_with_members_stay(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    join(peer)
    for answer in (alter(peer, {"t": {0: 1}}), delete_offsets(peer, "t")):
        assert (answer.error_code, answer.error_message) == (E.NON_EMPTY_GROUP, "The group is not empty.")
    (result,) = peer.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == E.NON_EMPTY_GROUP
    assert len(shares.states) == 2


def test_a_partition_that_cannot_be_altered_stays_as_it_was(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    shares.errors[1] = E.FENCED_STATE_EPOCH
    (topic,) = alter(peer, {"t": {0: 5, 1: 5}}).responses
    assert [(part.error_code, part.error_message) for part in topic.partitions] == [
        (0, None),
        (E.FENCED_STATE_EPOCH, "no"),
    ]
    shares.errors.clear()
    assert parts(describe_offsets(peer, None)) == [("t", 0, 5, -5, 0)]
    driver.advance(40_000)
    join(peer)
    assert shares.starts(topic_id(driver)) == {0: 5, 1: 0}, "nothing is reset by the next member"


def test_a_group_is_deleted_with_its_state(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    join(peer)
    beat(peer, -1)
    shares.errors[0] = E.COORDINATOR_NOT_AVAILABLE
    (result,) = peer.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == E.COORDINATOR_NOT_AVAILABLE
    assert len(peer.ask(ListGroupsRequest(), 5).groups) == 1
    shares.errors.clear()
    (result,) = peer.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == 0
    assert not shares.states
    assert not peer.ask(ListGroupsRequest(), 5).groups
    driver.crash_and_restart(seed=1)
    assert not driver.connect().ask(ListGroupsRequest(), 5).groups


def test_a_deleted_topic_is_forgotten(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    create_topic(peer, "u", 1)
    join(peer, topics=("t", "u"))
    assert len(parts(describe_offsets(peer, None))) == 3
    deleted = peer.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    assert [topic.error_code for topic in deleted.responses] == [0]
    create_topic(peer, "t", 1)
    assert parts(describe_offsets(peer, None)) == [("u", 0, -1, -1, 0)]
    response = settled(driver, peer)
    assert shares.starts(topic_id(driver)) == {0: -1}, "the new topic begins where the group says"
    assert response.error_code == 0


def test_many_states_are_made_in_slices(driver, shares, monkeypatch) -> None:
    peer = driver.connect()
    create_topic(peer, "many", 2 * REQUESTS_PER_SLICE + 1)
    shares.holds = True
    handle, held = driver.node.handle, [0]

    def counted(event, now_ms):
        effects = handle(event, now_ms)
        held.append(len(shares.held))
        return effects

    monkeypatch.setattr(driver.node, "handle", counted)
    join(peer, topics=["many"])
    driver.advance(0)
    assert held[-1] == 2 * REQUESTS_PER_SLICE + 1
    assert max(after - before for before, after in pairwise(held)) == REQUESTS_PER_SLICE


def test_descriptions_end_with_their_peers_and_initializations_do_not(driver, shares) -> None:
    peer = driver.connect()
    shares.holds = True
    join(peer)
    driver.disconnect(peer)
    assert (len(shares.held), shares.cancelled) == (2, 0)
    for answer in shares.held:
        answer()
    driver.dispatch(DeadlineReached())
    other = driver.connect()
    other.send(
        offsets_wire.DescribeShareGroupOffsetsRequest(
            groups=[offsets_wire.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
        ),
        1,
    )
    assert shares.cancelled == 0
    driver.disconnect(other)
    assert shares.cancelled == 2
