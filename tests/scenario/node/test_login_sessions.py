"""The session that a login begins: how long it lasts, and its renewal (KIP-368)."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.logins import (
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
)

SESSION_MS = 60_000


@pytest.fixture
def driver() -> Driver:
    return secured()


@pytest.fixture
def ending() -> Driver:
    return secured(connections_max_reauth_ms=str(SESSION_MS))


def test_a_session_outlives_its_user(driver):
    add_scram_user(driver, "carol", "carol-secret")
    peer = driver.connect(LISTENER)
    log_in_by_scram(peer, "carol", "carol-secret")
    add_scram_user(driver, "carol", "another")
    assert peer.ask(METADATA, 9).brokers
    assert log_in_by_scram(driver.connect(LISTENER), "carol", "carol-secret") is None


def test_a_session_has_a_length_and_is_closed_at_its_next_request_after_it(ending):
    peer = ending.connect(LISTENER)
    assert log_in(peer).session_lifetime_ms == SESSION_MS
    ending.advance(SESSION_MS)
    assert peer.ask(METADATA, 9).brokers
    ending.advance(1)
    assert not peer.closed
    peer.send(METADATA, 9)
    assert peer.closed
    assert not peer.responses


def test_a_session_is_renewed_at_once_and_when_it_has_expired(ending):
    peer = ending.connect(LISTENER)
    log_in(peer)
    assert log_in(peer).session_lifetime_ms == SESSION_MS
    ending.advance(SESSION_MS + 1)
    assert log_in(peer).session_lifetime_ms == SESSION_MS
    assert peer.ask(METADATA, 9).brokers


def test_a_session_is_renewed_once_a_second_at_most(ending):
    peer = ending.connect(LISTENER)
    log_in(peer)
    log_in(peer)
    ending.advance(999)
    assert handshake(peer, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    ending.advance(1)
    assert log_in(peer).error_code == 0


def test_another_user_at_a_renewal_is_refused(ending):
    peer = ending.connect(LISTENER)
    log_in(peer)
    handshake(peer, "PLAIN")
    peer.send(SaslAuthenticateRequest(auth_bytes=plain("bob", "bob-secret")), 2)
    response = refused_after_the_delay(ending, peer)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == ("Cannot change principals during re-authentication from User.alice: User.bob")
    assert principal(ending, peer) == "User:alice"


def test_a_wrong_password_at_a_renewal_is_refused(ending):
    add_scram_user(ending, "carol", "carol-secret")
    peer = ending.connect(LISTENER)
    log_in_by_scram(peer, "carol", "carol-secret")
    assert log_in_by_scram(peer, "carol", "wrong") is None
    response = refused_after_the_delay(ending, peer)
    assert response.error_message.startswith("Authentication failed during re-authentication due to")


def test_another_mechanism_at_a_renewal_closes_at_the_next_message(ending):
    peer = ending.connect(LISTENER)
    log_in(peer)
    assert handshake(peer, "SCRAM-SHA-256").error_code == 0
    peer.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 2)
    assert refused_after_the_delay(ending, peer) is None


def test_another_request_at_a_renewal_is_refused(ending):
    peer = ending.connect(LISTENER)
    log_in(peer)
    handshake(peer, "PLAIN")
    peer.send(FindCoordinatorRequest(), 1)
    assert refused_after_the_delay(ending, peer).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_sessions_last_as_their_mechanism_says():
    driver = secured(
        **{
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "5000",
            "connections.max.reauth.ms": "7000",
        }
    )
    add_scram_user(driver, "carol", "carol-secret")
    assert log_in(driver.connect(LISTENER)).session_lifetime_ms == 5000
    assert log_in_by_scram(driver.connect(LISTENER), "carol", "carol-secret").session_lifetime_ms == 7000
