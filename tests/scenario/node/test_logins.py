"""Logins by SASL, and what those are told who are not let in: bytes in, bytes out (docs: COMPATIBILITY, security)."""

from __future__ import annotations

import base64
import json

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.machine.sasl.scram import Scram
from oncelog.core.sasl.exchange import InvalidToken
from oncelog.wire.apis import BY_KEY
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.logins import (
    DELAY_MS,
    LISTENER,
    add_scram_user,
    handshake,
    log_in,
    log_in_by_scram,
    plain,
    secured,
    token,
)

KNOWN_SOFTWARE = {"client_software_name": "driver", "client_software_version": "1"}
METADATA = MetadataRequest(topics=[])


@pytest.fixture
def driver() -> Driver:
    return secured()


def principal(driver: Driver, peer) -> str:
    return driver.node._connections[peer.id].principal


def refused_after_the_delay(driver: Driver, peer):
    """The answer of a refused login; not before the delay is over, and then the connection closes."""
    driver.advance(DELAY_MS - 1)
    assert not peer.responses
    assert not peer.closed
    driver.advance(1)
    assert peer.closed
    return peer.responses.popleft() if peer.responses else None


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


@pytest.mark.parametrize("request_", [FindCoordinatorRequest(), ApiVersionsRequest(), METADATA])
def test_another_request_in_the_middle_gets_an_empty_error_and_the_close(driver, request_):
    peer = driver.connect(LISTENER)
    handshake(peer, "PLAIN")
    peer.send(request_, 1)
    response = refused_after_the_delay(driver, peer)
    assert request_ is METADATA or response.error_code == ErrorCode.ILLEGAL_SASL_STATE  # it has none in this version
    assert not getattr(response, "brokers", [])


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


def test_a_frame_beyond_the_limit_closes_before_the_login(driver):
    peer = driver.connect(LISTENER)
    handshake(peer, "PLAIN")
    peer.send(SaslAuthenticateRequest(auth_bytes=bytes(524289)), 2)
    assert refused_after_the_delay(driver, peer) is None


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


def test_a_session_outlives_its_user(driver):
    add_scram_user(driver, "carol", "carol-secret")
    peer = driver.connect(LISTENER)
    log_in_by_scram(peer, "carol", "carol-secret")
    add_scram_user(driver, "carol", "another")
    assert peer.ask(METADATA, 9).brokers
    assert log_in_by_scram(driver.connect(LISTENER), "carol", "carol-secret") is None


SESSION_MS = 60_000


@pytest.fixture
def ending() -> Driver:
    return secured(connections_max_reauth_ms=str(SESSION_MS))


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


class Keys:
    """A key set that takes the signature ``good``, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def verify(self, algorithm: str, key_id: str | None, signed: bytes, signature: bytes) -> None:
        self.asked += 1
        if signature != b"good":
            raise InvalidToken("its signature is wrong")


class TestTokens:
    """Signatures are verified by a worker; nothing of the connection goes on before that."""

    @staticmethod
    def bearer(driver: Driver, signature: bytes = b"good") -> bytes:
        now_s = driver.now_ms // 1000
        claims = {"iss": "issuer", "aud": "oncelog", "sub": "service", "iat": now_s, "exp": now_s + 600}
        parts = [json.dumps(part).encode() for part in ({"alg": "RS256"}, claims)]
        text = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, signature))
        return f"n,,\1auth=Bearer {text}\1\1".encode()

    @pytest.fixture
    def by_token(self) -> tuple[Driver, Keys]:
        prefix = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer."
        driver = secured(
            **{
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{prefix}jwks.endpoint.url": "file:///keys.json",
                f"{prefix}expected.issuer": "issuer",
                f"{prefix}expected.audience": "oncelog",
            }
        )
        keys = Keys()
        driver.node.logins.credentials.key_sets[LISTENER] = keys
        return driver, keys

    def test_what_follows_waits_for_the_verification(self, by_token: tuple[Driver, Keys]) -> None:
        driver, keys = by_token
        peer, other = driver.connect(LISTENER), driver.connect(LISTENER)
        handshake(peer, "OAUTHBEARER")
        driver.hold_jobs = True
        peer.send(SaslAuthenticateRequest(auth_bytes=self.bearer(driver)), 2)
        peer.send(METADATA, 12)
        assert (keys.asked, len(peer.responses)) == (0, 0)
        assert handshake(other, "OAUTHBEARER").error_code == 0, "others go on"
        driver.release()
        assert [response.error_code for response in list(peer.responses)[:1]] == [0]
        assert len(peer.responses) == 2
        assert principal(driver, peer) == "User:service"

    def test_a_client_that_leaves_meanwhile_is_nobody(self, by_token: tuple[Driver, Keys]) -> None:
        driver, _ = by_token
        peer = driver.connect(LISTENER)
        handshake(peer, "OAUTHBEARER")
        driver.hold_jobs = True
        peer.send(SaslAuthenticateRequest(auth_bytes=self.bearer(driver)), 2)
        driver.disconnect(peer)
        driver.release()
        assert not driver.node.logins.outcomes
        assert not driver.fatal

    @pytest.mark.parametrize("with_headers", [True, False])
    def test_a_wrong_signature_is_told_so_and_the_connection_ends(
        self, by_token: tuple[Driver, Keys], with_headers: bool
    ) -> None:
        driver, _ = by_token
        peer = driver.connect(LISTENER)
        handshake(peer, "OAUTHBEARER", version=int(with_headers))
        if with_headers:
            assert token(peer, self.bearer(driver, b"bad")).auth_bytes == b'{"status":"invalid_token"}'
            peer.send(SaslAuthenticateRequest(auth_bytes=b"\1"), 2)
        else:
            peer.raw = True
            peer.send_frame(self.bearer(driver, b"bad"))
            assert peer.responses.popleft() == b'{"status":"invalid_token"}'
            peer.send_frame(b"\1")
        driver.advance(DELAY_MS)
        assert peer.closed
        assert driver.node.logins.outcomes == {(LISTENER, "OAUTHBEARER", "failed"): 1}


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


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('org.apache.kafka.common.security.plain.PlainLoginModule required user_eve="hush"', "semicolon"),
        ('org.apache.kafka.common.security.scram.ScramLoginModule required username="hush";', "PLAIN takes"),
        ("hush", "control flag"),
    ],
)
def test_a_login_line_that_could_not_be_used_is_not_taken(driver: Driver, line: str, reason: str) -> None:
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    change = AlterableConfig(name=key, value=line)
    for name in ("1", ""):
        resource = AlterConfigsResource(resource_type=4, resource_name=name, configs=[change])
        [result] = driver.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert reason in result.error_message
        assert "hush" not in result.error_message
    assert log_in(driver.connect(LISTENER)).error_code == 0


@pytest.mark.parametrize("before_the_first_login", [True, False])
def test_a_listener_keeps_its_mechanisms_until_a_restart(driver: Driver, before_the_first_login: bool) -> None:
    if not before_the_first_login:
        assert log_in(driver.connect(LISTENER)).error_code == 0
    change = AlterableConfig(name="sasl.enabled.mechanisms", value="SCRAM-SHA-256")
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    [result] = driver.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0
    assert log_in(driver.connect(LISTENER)).error_code == 0
    driver.crash_and_restart(1)
    peer = driver.connect(LISTENER)
    peer.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert refused_after_the_delay(driver, peer).mechanisms == ["SCRAM-SHA-256"]


@pytest.mark.parametrize(("value", "operation"), [("GSSAPI", 0), ("SCRAM-SHA-256,GSSAPI", 0), ("", 0), ("GSSAPI", 2)])
def test_mechanisms_by_which_nobody_could_log_in_after_a_restart_are_not_taken(
    driver: Driver, value: str, operation: int
) -> None:
    change = AlterableConfig(name="sasl.enabled.mechanisms", value=value, config_operation=operation)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    [result] = driver.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "is not supported" in result.error_message
