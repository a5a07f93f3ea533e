"""SaslHandshake (0 to 1; KIP-43, KIP-152) and SaslAuthenticate (0 to 2; KIP-152, KIP-368) outside a login.

``oncelog.node.requests.logins`` decides logins. Requests arrive here on a listener without SASL, or after the login.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

HANDSHAKE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.ILLEGAL_SASL_STATE: "the listener has no SASL, or the client is authenticated and its session does not "
    "end, or began less than a second ago",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the listener does not have the mechanism; those that it has are named, and "
    "the connection is closed",
}


def handshake(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    """Refuse: no login is due."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def unsupported_mechanism(offered: Sequence[str]) -> SaslHandshakeResponse:
    """The answer to a mechanism that the listener does not offer."""
    return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(offered))


AUTHENTICATE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.ILLEGAL_SASL_STATE: "the listener has no SASL, or the client is authenticated",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "wrong credentials, after connection.failed.authentication.delay.ms; the "
    "connection is closed",
}

_MESSAGE: Final = "SaslAuthenticate request received after successful authentication"


def authenticate(request: SaslAuthenticateRequest, context: Context) -> SaslAuthenticateResponse:
    """Refuse: no login is due."""
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_MESSAGE)
