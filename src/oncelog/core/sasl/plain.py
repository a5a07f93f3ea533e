"""PLAIN (RFC 4616): user and password in one message, checked against users in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.core.sasl.exchange import Login, LoginRefused, Step, same, text_of

_PARTS: Final = 3
_WRONG: Final = "Authentication failed: Invalid username or password"
_IMPOSSIBLE_PASSWORD: Final = b"\0"
"""A password that no client can send: NUL separates the parts of the message."""


class Plain:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self._done = False

    def step(self, message: bytes, now_ms: int) -> Step:
        """Implements :class:`oncelog.core.sasl.exchange.Exchange`."""
        if self._done:
            raise LoginRefused("a message after the exchange")
        self._done = True
        parts = text_of(message).split("\0", _PARTS + 1)[: _PARTS + 1]
        if len(parts) != _PARTS:
            raise LoginRefused.saying(f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise LoginRefused.saying("Authentication failed: username not specified")
        if not password:
            raise LoginRefused.saying("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        # Compared even without such a user, so that the time does not reveal it.
        if not same(password.encode(), _IMPOSSIBLE_PASSWORD if expected is None else expected.encode()):
            raise LoginRefused.saying(_WRONG)
        if authorization_id and authorization_id != user:
            raise LoginRefused.saying(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Step(b"", Login(user))
