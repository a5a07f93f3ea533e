"""The state of a connection's SASL login.

1. Only the requests that ``LoginPhase`` lists are decided; any other closes the connection.
2. ``principal`` is set by the first ``LOGGED_IN`` and never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.core.sasl.exchange import Exchange
    from oncelog.core.sasl.settings import ListenerSasl
    from oncelog.handlers.broker.waits import Steps
    from oncelog.wire.chunks import Chunk
    from oncelog.wire.header import RequestHeader


class LoginPhase(Enum):
    # ApiVersions that is answered without an error leads to HANDSHAKE, SaslHandshake to EXCHANGE.
    VERSIONS = "versions"
    # SaslHandshake leads to EXCHANGE.
    HANDSHAKE = "handshake"
    # SaslAuthenticate, or a token without a header; finally LOGGED_IN.
    EXCHANGE = "exchange"
    # Any request. If sessions expire, SaslHandshake leads to EXCHANGE again (KIP-368).
    LOGGED_IN = "logged in"
    # No request: the client asked for another mechanism than the first time.
    SWITCHED = "switched"


@dataclass(slots=True, eq=False)
class LoginState:
    settings: ListenerSasl
    phase: LoginPhase = LoginPhase.VERSIONS
    exchange: Exchange | None = None
    """The mechanism's state machine, in ``EXCHANGE``."""
    mechanism: str = ""
    with_headers: bool = True
    """False after SaslHandshake version 0: tokens come without request headers."""
    principal: str | None = None
    ends_ms: int | None = None
    """Time after which only a new authentication is accepted."""
    began_again_ms: int | None = None
    """Time of the last re-authentication."""

    @property
    def again(self) -> bool:
        return self.principal is not None


class LoginAnswer(NamedTuple):
    """The response to a frame of the login; ``principal`` is set in the last one."""

    chunks: Sequence[Chunk]
    principal: str | None = None


class LoginVerification(NamedTuple):
    """``steps`` wait for a worker and return the login's next answer."""

    header: RequestHeader | None
    """None: a bare token."""
    steps: Steps[LoginAnswer | LoginEnded]


class LoginEnded(NamedTuple):
    """The login failed or expired: ``chunks`` are sent after ``delay_ms``, then the connection is closed."""

    reason: str
    chunks: Sequence[Chunk] = ()
    delay_ms: int = 0
