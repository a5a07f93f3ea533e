"""A broker that has stood still decides nothing before it knows whether it was replaced."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.node.events import StoodStill
from oncelog.node.standstill import LONGEST_MS
from oncelog.wire.messages.metadata import MetadataRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import PRODUCE_VERSION, batch, create_topic, produce, produced


@pytest.fixture
def driver():
    driver = Driver()
    create_topic(driver.connect(), "t")
    return driver


def test_requests_wait_until_the_metadata_have_been_read_anew(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill())
    early, late = driver.connect(), driver.connect()
    for _ in range(2):
        early.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    late.send(MetadataRequest(), 9)
    assert not early.responses
    assert not late.responses
    driver.release()
    assert [produced(response)[0] for response in early.responses] == [ErrorCode.NONE, ErrorCode.NONE]
    assert [produced(response)[1] for response in early.responses] == [0, 1]
    assert len(late.responses) == 1
    assert produced(driver.connect().ask(produce("t", batch(driver, b"a")), PRODUCE_VERSION))[1] == 2


def test_a_session_that_has_ended_meanwhile_is_replaced_first(driver):
    driver.session.follow(0, None)  # the news of its end comes late
    driver.tree.end_session(driver.session._session_id)
    epoch = driver.node.cluster.broker_epoch
    driver.dispatch(StoodStill())
    assert driver.node.cluster.broker_epoch > epoch
    assert produced(driver.connect().ask(produce("t", batch(driver, b"a")), PRODUCE_VERSION))[0] == ErrorCode.NONE


def test_what_was_read_before_the_standstill_does_not_count(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill())
    driver.dispatch(StoodStill())
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
    driver.dispatch(StoodStill())
    peer = driver.connect()
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.advance(LONGEST_MS - 1)
    assert not peer.responses
    driver.advance(1)
    assert produced(peer.responses[0])[0] == ErrorCode.NONE


def test_a_client_that_leaves_meanwhile_is_forgotten(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill())
    peer = driver.connect()
    peer.send(produce("t", batch(driver, b"a")), PRODUCE_VERSION)
    driver.disconnect(peer)
    driver.release()
    assert driver.fatal is None
    assert produced(driver.connect().ask(produce("t", batch(driver, b"b")), PRODUCE_VERSION))[1] == 0


def test_one_that_sends_on_meanwhile_is_read_no_further(driver):
    driver.hold_loads = True
    driver.dispatch(StoodStill())
    peer = driver.connect()
    for _ in range(100):
        peer.send(MetadataRequest(), 9)
    assert peer.paused
    driver.release()
    assert len(peer.responses) == 100
    assert not peer.paused
