"""Shared by the group handlers: asking the coordinator, and what a group may be asked for.

Not an API. Every group request is decided by the shard that coordinates its group; the handlers translate between
the wire's versions and the machine's values, and know which check Apache Kafka makes before it looks for the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId
from oncelog.base.units import INT16_MAX
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.handlers.broker.waits import Coordinate

if TYPE_CHECKING:
    from oncelog.core.groups.model import GroupDecision
    from oncelog.core.groups.shard import GroupShard

R = TypeVar("R")

COORDINATOR_ERRORS: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator's log did not take the records in time",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is reading its log; try again",
    ErrorCode.NOT_COORDINATOR: "another broker coordinates the group, or none does",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed for this group",
}
"""The error codes of every API that a group coordinator decides."""


def ask(
    group_id: str,
    decide: Callable[[GroupShard, int, int], GroupDecision],
    refused: Callable[[ErrorCode], R],
    *,
    ends_with_client: bool = False,
) -> Generator[Coordinate, R, R]:
    """The shard's reply; ``refused`` of the error for which it cannot decide now."""
    try:
        return (yield Coordinate(GroupId(group_id), decide, ends_with_client))
    except CoordinatorRefusal as refusal:
        return refused(refusal.error_code)


def fits_record(text: str) -> bool:
    """True if a string can be stored: the record schemas say a length in 16 bits."""
    return len(text) * 4 <= INT16_MAX or len(text.encode()) <= INT16_MAX
