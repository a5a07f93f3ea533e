"""DescribeDelegationToken, versions 1 to 3 (KIP-48, KIP-373): refused, since there are no tokens here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.access.delegation_tokens import TOKEN_ERRORS, token_error
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

ERRORS: Final[Mapping[ErrorCode, str]] = TOKEN_ERRORS


def handle(_request: DescribeDelegationTokenRequest, context: Context) -> DescribeDelegationTokenResponse:
    """No tokens, and why."""
    return DescribeDelegationTokenResponse(error_code=token_error(context))
