"""Logins by SASL, and what those are told who are not let in: bytes in, bytes out (docs: COMPATIBILITY, security)."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.machine.sasl.scram import Scram
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.logins import (
    DELAY_MS,
    LISTENER,
    METADATA,
    add_scram_user,
    handshake,
    log_in,
    log_in_by_scram,
    plain,
    principal,
    refused_after_the_delay,
    secured,
    token,
)


@pytest.fixture
def driver() -> Driver:
    return secured()


def test_plain_lets_in_and_names_the_principal(driver):
    peer = driver.connect(LISTENER)
    response = log_in(peer)
    assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", 0)
    assert principal(driver, peer) == "User:alice"
    assert peer.ask(METADATA, 9).brokers


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_lets_in_who_knows_the_password(driver, mechanism):
    add_scram_user(driver, "carol", "carol-secret", mechanism)
    peer = driver.connect(LISTENER)
    assert log_in_by_scram(peer, "carol", "carol-secret", mechanism).error_code == 0
    assert principal(driver, peer) == "User:carol"
    assert peer.ask(METADATA, 9).brokers


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", "alice-secret"), ("ALICE", "alice-secret")]
)
def test_wrong_logins_are_told_the_same_after_the_delay(driver, user, password):
    peer = driver.connect(LISTENER)
    handshake(peer, "PLAIN")
    peer.send(SaslAuthenticateRequest(auth_bytes=plain(user, password)), 2)
    response = refused_after_the_delay(driver, peer)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == "Authentication failed: Invalid username or password"


@pytest.mark.parametrize("user", ["carol", "nobody"])
def test_scram_tells_an_unknown_user_what_it_tells_one_with_a_wrong_password(driver, user):
    add_scram_user(driver, "carol", "carol-secret")
    peer = driver.connect(LISTENER)
    assert log_in_by_scram(peer, user, "wrong") is None
    response = refused_after_the_delay(driver, peer)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


def test_an_unknown_user_has_the_same_salt_each_time_and_after_a_restart(driver):
    def salt() -> bytes:
        peer = driver.connect(LISTENER)
        handshake(peer, "SCRAM-SHA-256")
        answer = bytes(token(peer, Scram("SCRAM-SHA-256", "nobody", "x", "nonce").first()).auth_bytes)
        return answer.partition(b",")[2]

    first = salt()
    assert salt() == first
    driver.session.close()
    driver.start()
    assert salt() == first


def test_nothing_is_read_while_a_refusal_is_delayed(driver):
    peer = driver.connect(LISTENER)
    handshake(peer, "PLAIN")
    peer.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
    assert peer.paused
    peer.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "alice-secret")), 2)
    driver.advance(DELAY_MS)
    assert peer.closed
    assert [response.error_code for response in peer.responses] == [ErrorCode.SASL_AUTHENTICATION_FAILED]


def test_who_leaves_before_the_delay_is_over_is_not_answered(driver):
    peer = driver.connect(LISTENER)
    handshake(peer, "PLAIN")
    peer.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
    driver.disconnect(peer)
    driver.advance(DELAY_MS)
    assert driver.fatal is None


def test_an_unknown_mechanism_is_told_which_there_are(driver):
    peer = driver.connect(LISTENER)
    peer.send(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    response = refused_after_the_delay(driver, peer)
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_tokens_without_headers_still_let_in(driver):
    peer = driver.connect(LISTENER)
    assert handshake(peer, "PLAIN", 0).error_code == 0
    peer.raw = True
    peer.send_frame(plain("alice", "alice-secret"))
    assert peer.responses.popleft() == b""
    peer.raw = False
    assert principal(driver, peer) == "User:alice"
    assert peer.ask(METADATA, 9).brokers


def test_a_wrong_password_without_headers_is_a_bare_close(driver):
    peer = driver.connect(LISTENER)
    handshake(peer, "PLAIN", 0)
    peer.raw = True
    peer.send_frame(plain("alice", "wrong"))
    assert refused_after_the_delay(driver, peer) is None


def test_scram_without_headers(driver):
    add_scram_user(driver, "carol", "carol-secret")
    peer = driver.connect(LISTENER)
    handshake(peer, "SCRAM-SHA-256", 0)
    peer.raw = True
    client = Scram("SCRAM-SHA-256", "carol", "carol-secret", "nonce")
    peer.send_frame(client.first())
    peer.send_frame(client.step(peer.responses.popleft()))
    assert client.step(peer.responses.popleft()) is None
    assert principal(driver, peer) == "User:carol"


def test_logins_are_counted_by_what_came_of_them(driver: Driver) -> None:
    log_in(driver.connect(LISTENER))
    token_of_nobody = driver.connect(LISTENER)
    handshake(token_of_nobody, "PLAIN")
    token_of_nobody.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
    driver.connect(LISTENER).send(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert driver.node.logins.outcomes == {
        (LISTENER, "PLAIN", "succeeded"): 1,
        (LISTENER, "PLAIN", "failed"): 1,
        (LISTENER, "", "failed"): 1,
    }
