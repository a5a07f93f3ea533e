"""Errors for older clients, instead of ones they do not know (KIP-588): Apache Kafka's versions, per request.

A fenced producer is PRODUCER_FENCED, fatal to it. Clients of before 2.7 know only INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode

FENCED_SINCE_INIT_VERSION: Final = 4
FENCED_SINCE_ADD_VERSION: Final = 2
FENCED_SINCE_END_VERSION: Final = 2


def init_error(error_code: ErrorCode, version: int) -> ErrorCode:
    """The error code for InitProducerId in a version."""
    return _known(error_code, version, FENCED_SINCE_INIT_VERSION)


def add_error(error_code: ErrorCode, version: int) -> ErrorCode:
    """The error code for AddPartitionsToTxn and AddOffsetsToTxn in a version."""
    return _known(error_code, version, FENCED_SINCE_ADD_VERSION)


def end_error(error_code: ErrorCode, version: int) -> ErrorCode:
    """The error code for EndTxn in a version."""
    return _known(error_code, version, FENCED_SINCE_END_VERSION)


def _known(error_code: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    if error_code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code
