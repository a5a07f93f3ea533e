"""Requests that come before a login, in the middle of one, with it or after it."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.wire.apis import BY_KEY
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.logins import (
    DELAY_MS,
    LISTENER,
    METADATA,
    handshake,
    log_in,
    plain,
    principal,
    refused_after_the_delay,
    secured,
    token,
)

KNOWN_SOFTWARE = {"client_software_name": "driver", "client_software_version": "1"}


@pytest.fixture
def driver() -> Driver:
    return secured()


def test_api_versions_is_answered_before_the_login_also_after_an_unknown_version(driver):
    peer = driver.connect(LISTENER)
    header = RequestHeader(ApiVersionsRequest.API_KEY, 99, 1, "driver")
    body = b"".join(map(bytes, encode_request(header._replace(api_version=4), ApiVersionsRequest(**KNOWN_SOFTWARE))))
    frame = bytearray(body[4:])
    frame[2:4] = (99).to_bytes(2, "big")
    peer._asked[1] = (ApiVersionsRequest(), 0)
    peer.send_frame(frame)
    assert peer.responses.popleft().error_code == ErrorCode.UNSUPPORTED_VERSION
    next(peer._next)
    assert peer.ask(ApiVersionsRequest(), 0).error_code == 0
    assert log_in(peer).error_code == 0


def test_after_an_answered_api_versions_only_the_handshake_may_follow(driver):
    peer = driver.connect(LISTENER)
    peer.ask(ApiVersionsRequest(**KNOWN_SOFTWARE), 3)
    peer.send(ApiVersionsRequest(**KNOWN_SOFTWARE), 3)
    assert refused_after_the_delay(driver, peer) is None


def test_the_broker_that_a_client_expects_is_checked_after_the_login(driver):
    peer = driver.connect(LISTENER)
    elsewhere = ApiVersionsRequest(**KNOWN_SOFTWARE, cluster_id="another", node_id=7)
    assert peer.ask(elsewhere, 5).error_code == 0
    assert log_in(peer).error_code == 0
    assert peer.ask(elsewhere, 5).error_code == ErrorCode.REBOOTSTRAP_REQUIRED


def test_api_versions_of_unnamed_software_may_be_asked_again(driver):
    peer = driver.connect(LISTENER)
    assert peer.ask(ApiVersionsRequest(), 3).error_code == ErrorCode.INVALID_REQUEST
    assert peer.ask(ApiVersionsRequest(**KNOWN_SOFTWARE), 3).error_code == 0


@pytest.mark.parametrize("request_", [METADATA, SaslAuthenticateRequest(auth_bytes=plain("alice", "alice-secret"))])
def test_anything_else_before_the_login_is_closed_without_an_answer(driver, request_):
    peer = driver.connect(LISTENER)
    peer.send(request_, request_.MIN_VERSION)
    assert refused_after_the_delay(driver, peer) is None
    assert principal(driver, peer) == "User:ANONYMOUS"


def test_every_api_is_closed_before_the_login_whatever_is_in_it(driver):
    for key, api in BY_KEY.items():
        if key in (ApiVersionsRequest.API_KEY, SaslHandshakeRequest.API_KEY):
            continue
        for version in range(api.min_version, api.max_version + 1):
            peer = driver.connect(LISTENER)
            peer.send_frame(key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff" + b"\x7f" * 64)
            driver.advance(DELAY_MS)
            assert peer.closed
            assert not peer.responses
    assert driver.fatal is None


def test_a_frame_beyond_the_limit_closes_before_the_login(driver):
    peer = driver.connect(LISTENER)
    handshake(peer, "PLAIN")
    peer.send(SaslAuthenticateRequest(auth_bytes=bytes(524289)), 2)
    assert refused_after_the_delay(driver, peer) is None


@pytest.mark.parametrize("request_", [FindCoordinatorRequest(), ApiVersionsRequest(), METADATA])
def test_another_request_in_the_middle_gets_an_empty_error_and_the_close(driver, request_):
    peer = driver.connect(LISTENER)
    handshake(peer, "PLAIN")
    peer.send(request_, 1)
    response = refused_after_the_delay(driver, peer)
    assert request_ is METADATA or response.error_code == ErrorCode.ILLEGAL_SASL_STATE  # it has none in this version
    assert not getattr(response, "brokers", [])


def test_requests_sent_in_one_go_are_decided_in_order(driver):
    peer = driver.connect(LISTENER)
    peer.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    peer.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "alice-secret")), 2)
    peer.send(METADATA, 9)
    assert [type(response).__name__ for response in peer.responses] == [
        "SaslHandshakeResponse",
        "SaslAuthenticateResponse",
        "MetadataResponse",
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_a_handshake_after_the_login_is_illegal_and_the_connection_stays(driver, version):
    peer = driver.connect(LISTENER)
    log_in(peer)
    assert handshake(peer, "PLAIN", version).error_code == ErrorCode.ILLEGAL_SASL_STATE
    response = token(peer, plain("bob", "bob-secret"))
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert response.error_message == "SaslAuthenticate request received after successful authentication"
    assert principal(driver, peer) == "User:alice"
    assert peer.ask(METADATA, 9).brokers


def test_a_listener_without_sasl_has_no_login(driver):
    peer = driver.connect()
    assert handshake(peer, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert token(peer, plain("alice", "alice-secret")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert peer.ask(METADATA, 9).brokers
