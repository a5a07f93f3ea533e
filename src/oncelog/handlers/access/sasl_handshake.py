"""SaslHandshake, versions 0 to 1 (KIP-43, KIP-152), where no login is due.

The login itself is not decided by handlers (``oncelog.node.requests.logins``): here arrives what is asked on a listener
without SASL, or once more after the login.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.ILLEGAL_SASL_STATE: "the listener has no SASL, or the client is authenticated and its session does not "
    "end, or began less than a second ago",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the listener does not have the mechanism; those that it has are named, and "
    "the connection is closed",
}


def handle(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    """Out of place."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def unsupported_mechanism(offered: Sequence[str]) -> SaslHandshakeResponse:
    """The answer to a mechanism that a listener does not have."""
    return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(offered))
