"""The settings of a consumer group, and the refusal of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.core.groups.consumer.assignors.spec import Assignment, GroupSpec

Assignor = Callable[[GroupSpec], Assignment]


class GroupLimits(NamedTuple):
    """The settings of one group."""

    assignors: Mapping[str, Assignor]
    """Assignors by name; the first is the default."""
    assignment_interval_ms: int = 1000
    max_size: int = 2**31 - 1
    regex_refresh_interval_ms: int = 600_000


class Refused(Exception):
    """A request that changes nothing: its error code and message."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
