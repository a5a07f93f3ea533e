"""Our broker is asked what Apache Kafka 3.9.1 was, and has to answer the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.old_clients.answers import CLOSED, asks_again, described
from tests.conformance.old_clients.exceptions import expected
from tests.conformance.old_clients.questions import Question, ask_all, create_topics
from tests.conformance.old_clients.record import GOLDEN, first_offset_of
from tests.scenario.node.driver import Driver

RECORDED = json.loads(GOLDEN.read_text(encoding="utf-8"))
CONFIG = {
    "oncelog.legacy.protocol": "true",
    "log.sync.policy": "none",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def answers() -> dict[str, Any]:
    """Ours, by question."""
    driver = Driver(CONFIG)
    peer = driver.connect()
    results: dict[str, Any] = {}

    def ask(question: Question) -> Any:
        nonlocal peer
        if peer.closed:
            peer = driver.connect()
        response = None
        for _ in range(100):
            peer.send(question.request, question.version)
            response = peer.responses.popleft() if peer.responses else None
            if response is None or not question.again or not asks_again(response):
                break
            driver.advance(100)
        assert response is not None or peer.closed
        results[question.name] = CLOSED if response is None else described(response, first_offset_of(question))
        return response

    created = peer.ask(create_topics().request, 2)
    assert {topic.error_code for topic in created.topics} == {0}
    ask_all(ask)
    return results


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    return answers()


@pytest.mark.parametrize("name", list(RECORDED))
def test_the_answer_is_that_of_apache_kafka(name: str, ours: dict[str, Any]) -> None:
    assert ours[name] == expected(name, RECORDED[name], ours[name])


def test_every_question_is_recorded(ours: dict[str, Any]) -> None:
    assert list(ours) == list(RECORDED)
