"""Delegation tokens (KIP-48, KIP-373) of a broker that does not issue any.

CreateDelegationToken and DescribeDelegationToken (versions 1 to 3), RenewDelegationToken and ExpireDelegationToken (1
to 2) answer as Apache Kafka does without ``delegation.token.secret.key``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.security import ANONYMOUS, SecurityProtocol
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from oncelog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from oncelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from oncelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

DESCRIBE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "always, to a client that has said who it is",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "the client has neither logged in by SASL nor shown a certificate",
}
RENEW_ERRORS: Final = DESCRIBE_ERRORS
EXPIRE_ERRORS: Final = DESCRIBE_ERRORS
CREATE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **DESCRIBE_ERRORS,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not allowed to create tokens for the owner",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "a renewer is not a user",
}

_USER: Final = "User"


def _is_identified(context: Context) -> bool:
    """True if the listener authenticated the client: it could have tokens."""
    if context.security_protocol is SecurityProtocol.SSL:
        return context.principal != ANONYMOUS
    return context.security_protocol.has_sasl


def _token_error(context: Context) -> ErrorCode:
    if _is_identified(context):
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def _no_time(error: ErrorCode) -> int:
    # Apache Kafka's controller refuses with 0, its broker with -1.
    return 0 if error is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else -1


def create(request: CreateDelegationTokenRequest, context: Context) -> CreateDelegationTokenResponse:
    """Refuse, naming the owner and the requester that the token would have had."""
    requester_type, _, requester_name = context.principal.partition(":")
    owner_type, owner_name = requester_type, requester_name
    if request.owner_principal_name:
        owner_type, owner_name = request.owner_principal_type or "", request.owner_principal_name
    error = _create_error(request, context, f"{owner_type}:{owner_name}")
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=_no_time(error),
        expiry_timestamp_ms=_no_time(error),
        max_timestamp_ms=_no_time(error),
    )


def _create_error(request: CreateDelegationTokenRequest, context: Context, owner: str) -> ErrorCode:
    if _is_identified(context):
        if owner != context.principal and not context.allows(Operation.CREATE_TOKENS, ResourceType.USER, owner):
            return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        if any(renewer.principal_type != _USER for renewer in request.renewers):
            return ErrorCode.INVALID_PRINCIPAL_TYPE
    return _token_error(context)


def renew(_request: RenewDelegationTokenRequest, context: Context) -> RenewDelegationTokenResponse:
    error = _token_error(context)
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=_no_time(error))


def expire(_request: ExpireDelegationTokenRequest, context: Context) -> ExpireDelegationTokenResponse:
    error = _token_error(context)
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=_no_time(error))


def describe(_request: DescribeDelegationTokenRequest, context: Context) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=_token_error(context))
