"""CreateDelegationToken, versions 1 to 3 (KIP-48, KIP-373): refused, since there are no tokens here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.handlers.access.delegation_tokens import TOKEN_ERRORS, is_identified, no_time, token_error
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **TOKEN_ERRORS,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not allowed to create tokens for the owner",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "a renewer is not a user",
}

_USER: Final = "User"


def handle(request: CreateDelegationTokenRequest, context: Context) -> CreateDelegationTokenResponse:
    """Refused, with the owner and the requester that the token would have had."""
    requester_type, _, requester_name = context.principal.partition(":")
    owner_type, owner_name = requester_type, requester_name
    if request.owner_principal_name:
        owner_type, owner_name = request.owner_principal_type or "", request.owner_principal_name
    error = _error(request, context, f"{owner_type}:{owner_name}")
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=no_time(error),
        expiry_timestamp_ms=no_time(error),
        max_timestamp_ms=no_time(error),
    )


def _error(request: CreateDelegationTokenRequest, context: Context, owner: str) -> ErrorCode:
    if is_identified(context):
        if owner != context.principal and not context.allows(Operation.CREATE_TOKENS, ResourceType.USER, owner):
            return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        if any(each.principal_type != _USER for each in request.renewers):
            return ErrorCode.INVALID_PRINCIPAL_TYPE
    return token_error(context)
