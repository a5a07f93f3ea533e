"""RenewDelegationToken, versions 1 to 2 (KIP-48): refused, since there are no tokens here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.access.delegation_tokens import TOKEN_ERRORS, no_time, token_error
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

ERRORS: Final[Mapping[ErrorCode, str]] = TOKEN_ERRORS


def handle(_request: RenewDelegationTokenRequest, context: Context) -> RenewDelegationTokenResponse:
    """No token has this code."""
    error = token_error(context)
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=no_time(error))
