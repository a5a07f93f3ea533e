"""Logins by token (OAUTHBEARER), whose signatures a worker verifies."""

from __future__ import annotations

import base64
import json

import pytest

from oncelog.core.sasl.exchange import InvalidToken
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.logins import DELAY_MS, LISTENER, METADATA, handshake, principal, secured, token


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
