"""The exchange of one authentication: a message goes in, an answer comes out, until the machine says who the client is.

Rules:
1. A machine takes a message only where the next is due; after it has succeeded or refused it takes none.
2. What a client is told of a refusal never depends on whether the user exists.
3. No secret is part of a text: not of a refusal, not of a ``repr``.
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
    """The client is not let in. ``shown`` is what it is told; None: only that its credentials are invalid."""

    def __init__(self, reason: str, shown: str | None = None) -> None:
        self.shown = shown
        super().__init__(reason)

    @classmethod
    def saying(cls, text: str) -> LoginRefused:
        """A refusal whose reason the client may read."""
        return cls(text, text)


@dataclass(frozen=True, slots=True)
class Login:
    """The identity that a client has proved."""

    user: str
    expires_ms: int | None = None
    """Time from which its credential is no longer valid; None: it has no end."""


class Step(NamedTuple):
    """A machine's answer; ``login`` is set with the last one."""

    answer: bytes
    login: Login | None = None


class InvalidToken(Exception):
    """A token is not accepted; the message says why and does not hold it. The client is not told."""


class Check(NamedTuple):
    """Computation that has to be done before there is an answer, by whoever may wait for it."""

    work: Callable[[], None]
    """Touches nothing of the machine. Raises InvalidToken."""
    then: Callable[[InvalidToken | None, int], Step]
    """Takes what ``work`` has raised, and the time in milliseconds. Raises LoginRefused."""


class Exchange(Protocol):
    """One authentication by one mechanism."""

    def step(self, message: bytes, now_ms: int) -> Step | Check:
        """Take the client's next message; the one behind it may be taken when a check is done. Raises LoginRefused."""


def settled(step: Step | Check, now_ms: int) -> Step:
    """An answer, after the check that it may need. Raises LoginRefused."""
    if isinstance(step, Step):
        return step
    try:
        step.work()
    except InvalidToken as error:
        return step.then(error, now_ms)
    return step.then(None, now_ms)


def same(secret: bytes, other: bytes) -> bool:
    """True if both are equal, in a time that depends on neither, nor on where they differ, nor on their lengths."""
    return hmac.compare_digest(hashlib.sha256(secret).digest(), hashlib.sha256(other).digest())


def text_of(message: bytes) -> str:
    """A message as text. Raises LoginRefused for what is no UTF-8."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginRefused("the message is not UTF-8") from None


def sasl_name(text: str) -> str:
    """A name as it is meant: ``=2C`` is a comma, ``=3D`` an equals sign (RFC 5802). Raises LoginRefused."""
    if "\0" in text or text.replace("=2C", "").replace("=3D", "").find("=") >= 0:
        raise LoginRefused("a name has characters that must be escaped")
    return text.replace("=2C", ",").replace("=3D", "=")
