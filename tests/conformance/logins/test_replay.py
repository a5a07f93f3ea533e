"""Our broker is spoken to as Apache Kafka was, and has to answer the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncelog.base.security import SecurityProtocol
from oncelog.core.sasl.settings import listener_sasl
from oncelog.node.kernel.events import ConnectionOpened
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.conformance.logins.conversations import (
    CLOSED,
    CONVERSATIONS,
    ENDING,
    MECHANISMS,
    PLAIN_LINE,
    SASL,
    SESSION_MS,
    Answering,
    Ask,
    Bare,
    Conversation,
    described,
)
from tests.conformance.logins.record import GOLDEN
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.logins import add_scram_user

RECORDED = json.loads(GOLDEN.read_text(encoding="utf-8"))
EMPTIER = {
    # What is asked is not decoded before the login, so that no answer can repeat it.
    "FindCoordinatorRequest 4 in the middle": ("coordinators",),
}
"""Answers of which ours leave fields empty."""
DELAY_MS = 100
CONFIG = {
    "sasl.enabled.mechanisms": MECHANISMS,
    **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": PLAIN_LINE for name in (SASL, ENDING)},
    f"listener.name.{ENDING.lower()}.connections.max.reauth.ms": str(SESSION_MS),
}


@pytest.fixture(scope="module")
def driver() -> Driver:
    driver = Driver(CONFIG)
    add_scram_user(driver, "carol", "carol-secret")
    return driver


def connect(driver: Driver, listener: str) -> Peer:
    peer = driver.connect()
    protocol = SecurityProtocol.SASL_PLAINTEXT if listener in (SASL, ENDING) else SecurityProtocol.PLAINTEXT
    opened = ConnectionOpened(peer.id, "/127.0.0.1", driver.address, listener_name=listener, security_protocol=protocol)
    driver.dispatch(opened)
    return peer


class Conversing:
    """The steps of a conversation with a driven node."""

    def __init__(self, driver: Driver, peer: Peer) -> None:
        self._driver, self._peer, self._last = driver, peer, b""

    def say(self, step: Any) -> Any:
        if isinstance(step, Answering):
            step = Ask(SaslAuthenticateRequest(auth_bytes=step.token(self._last)), 2)
        self._peer.raw = isinstance(step, Bare)
        if isinstance(step, Bare):
            self._peer.send_frame(step.data)
        else:
            self._peer.send(step.request, step.version)
        if not self._peer.responses:
            self._driver.advance(DELAY_MS)
        if not self._peer.responses:
            assert self._peer.closed
            return CLOSED
        response = self._peer.responses.popleft()
        self._last = bytes(getattr(response, "auth_bytes", b""))
        return described(response)


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda entry: entry.name)
def test_the_answers_are_those_of_apache_kafka(driver: Driver, conversation: Conversation) -> None:
    peer = connect(driver, conversation.listener)
    conversing = Conversing(driver, peer)
    answers: list[Any] = []
    for step in conversation.steps:
        answers.append(conversing.say(step))
        if answers[-1] == CLOSED:
            break
    else:
        answers += [CLOSED] if peer.closed else []
    expected = RECORDED[conversation.name]
    for name in EMPTIER.get(conversation.name, ()):
        assert expected[1].pop(name)
        assert not answers[1].pop(name)
    assert answers == expected


def test_every_conversation_is_recorded() -> None:
    assert {conversation.name for conversation in CONVERSATIONS} == set(RECORDED)
    assert listener_sasl(Driver(CONFIG).config, ENDING).mechanisms == tuple(MECHANISMS.split(","))
