"""Changes of a share group's offsets by administrators: what was seen before says nothing about what comes after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.sim.checkers.wire.exchange import Exchange
from oncelog.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest

# Answers that say that nothing was, or will be, changed.
_REFUSED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.NOT_COORDINATOR,
    }
)


class OffsetChanges:
    """``on_change`` is called with a group whose offsets have changed, or may have."""

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._requested: dict[str, int] = {}
        self._changed_at: dict[str, int] = {}
        # Groups whose offsets may change at any later time.
        self._unsure: set[str] = set()

    def are_possible(self, group: str) -> bool:
        """True if a change of the group's offsets was ever requested."""
        return group in self._requested

    def is_over(self, group: str, opened_at: int) -> bool:
        """True if no change has come since a session opened, nor can come."""
        if group not in self._requested:
            return True
        return not self._requested[group] and group not in self._unsure and opened_at > self._changed_at.get(group, 0)

    def requested(self, exchange: Exchange) -> None:
        for group in _groups_of(exchange.request):
            self._requested[group] = self._requested.get(group, 0) + 1

    def answered(self, exchange: Exchange, response: Any, index: int) -> None:
        for group, codes in _codes_in(exchange.request, response):
            self._requested[group] -= 1
            self._changed_at[group] = index
            if not codes <= {ErrorCode.NONE, *_REFUSED}:
                self._unsure.add(group)
            self._on_change(group)

    def lost(self, exchange: Exchange) -> None:
        for group in _groups_of(exchange.request):
            self._unsure.add(group)


def _groups_of(request: Any) -> list[str]:
    if isinstance(request, DeleteGroupsRequest):
        return list(request.groups_names)
    if isinstance(request, AlterShareGroupOffsetsRequest | DeleteShareGroupOffsetsRequest):
        return [request.group_id]
    return []


def _codes_in(request: Any, response: Any) -> list[tuple[str, set[int]]]:
    """The error codes of a response by group."""
    if isinstance(request, DeleteGroupsRequest):
        return [(result.group_id, {result.error_code}) for result in response.results]
    codes = {response.error_code}
    for topic in response.responses:
        codes |= {partition.error_code for partition in getattr(topic, "partitions", [topic])}
    return [(request.group_id, codes)]
