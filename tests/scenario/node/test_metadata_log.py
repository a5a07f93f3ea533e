"""The cluster's metadata as a broker follows it: answers that are lost, a tree out of reach, sessions that end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.image.cluster_image import load_image
from oncelog.core.controller.topics.changes import NewTopic, create_topics
from oncelog.node.requests.pause_recovery import LONGEST_MS
from oncelog.ports import CommitTooLarge, Conflict, Operation, OutcomeUnknown, TreeUnavailable
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import PRODUCE_VERSION, batch, create_topic, produce, produced


@pytest.fixture
def driver():
    driver = Driver()
    create_topic(driver.connect(), "t")
    return driver


def creation(name: str = "new") -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def asked_to_create(driver: Driver, name: str = "new"):
    """A client that has asked for a topic; its answers come in ``responses``."""
    peer = driver.connect()
    peer.send(creation(name), 5)
    return peer


def error_of(peer) -> ErrorCode:
    ((topic,),) = [response.topics for response in peer.responses]
    return ErrorCode(topic.error_code)


def serves(driver: Driver, topic: str = "t") -> bool:
    """True if the broker takes records."""
    return produced(driver.connect().ask(produce(topic, batch(driver, b"a")), PRODUCE_VERSION))[0] == 0


def lose_answers(driver: Driver, monkeypatch, *, carried_out: bool, follows: bool = True) -> None:
    """From now on commits have no answer; ``follows``: the broker still hears of what was committed."""
    commit = driver.session.commit

    def commit_without_answer(operations: Sequence[Operation], token: str = "") -> int:
        if not follows:
            driver.session.follow(0, None)
        if carried_out:
            commit(operations, token)
        raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(driver.session, "commit", commit_without_answer)


def test_a_commit_whose_answer_is_lost_is_answered_once_it_is_seen_in_the_stream(driver, monkeypatch):
    lose_answers(driver, monkeypatch, carried_out=True)
    assert error_of(asked_to_create(driver)) is ErrorCode.NONE
    assert serves(driver, "new")


def test_a_commit_whose_answer_is_lost_is_settled_by_its_token(driver, monkeypatch):
    lose_answers(driver, monkeypatch, carried_out=False)
    peer = asked_to_create(driver)
    assert not peer.responses, "not known, so not answered"
    monkeypatch.undo()
    driver.advance(500)
    assert error_of(peer) is ErrorCode.REQUEST_TIMED_OUT
    assert "new" not in driver.node.cluster.image.topics
    assert error_of(asked_to_create(driver)) is ErrorCode.NONE


def test_what_cannot_be_settled_is_not_waited_for_longer_than_a_request_takes(driver, monkeypatch):
    def unreachable(token: str) -> bool:
        raise OutcomeUnknown("the tree cannot be reached")

    lose_answers(driver, monkeypatch, carried_out=False)
    monkeypatch.setattr(driver.session, "was_committed", unreachable)
    peer = asked_to_create(driver)
    driver.advance(29_000)
    assert not peer.responses
    assert serves(driver)
    driver.advance(2_000)
    assert error_of(peer) is ErrorCode.REQUEST_TIMED_OUT


def test_a_tree_that_cannot_be_written_refuses_changes_and_nothing_else(driver, monkeypatch):
    def full(operations: Sequence[Operation], token: str = "") -> int:
        raise TreeUnavailable("the disk is full")

    monkeypatch.setattr(driver.session, "commit", full)
    assert error_of(asked_to_create(driver)) is ErrorCode.REQUEST_TIMED_OUT
    assert driver.fatal is None
    assert serves(driver)
    monkeypatch.undo()
    assert error_of(asked_to_create(driver)) is ErrorCode.NONE


def test_a_tree_that_is_gone_after_it_refused_a_commit_ends_nothing(driver, monkeypatch):
    """A conflict is answered when the image has what was in the way: that cannot be asked for any more."""

    def refuse(operations: Sequence[Operation], token: str = "") -> int:
        raise Conflict(operations[0])

    def unreachable() -> int:
        raise TreeUnavailable("the tree cannot be reached")

    monkeypatch.setattr(driver.session, "commit", refuse)
    monkeypatch.setattr(driver.session, "position", unreachable)
    assert error_of(asked_to_create(driver)) is ErrorCode.REQUEST_TIMED_OUT
    monkeypatch.undo()
    assert serves(driver)
    assert error_of(asked_to_create(driver)) is ErrorCode.NONE


def test_a_commit_that_the_tree_does_not_take_for_its_size_is_refused_and_ends_nothing(driver, monkeypatch):
    def refuse(operations: Sequence[Operation], token: str = "") -> int:
        raise CommitTooLarge(600_000)

    monkeypatch.setattr(driver.session, "commit", refuse)
    assert error_of(asked_to_create(driver)) is ErrorCode.REQUEST_TIMED_OUT
    assert driver.fatal is None
    assert serves(driver)


def test_a_tree_that_fails_in_the_middle_of_a_write_ends_the_node(driver, monkeypatch):
    def damaged(operations: Sequence[Operation], token: str = "") -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(driver.session, "commit", damaged)
    driver.connect().send(creation(), 5)
    assert "Input/output error" in driver.fatal


def test_changes_of_other_sessions_are_followed(driver):
    other = driver.tree.session()
    image = load_image(other.subtree("/"))
    decided = create_topics(image, BrokerConfig(), [NewTopic("theirs", 2, 1)], lambda: bytes(15) + b"\1")
    other.commit(decided.operations)
    driver.advance(0)
    assert serves(driver, "theirs")


def test_a_lost_session_stops_changes_until_the_broker_is_registered_again(driver):
    epoch = driver.node.cluster.broker_epoch
    driver.session.follow(0, None)  # it hears of the end by its commit alone
    driver.tree.end_session(driver.session._session_id)
    hold, driver.hold_metadata = driver.hold_metadata, True
    peer = asked_to_create(driver)
    driver.hold_metadata = hold
    driver.release()
    assert error_of(peer) is ErrorCode.REQUEST_TIMED_OUT, "it was asked for in the session that is gone"
    assert driver.fatal is None
    assert serves(driver)
    assert driver.node.cluster.broker_epoch > epoch, "registered in a new session"
    assert driver.node.cluster.image.brokers[BrokerId(1)].host == "localhost"
    assert error_of(asked_to_create(driver)) is ErrorCode.NONE
    assert any("session" in report for report in driver.reports)


def test_a_session_that_is_lost_without_a_commit_is_replaced(driver):
    epoch = driver.node.cluster.broker_epoch
    driver.tree.end_session(driver.session._session_id)
    assert driver.tree.session().children("/brokers/ids") == []
    driver.dispatch_changes()
    driver.advance(0)
    assert driver.tree.session().children("/brokers/ids") == ["1"]
    assert driver.node.cluster.broker_epoch > epoch, "registered in a new session"
    assert error_of(asked_to_create(driver)) is ErrorCode.NONE
    assert sum("session" in report for report in driver.reports) == 2, driver.reports


def test_a_gap_in_the_changes_loads_the_tree_whole(driver):
    other = driver.tree.session()
    driver.session.follow(0, None)  # deaf for a while
    for number in range(3):
        image = load_image(other.subtree("/"))
        topic = NewTopic(f"unheard{number}", 1, 1)
        other.commit(create_topics(image, BrokerConfig(), [topic], partial(bytes, [*range(15), number])).operations)
    driver._follow(other.position() - 1)
    driver.advance(0)
    driver.dispatch_changes()
    assert {"t", "unheard0", "unheard1", "unheard2"} <= driver.node.cluster.image.topics.keys()
    assert serves(driver, "unheard0")
    assert error_of(asked_to_create(driver)) is ErrorCode.NONE


def test_a_session_that_is_lost_while_the_tree_is_loaded_is_replaced_afterwards(driver):
    """A gap and the loss of the session at once: reading alone does not bring the session back."""
    other = driver.tree.session()
    driver.session.follow(0, None)
    for number in range(2):
        image = load_image(other.subtree("/"))
        topic = NewTopic(f"unheard{number}", 1, 1)
        other.commit(create_topics(image, BrokerConfig(), [topic], partial(bytes, [*range(15), number])).operations)
    driver.tree.end_session(driver.session._session_id)
    driver.hold_loads = True
    driver._follow(other.position() - 2)
    driver.dispatch_changes()
    peer = asked_to_create(driver)
    assert not peer.responses
    driver.advance(LONGEST_MS)
    assert error_of(peer) is ErrorCode.REQUEST_TIMED_OUT
    driver.release()
    assert driver.node._metadata_log.has_session
    assert error_of(asked_to_create(driver)) is ErrorCode.NONE
    assert serves(driver, "unheard1")
