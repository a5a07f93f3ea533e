"""A broker authenticates with another over their link: our link and our listener, wired back to back."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from oncelog.base.security import Endpoint, SecurityProtocol
from oncelog.client.machine.sasl.exchange import SaslMachine, SaslSettings
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.sasl.settings import inter_broker_credentials
from oncelog.node.brokers.link import Link, LinkSettings, LinkState
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.wire.messages.metadata import MetadataRequest
from tests.scenario.node.logins import DELAY_MS, LISTENER, add_scram_user, secured

ENDPOINT = Endpoint(LISTENER, SecurityProtocol.SASL_PLAINTEXT, "localhost", 9092)
SESSION_MS = 60_000


class BackToBack:
    """The wires of one link to a driven node."""

    def __init__(self, driver, credentials: SaslSettings) -> None:
        self.driver, self.reports, self.answers = driver, [], []
        self.connections = 0
        self._nonces = itertools.count()
        self._deadlines = Deadlines()
        self._deadlines.now_ms = driver.now_ms
        self._outgoing: list[bytes] = []
        settings = LinkSettings(
            "broker", 10_000, 30_000, 1 << 20, lambda: SaslMachine(credentials, f"nonce-{next(self._nonces)}")
        )
        self.link = Link(SimpleNamespace(broker_id=2), ENDPOINT, settings, self, self._deadlines, lambda _sign: None)

    def connect(self, link, endpoint) -> int:
        self.connections += 1
        self.peer = self.driver.connect(endpoint.listener_name)
        self.peer.raw = True
        return self.connections

    def send(self, link_id, chunks) -> None:
        self._outgoing.extend(map(bytes, chunks))

    def disconnect(self, link_id) -> None:
        self.ended = True

    def ended(self, link_id) -> None:
        pass

    def report(self, message) -> None:
        self.reports.append(message)

    def ask(self) -> None:
        """Ask something over the link, and carry all bytes to and fro until none are left."""
        self.link.request(MetadataRequest(topics=[]), self.answers.append, 5000)
        if self.link.state is LinkState.CONNECTING:
            self.link.connected()
        self.carry()

    def carry(self) -> None:
        while True:
            sent, self._outgoing = b"".join(self._outgoing), []
            while sent:
                size = int.from_bytes(sent[:4], "big")
                self.peer.send_frame(sent[4 : 4 + size])
                sent = sent[4 + size :]
            if not self.peer.responses and not self._outgoing:
                return
            while self.peer.responses:
                frame = self.peer.responses.popleft()
                self.link.received(len(frame).to_bytes(4, "big") + frame)

    def advance(self, milliseconds: int) -> None:
        self.driver.advance(milliseconds)
        self._deadlines.now_ms = self.driver.now_ms
        self._deadlines.run_due(self.driver.now_ms)
        self.carry()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_what_is_asked_waits_for_the_login(mechanism):
    driver = secured()
    if mechanism != "PLAIN":
        add_scram_user(driver, "alice", "alice-secret", mechanism)
    wires = BackToBack(driver, SaslSettings(mechanism, "alice", "alice-secret"))
    wires.ask()
    assert [bool(answer.brokers) for answer in wires.answers] == [True]
    assert driver.node.connections.by_id[wires.peer.id].principal == "User:alice"


def test_a_wrong_password_is_reported_and_answered_none():
    wires = BackToBack(secured(), SaslSettings("PLAIN", "alice", "another"))
    wires.ask()
    assert wires.link.state is LinkState.LOGGING_IN
    wires.advance(DELAY_MS)
    assert wires.link.state is LinkState.BACKING_OFF
    assert wires.answers == [None]
    assert "authentication with PLAIN failed" in wires.reports[0]
    assert "another" not in wires.reports[0]


@pytest.mark.parametrize("idle_ms", [SESSION_MS * 9 // 10, SESSION_MS * 2])
def test_a_session_is_renewed_before_what_comes_late_in_it_is_sent(idle_ms):
    driver = secured(**{"connections.max.reauth.ms": str(SESSION_MS)})
    wires = BackToBack(driver, SaslSettings("PLAIN", "alice", "alice-secret"))
    wires.ask()
    for _ in range(3):
        wires.advance(idle_ms)
        wires.ask()
    assert [bool(answer.brokers) for answer in wires.answers] == [True] * 4
    assert wires.connections == 1
    assert driver.node.logins.outcomes.total() == 4


def test_credentials_are_those_of_the_listener_and_the_mechanism():
    line = 'a.b.ScramLoginModule required username="broker" password="hidden";'
    values = {
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.inside.scram-sha-256.sasl.jaas.config": line,
    }
    credentials = inter_broker_credentials(BrokerConfig(values), "INSIDE")
    assert credentials == ("SCRAM-SHA-256", "broker", "hidden")


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "PLAIN"])
def test_what_is_not_configured_is_named(mechanism):
    with pytest.raises(ConfigError, match=r"sasl\.(mechanism\.inter|jaas)"):
        inter_broker_credentials(BrokerConfig({"sasl.mechanism.inter.broker.protocol": mechanism}), "INSIDE")
