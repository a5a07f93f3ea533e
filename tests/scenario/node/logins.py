"""Logins on a driven node: its listeners' settings, users, and a client's side of each mechanism."""

from __future__ import annotations

from oncelog.client.machine.sasl.scram import Scram
from oncelog.core.controller.entities.entity_writes import write_entities
from oncelog.core.controller.image.client_entities import ClientEntity
from oncelog.core.sasl.scram_credentials import credential_of
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.scenario.node.driver import Driver

LISTENER = "SASL_PLAINTEXT"
PLAIN_LINE = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob-secret";'
)
CONFIG = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_LINE,
}
DELAY_MS = 100
ITERATIONS = 4096
METADATA = MetadataRequest(topics=[])
"""A request that is answered to whoever is let in."""


def secured(**changes: str) -> Driver:
    """A node with a SASL listener; ``changes`` with ``_`` for ``.``."""
    return Driver({**CONFIG, **{key if "." in key else key.replace("_", "."): value for key, value in changes.items()}})


def add_scram_user(driver: Driver, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    """Write a user's credential into the tree."""
    credential = credential_of(mechanism, password, b"salt of " + user.encode(), ITERATIONS)
    image = driver.node.cluster.image
    driver.session.commit(write_entities(image, {ClientEntity(user=user): {mechanism: credential.text()}}))
    driver.dispatch_changes()


def handshake(peer, mechanism: str, version: int = 1):
    """Ask for a mechanism; the response."""
    return peer.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def token(peer, data: bytes, version: int = 2):
    """Send a token; the response."""
    return peer.ask(SaslAuthenticateRequest(auth_bytes=data), version)


def plain(user: str, password: str, text: str = "") -> bytes:
    """The message of PLAIN."""
    return f"{text}\0{user}\0{password}".encode()


def log_in(peer, user: str = "alice", password: str = "alice-secret"):
    """Log in by PLAIN; the response."""
    assert handshake(peer, "PLAIN").error_code == 0
    return token(peer, plain(user, password))


def log_in_by_scram(peer, user: str, password: str, mechanism: str = "SCRAM-SHA-256"):
    """Log in by SCRAM up to the last response, which has not come when the login is refused."""
    assert handshake(peer, mechanism).error_code == 0
    client = Scram(mechanism, user, password, "client-nonce")
    first = token(peer, client.first())
    assert first.error_code == 0
    peer.send(SaslAuthenticateRequest(auth_bytes=client.step(bytes(first.auth_bytes))), 2)
    if not peer.responses:
        return None
    last = peer.responses.popleft()
    if not last.error_code:
        client.step(bytes(last.auth_bytes))
    return last


def principal(driver: Driver, peer) -> str:
    """The principal that the node knows a connection by."""
    return driver.node.connections.by_id[peer.id].principal


def refused_after_the_delay(driver: Driver, peer):
    """The answer of a refused login; not before the delay is over, and then the connection closes."""
    driver.advance(DELAY_MS - 1)
    assert not peer.responses
    assert not peer.closed
    driver.advance(1)
    assert peer.closed
    return peer.responses.popleft() if peer.responses else None
