"""SASL exchanges: those of the RFCs, and servers that lie."""

from __future__ import annotations

import base64
import json

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.errors import AuthenticationFailed, ConfigError
from oncelog.client.machine.sasl.exchange import SaslMachine, SaslSettings, Token, bearer_message
from oncelog.client.machine.sasl.scram import Scram
from oncelog.client.security import UnsecuredToken
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def started() -> Scram:
    exchange = Scram("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    return exchange


def test_the_example_of_rfc_7677() -> None:
    exchange = started()
    assert exchange.step(SERVER_FIRST) == CLIENT_FINAL
    assert exchange.step(SERVER_FINAL) is None
    with pytest.raises(AuthenticationFailed):
        exchange.step(b"")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"x" * 5000,
        b"r=other,s=W22Z,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOabc,s=W22Z,i=4095",
        b"r=rOprNGfwEbeRWgbNEkqOabc,s=W22Z,i=1000001",
        b"r=rOprNGfwEbeRWgbNEkqOabc,s=W22Z,i=" + b"9" * 4000,
        b"r=rOprNGfwEbeRWgbNEkqOabc,s=W22Z,i=-1",
        b"r=rOprNGfwEbeRWgbNEkqOabc,s=#,i=4096",
        b"m=x," + SERVER_FIRST,
        SERVER_FIRST + b",i=4096",
    ],
)
def test_a_server_that_lies_in_its_first_message_gets_no_proof(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        started().step(message)


@pytest.mark.parametrize("message", [b"", b"v=", b"v=AAAA", b"e=invalid-proof", SERVER_FINAL.replace(b"6", b"7", 1)])
def test_a_server_that_does_not_know_the_password_is_not_believed(message: bytes) -> None:
    exchange = started()
    exchange.step(SERVER_FIRST)
    with pytest.raises(AuthenticationFailed):
        exchange.step(message)


def test_commas_and_equal_signs_in_names() -> None:
    assert Scram("SCRAM-SHA-512", "a=b,c", "x", "n").first() == b"n,,n=a=3Db=2Cc,r=n"


def shaken(settings: SaslSettings) -> tuple[SaslMachine, bytes]:
    machine = SaslMachine(settings, NONCE)
    request = machine.next_request()
    assert isinstance(request, SaslHandshakeRequest)
    assert request.mechanism == settings.mechanism
    machine.answered(SaslHandshakeResponse())
    request = machine.next_request()
    assert isinstance(request, SaslAuthenticateRequest)
    return machine, request.auth_bytes


def test_plain() -> None:
    machine, message = shaken(SaslSettings("PLAIN", "me", "secret"))
    assert message == b"\0me\0secret"
    machine.answered(SaslAuthenticateResponse(session_lifetime_ms=5))
    assert (machine.done, machine.session_lifetime_ms) == (True, 5)


def test_a_refusal_says_why_and_never_the_password() -> None:
    machine, _ = shaken(SaslSettings("PLAIN", "me", "secret"))
    answer = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="bad\nuser")
    with pytest.raises(AuthenticationFailed, match="bad user"):
        machine.answered(answer)
    machine = SaslMachine(SaslSettings("PLAIN", "me", "secret"), NONCE)
    answer_to_handshake = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["GSSAPI"])
    with pytest.raises(AuthenticationFailed, match="GSSAPI"):
        machine.answered(answer_to_handshake)
    assert "secret" not in repr(SaslSettings("PLAIN", "me", "secret"))


def test_scram_over_the_machine() -> None:
    machine, message = shaken(SaslSettings("SCRAM-SHA-256", "user", "pencil"))
    assert message.startswith(b"n,,n=user")
    machine.answered(SaslAuthenticateResponse(auth_bytes=SERVER_FIRST))
    request = machine.next_request()
    assert isinstance(request, SaslAuthenticateRequest)
    assert request.auth_bytes == CLIENT_FINAL
    machine.answered(SaslAuthenticateResponse(auth_bytes=SERVER_FINAL))
    assert machine.done


def test_a_token_that_is_refused_is_acknowledged_first() -> None:
    settings = SaslSettings("OAUTHBEARER", token=lambda: Token("abc", {"cluster": "x"}))
    machine, message = shaken(settings)
    assert message == b"n,,\x01auth=Bearer abc\x01cluster=x\x01\x01"
    machine.answered(SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))
    request = machine.next_request()
    assert isinstance(request, SaslAuthenticateRequest)
    assert request.auth_bytes == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        machine.answered(SaslAuthenticateResponse())


@pytest.mark.parametrize(
    "token", [Token(""), Token("a b"), Token("a\x01b"), Token("a", {"auth": "x"}), Token("a", {"b": "\x01"})]
)
def test_tokens_that_cannot_be_said(token: Token) -> None:
    with pytest.raises(ConfigError):
        bearer_message(token)


def test_unsecured_tokens_have_no_signature() -> None:
    token = UnsecuredToken("alice", scopes=("a", "b"), extensions=(("x", "y"),))()
    header, claims, signature = token.value.split(".")
    decoded = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert (decoded["sub"], decoded["scope"], decoded["exp"] - decoded["iat"]) == ("alice", ["a", "b"], 3600)
    assert (json.loads(base64.urlsafe_b64decode(header + "==")), signature) == ({"alg": "none"}, "")
    assert token.extensions == {"x": "y"}
