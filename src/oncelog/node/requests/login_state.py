"""How far the client of one connection has come with saying who it is.

Phase          a request that is taken                            then
-------------  -------------------------------------------------  ------------------------------------------
``VERSIONS``   ApiVersions that is answered without an error      ``HANDSHAKE``
``VERSIONS``   SaslHandshake                                      ``EXCHANGE``
``HANDSHAKE``  SaslHandshake                                      ``EXCHANGE``
``EXCHANGE``   SaslAuthenticate, or a token without a header      ``EXCHANGE``, until it is ``LOGGED_IN``
``LOGGED_IN``  any; SaslHandshake, where sessions end             ``LOGGED_IN``; ``EXCHANGE`` once more (KIP-368)
``SWITCHED``   none: another mechanism was asked for than before

Invariants:
1. Nothing but what the table names is decided; whatever else comes closes the connection.
2. ``principal`` is the connection's from the first ``LOGGED_IN`` on, and never another.
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
    """How far a login has come; the table of the module has the transitions."""

    VERSIONS = "versions"
    HANDSHAKE = "handshake"
    EXCHANGE = "exchange"
    LOGGED_IN = "logged in"
    SWITCHED = "switched"


@dataclass(slots=True, eq=False)
class LoginState:
    """One connection's."""

    settings: ListenerSasl
    phase: LoginPhase = LoginPhase.VERSIONS
    exchange: Exchange | None = None
    """The mechanism's machine, in ``EXCHANGE``."""
    mechanism: str = ""
    with_headers: bool = True
    """False after SaslHandshake version 0: tokens come bare."""
    principal: str | None = None
    ends_ms: int | None = None
    """Time after which nothing but a new authentication is taken."""
    began_again_ms: int | None = None
    """Time of the last authentication after the first."""

    @property
    def again(self) -> bool:
        """True if the client had authenticated before."""
        return self.principal is not None


class LoginAnswer(NamedTuple):
    """A frame was part of the login and is answered by these chunks; ``principal`` is there with the last of them."""

    chunks: Sequence[Chunk]
    principal: str | None = None


class LoginVerification(NamedTuple):
    """A frame was part of the login; ``steps`` wait for a worker before they return what becomes of it."""

    header: RequestHeader | None
    """None: a bare token."""
    steps: Steps[LoginAnswer | LoginEnded]


class LoginEnded(NamedTuple):
    """The connection ends: ``chunks`` are sent after ``delay_ms``, then it is closed."""

    reason: str
    chunks: Sequence[Chunk] = ()
    delay_ms: int = 0
