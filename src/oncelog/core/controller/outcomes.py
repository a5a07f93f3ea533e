"""Outcomes of a decision, one for each item of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.tree import Operation

T = TypeVar("T")


class Refusal(NamedTuple):
    error_code: ErrorCode
    message: str | None = None


class Refused(Exception):
    """Raised inside a decision to refuse the current item."""

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        self.refusal = Refusal(error_code, message)
        super().__init__(message or error_code.name)


class Decided(NamedTuple, Generic[T]):
    """Operations to commit, all or none, and the items' outcomes in request order."""

    operations: Sequence[Operation]
    outcomes: Sequence[T | Refusal]
