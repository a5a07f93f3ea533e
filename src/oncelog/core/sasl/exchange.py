"""The interface of SASL mechanisms: messages in, answers out, until the client's identity is proved or refused.

Rules:
1. A mechanism accepts a message only when one is due, and none after success or refusal.
2. The client's view of a refusal never depends on whether the user exists.
3. No text contains a secret, neither a refusal nor a ``repr``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


class LoginRefused(Exception):
    """``shown`` is the text for the client; None: only that its credentials are invalid."""

    def __init__(self, reason: str, shown: str | None = None) -> None:
        self.shown = shown
        super().__init__(reason)

    @classmethod
    def saying(cls, text: str) -> LoginRefused:
        """A refusal whose reason the client may see."""
        return cls(text, text)


@dataclass(frozen=True, slots=True)
class Login:
    user: str
    expires_ms: int | None = None
    """When its credential expires; None: never."""


class Step(NamedTuple):
    """A mechanism's answer; the last one has ``login``."""

    answer: bytes
    login: Login | None = None


class InvalidToken(Exception):
    """The message has the reason but not the token. The client does not see it."""


class Check(NamedTuple):
    """Expensive work that precedes an answer, for a thread that may block."""

    work: Callable[[], None]
    """Touches no state of the exchange. Raises InvalidToken."""
    then: Callable[[InvalidToken | None, int], Step]
    """Takes the exception of ``work``, if any, and the time in ms. Raises LoginRefused."""


class Exchange(Protocol):
    def step(self, message: bytes, now_ms: int) -> Step | Check:
        """Process the client's next message; after a Check only once that is done. Raises LoginRefused."""


def settled(step: Step | Check, now_ms: int) -> Step:
    """Raises LoginRefused."""
    if isinstance(step, Step):
        return step
    try:
        step.work()
    except InvalidToken as error:
        return step.then(error, now_ms)
    return step.then(None, now_ms)


def same(secret: bytes, other: bytes) -> bool:
    """True if both are equal, in a time that depends neither on contents nor on lengths."""
    # Hashes have equal lengths, so the comparison reveals no length.
    return hmac.compare_digest(hashlib.sha256(secret).digest(), hashlib.sha256(other).digest())


def text_of(message: bytes) -> str:
    """Raises LoginRefused if the message is not UTF-8."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginRefused("the message is not UTF-8") from None


def sasl_name(text: str) -> str:
    """Decode a name: ``=2C`` is a comma, ``=3D`` an equals sign (RFC 5802). Raises LoginRefused."""
    if "\0" in text or text.replace("=2C", "").replace("=3D", "").find("=") >= 0:
        raise LoginRefused("a name has characters that must be escaped")
    return text.replace("=2C", ",").replace("=3D", "=")
