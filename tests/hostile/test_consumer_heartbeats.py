"""Heartbeats of KIP-848 that are hostile or dear: answered, with others in between, and never the end of a broker."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.handlers.groups import consumer_heartbeat, requests
from oncelog.node.requests import dispatch
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.hostile.turns import Turns
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import create_topic

JOIN: dict[str, Any] = {"group_id": "g", "member_id": "m", "rebalance_timeout_ms": 60_000, "topic_partitions": []}
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)


def beat(peer: Peer, version: int = 1, **fields: Any) -> Any:
    return peer.ask(ConsumerGroupHeartbeatRequest(**{**JOIN, **fields}), version)


@pytest.fixture
def driver() -> Turns:
    driver = Turns()
    driver.connect().ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    return driver


def group_of(driver: Turns) -> Any:
    return driver.node.groups.shard_of("g")._groups["g"]


def test_a_heartbeat_is_answered_before_its_expression_is_matched(driver: Turns) -> None:
    """Also when its client then closes: other members may have the same expression."""
    peer = driver.connect()
    create_topic(peer, "t")
    answers = []

    def look() -> None:
        driver.between = lambda: None
        answers.append(peer.responses.popleft())
        answers.append(beat(peer, member_epoch=answers[0].member_epoch, topic_partitions=None))
        assert not group_of(driver).regexes
        driver.disconnect(peer)

    driver.between = look
    peer.send(ConsumerGroupHeartbeatRequest(**JOIN, subscribed_topic_regex="t.*"), 1)
    assert [answer.error_code for answer in answers] == [0, 0]
    assert group_of(driver).regexes["t.*"].topics == {"t"}
    assert driver.fatal is None


def test_answers_wait_for_expressions_while_many_are_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MAX_ANSWERED_TASKS", 2)
    driver = Driver()
    peer = driver.connect()
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    driver.hold_jobs = True
    for number in range(4):
        peer.send(ConsumerGroupHeartbeatRequest(**JOIN | {"group_id": f"g{number}"}, subscribed_topic_regex="t.*"), 1)
    assert len(peer.responses) == 2
    while driver.held:
        driver.release()
    assert [answer.error_code for answer in peer.responses] == [0] * 4
    assert driver.node.requests._answered_tasks == 0


def test_topics_that_expressions_match_are_checked_a_slice_at_a_time(
    driver: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = driver.connect()
    names = [f"t{number}" for number in range(12)]
    for name in names:
        create_topic(peer, name)
    monkeypatch.setattr(consumer_heartbeat, "ITEMS", 2)
    monkeypatch.setattr(consumer_heartbeat, "_may_describe", lambda _, name: name != "t7")
    driver.turns = 0
    answer = beat(peer, subscribed_topic_regex="t[0-9]+")
    assert answer.error_code == 0
    assert driver.turns >= 2 * len(names) // 2
    assert group_of(driver).regexes["t[0-9]+"].topics == {*names} - {"t7"}


def test_expressions_that_match_too_many_topics_together_match_none(
    driver: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = driver.connect()
    for name in ("t", "tt", "u"):
        create_topic(peer, name)
    monkeypatch.setattr(consumer_heartbeat, "MAX_MATCHES", 3)
    for member, regex in (("m", "t"), ("n", "t+"), ("o", "."), ("p", "u")):
        driver.advance(11_000)
        beat(peer, member_id=member, subscribed_topic_regex=regex)
    topics = {regex: set(resolved.topics) for regex, resolved in group_of(driver).regexes.items()}
    assert topics == {"t": {"t"}, "t+": set(), ".": {"t", "u"}, "u": set()}


def test_names_are_checked_and_an_assignment_is_answered_a_slice_at_a_time(
    driver: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = driver.connect()
    names = [f"t{number}" for number in range(12)]
    for name in names:
        create_topic(peer, name, 2)
    for module in (consumer_heartbeat, requests):
        monkeypatch.setattr(module, "ITEMS", 2)
    driver.turns = 0
    answer = beat(peer, subscribed_topic_names=names)
    assert driver.turns >= 2 * (len(names) // 2 - 1)
    assert sum(len(topic.partitions) for topic in answer.assignment.topic_partitions) == 2 * len(names)
    driver.turns = 0
    assert beat(peer, member_epoch=answer.member_epoch, topic_partitions=None).assignment is None
    assert driver.turns == 0


STRINGS = ("", " ", "\0", "ä" * 200, "x" * 32_000, "\u2028")
FIELDS = ("group_id", "member_id", "instance_id", "rack_id", "subscribed_topic_regex", "server_assignor")
EPOCHS = (INT32_MIN, -3, -2, -1, 0, 1, 2, INT32_MAX)
IDS = ([-1], [INT32_MIN, INT32_MAX], [0, 0, 0], [999])
REGEXES = (
    "(a*)*b",
    "(" * 200 + ")" * 200,
    "a{1000}",
    "((a{100}){10}){10}",
    "\\pN" * 50,
    "[" * 500,
    "." * 501,
    "\\C",
    "(?i)ß",
)


def hostile_heartbeats(topic_id: bytes) -> list[dict[str, Any]]:
    """Requests with one or two fields that mean nothing good."""
    owned = [[TopicPartitions(topic_id=topic_id, partitions=numbers)] for numbers in IDS]
    owned.append([TopicPartitions(topic_id=b"\1" * 16, partitions=[0])])
    owned.append([TopicPartitions(topic_id=topic_id, partitions=[0])] * 50)
    return [
        *({field: text} for field in FIELDS for text in (*STRINGS, None) if text is not None or field[0] in "irs"),
        *({"member_epoch": epoch, "topic_partitions": parts} for epoch in EPOCHS for parts in ([], None, *owned)),
        *({"member_epoch": epoch, "instance_id": "i"} for epoch in EPOCHS),
        *({"rebalance_timeout_ms": timeout} for timeout in (INT32_MIN, -2, 0, 1, INT32_MAX)),
        *({"subscribed_topic_regex": regex, "subscribed_topic_names": None} for regex in REGEXES),
        {"subscribed_topic_names": []},
        {"subscribed_topic_names": ["t", "t", "", "..", "x" * 30_000]},
        {"subscribed_topic_names": [f"none-{number}" for number in range(20_000)]},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("version", [0, 1])
def test_no_field_ends_the_broker_or_leaves_a_request_without_an_answer(driver: Turns, version: int) -> None:
    peer = driver.connect()
    create_topic(peer, "t", 2)
    topic_id = bytes(driver.node.cluster.image.topics["t"].topic_id)
    codes = set()
    for number, fields in enumerate(hostile_heartbeats(topic_id)):
        fields = {"subscribed_topic_names": ["t"], "member_id": f"m{number % 5}", **fields}
        if version == 0:
            fields.pop("subscribed_topic_regex", None)
        answer = beat(peer, version, **fields)
        codes.add(ErrorCode(answer.error_code).name)
        driver.advance(200)
        assert driver.fatal is None, fields
        described = peer.ask(ConsumerGroupDescribeRequest(group_ids=["g", "", "x" * 30_000]), version)
        assert described.groups[0].group_id == "g", fields
    assert codes >= {"NONE", "INVALID_REQUEST", "UNSUPPORTED_ASSIGNOR", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"}
    assert not peer.closed
    assert not [report for report in driver.reports if "failed" in report]
