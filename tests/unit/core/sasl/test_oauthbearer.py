"""OAUTHBEARER's messages: the token is tried once, and what is no message is refused before it is."""

from __future__ import annotations

import pytest

from oncelog.client.machine.sasl.exchange import Token, bearer_message
from oncelog.core.sasl.exchange import Check, InvalidToken, Login, LoginRefused, Step, settled
from oncelog.core.sasl.oauthbearer import INVALID_TOKEN, OAuthBearer, TokenCheck, read_message


class OneToken:
    """Knows one token; its signature is looked at by whoever does the check."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def begin(self, token: str) -> TokenCheck:
        def verify() -> None:
            self.asked.append(token)
            if token != "good":
                raise InvalidToken("unknown")

        return TokenCheck(verify, lambda now_ms: Login("alice", now_ms + 1000))


def step(exchange: OAuthBearer, message: bytes, now_ms: int) -> Step:
    return settled(exchange.step(message, now_ms), now_ms)


def test_nobody_is_let_in_before_the_signature_was_verified():
    validator = OneToken()
    exchange = OAuthBearer(validator)
    result = exchange.step(b"n,,\1auth=Bearer good\1\1", 5)
    assert isinstance(result, Check)
    assert not validator.asked
    with pytest.raises(LoginRefused):
        exchange.step(b"n,,\1auth=Bearer good\1\1", 5)


def test_a_valid_token_lets_in_until_it_expires():
    assert step(OAuthBearer(OneToken()), b"n,,\1auth=Bearer good\1\1", 5) == Step(b"", Login("alice", 1005))


def test_our_clients_message_is_read():
    message = bearer_message(Token("good", {"traceId": "a b"}))
    assert read_message(message) == ("good", "", {"traceId": "a b"})


def test_a_bad_token_is_named_so_and_refused_when_the_client_has_acknowledged_it():
    exchange = OAuthBearer(OneToken())
    assert step(exchange, b"n,,\1auth=Bearer bad\1\1", 0) == Step(INVALID_TOKEN.encode())
    with pytest.raises(LoginRefused) as refused:
        step(exchange, b"\1", 0)
    assert refused.value.shown == '{"status":"invalid_token"}'


def test_a_second_token_is_not_tried():
    validator = OneToken()
    exchange = OAuthBearer(validator)
    step(exchange, b"n,,\1auth=Bearer bad\1\1", 0)
    with pytest.raises(LoginRefused):
        step(exchange, b"n,,\1auth=Bearer good\1\1", 0)
    assert validator.asked == ["bad"]


def test_the_user_that_is_asked_for_has_to_be_the_tokens():
    assert step(OAuthBearer(OneToken()), b"n,a=alice,\1auth=Bearer good\1\1", 0).login is not None
    with pytest.raises(LoginRefused):
        step(OAuthBearer(OneToken()), b"n,a=bob,\1auth=Bearer good\1\1", 0)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1",
        b"n,,",
        b"n,,\1",
        b"n,,\1\1",
        b"n,,\1auth=Bearer good\1",
        b"n,,\1auth=Bearer good",
        b"y,,\1auth=Bearer good\1\1",
        b"p=tls,,\1auth=Bearer good\1\1",
        b"n,good,\1auth=Bearer good\1\1",
        b"n,a=,\1auth=Bearer good\1\1",
        b"n,,\1auth=Basic good\1\1",
        b"n,,\1auth=Bearergood\1\1",
        b"n,,\1auth=Bearer \1\1",
        b"n,,\1auth=Bearer good=\1\1",
        b"n,,\1auth=Bearer good\1auth=Bearer bad\1\1",
        b"n,,\1auth=Bearer good\1x\1\1",
        b"n,,\1auth=Bearer good\1x1=y\1\1",
        b"n,,\1auth=Bearer good\1x=\1\1",
        b"n,,\1auth=Bearer good\1x=\0\1\1",
        b"n,,\1auth=Bearer g\xff\1\1",
        b"n,,\1auth=Bearer " + b"a" * 140_000 + b"\1\1",
    ],
)
def test_what_is_no_message_is_refused_and_no_token_tried(message):
    validator = OneToken()
    with pytest.raises(LoginRefused):
        step(OAuthBearer(validator), message, 0)
    assert not validator.asked
