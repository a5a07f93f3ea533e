"""HTTP status of a client error: 404, 403 or 409 if the request caused it, 502 or 503 if the cluster did."""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.console.query import NotConfirmed

_NOT_THERE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    }
)
_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def status_of(error: ClientError) -> int:
    if isinstance(error, NotConfirmed):
        return 409
    if isinstance(error, BrokerRefused):
        if error.code in _NOT_THERE:
            return 404
        return 403 if error.code in _FORBIDDEN else 502
    return 503
