"""SaslAuthenticate, versions 0 to 2 (KIP-152, KIP-368), where no login is due: see ``sasl_handshake``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.ILLEGAL_SASL_STATE: "the listener has no SASL, or the client is authenticated",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "wrong credentials, after connection.failed.authentication.delay.ms; the "
    "connection is closed",
}

_MESSAGE: Final = "SaslAuthenticate request received after successful authentication"


def handle(request: SaslAuthenticateRequest, context: Context) -> SaslAuthenticateResponse:
    """Out of place."""
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_MESSAGE)
