"""Delegation tokens (KIP-48) of a broker that has none: the answers of Apache Kafka without
``delegation.token.secret.key``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.security import ANONYMOUS, SecurityProtocol
from oncelog.handlers.broker.context import Context

TOKEN_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "always, to a client that has said who it is",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "the client has neither logged in by SASL nor shown a certificate",
}


def is_identified(context: Context) -> bool:
    """True for a client that could be given tokens: one that the listener made say who it is."""
    if context.security_protocol is SecurityProtocol.SSL:
        return context.principal != ANONYMOUS
    return context.security_protocol.has_sasl


def token_error(context: Context) -> ErrorCode:
    """The answer to every question about tokens that is allowed to be asked."""
    if is_identified(context):
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def no_time(error: ErrorCode) -> int:
    """The times of a token that was not made: 0 where Apache Kafka's controller refuses, -1 where its broker does."""
    return 0 if error is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else -1
