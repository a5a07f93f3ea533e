"""PLAIN: one message, and nothing after it."""

from __future__ import annotations

import contextlib

import pytest

from oncelog.core.sasl.exchange import Login, LoginRefused, Step
from oncelog.core.sasl.plain import Plain

USERS = {"alice": "secret", "jörg": "naïve"}


def test_the_right_password_lets_in():
    assert Plain(USERS).step(b"\0alice\0secret", 0) == Step(b"", Login("alice"))
    assert Plain(USERS).step("jörg\0jörg\0naïve".encode(), 0).login == Login("jörg")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"\0alice\0",
        b"\0\0secret",
        b"\0alice\0secre",
        b"\0alice\0secrets",
        b"\0nobody\0secret",
        b"\0alice\0secret\0",
        b"bob\0alice\0secret",
        b"\0nobody\0\xff",
    ],
)
def test_everything_else_is_refused(message):
    with pytest.raises(LoginRefused):
        Plain(USERS).step(message, 0)


def test_an_unknown_user_is_told_what_a_wrong_password_is_told():
    told = set()
    for message in (b"\0alice\0wrong", b"\0nobody\0wrong"):
        with pytest.raises(LoginRefused) as refused:
            Plain(USERS).step(message, 0)
        told.add((refused.value.shown, str(refused.value)))
    assert len(told) == 1


@pytest.mark.parametrize("first", [b"\0alice\0secret", b"\0alice\0wrong"])
def test_no_second_message_is_taken(first):
    exchange = Plain(USERS)
    with contextlib.suppress(LoginRefused):
        exchange.step(first, 0)
    with pytest.raises(LoginRefused):
        exchange.step(b"\0alice\0secret", 0)
