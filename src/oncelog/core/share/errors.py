"""Errors of the persister as a client of the share partition gets them."""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.core.share.model import Refusal

_CLIENT_CODES: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # Another broker has read the state since: it leads the partition now.
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
# Errors between brokers; their messages are not for clients.
_HIDDEN: Final = (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


class InvalidShareState(Exception):
    """The share coordinator's state contradicts itself."""


def client_error(code: ErrorCode, message: str) -> Refusal:
    """The answer to a request whose state could not be read or written."""
    if code in _HIDDEN:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "Unable to complete operation due to server error.")
    return Refusal(_CLIENT_CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR), message)
