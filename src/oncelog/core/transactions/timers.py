"""Deadlines of one shard: a heap with lazy deletion.

A key has at most one deadline and at most one live heap entry, so that a transaction that ends and another that begins
cost one dictionary write each. Moving a deadline later leaves the entry where it is; when it surfaces it is pushed
again. Equal deadlines fire in the order in which they were scheduled.
"""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import NamedTuple


class TimerKind(IntEnum):
    """What happens when a deadline passes."""

    TIME_OUT = 0
    PARKED = 1
    COMPLETE = 2
    EXPIRY = 3


class TimerKey(NamedTuple):
    """Names one deadline: TIME_OUT and COMPLETE by transactional id, PARKED by token."""

    kind: TimerKind
    transactional_id: str = ""
    token: int = 0


class Timers:
    """The deadlines, in milliseconds of the caller's clock."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._surfaces: dict[TimerKey, int] = {}
        """The earliest heap entry of each key: where the key is looked at next."""
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._pushed = 0

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        """Set the deadline of ``key``, replacing the one it has."""
        self._deadlines[key] = deadline_ms
        surfaces_at = self._surfaces.get(key)
        if surfaces_at is None or surfaces_at > deadline_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: TimerKey) -> None:
        """Forget the deadline of ``key``, if it has one."""
        self._deadlines.pop(key, None)

    def deadline_of(self, key: TimerKey) -> int | None:
        """The deadline of ``key``, or None."""
        return self._deadlines.get(key)

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline of all, or None."""
        while self._heap:
            surfaces_at, _, key = self._heap[0]
            if self._deadlines.get(key) == surfaces_at:
                return surfaces_at
            self._resurface()
        return None

    def pop_due(self, now_ms: int) -> TimerKey | None:
        """Remove and return the earliest key whose deadline is at or before ``now_ms``, or None."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._deadlines[key], self._surfaces[key]
        return key

    def _push(self, key: TimerKey, deadline_ms: int) -> None:
        self._surfaces[key] = deadline_ms
        self._pushed += 1
        heapq.heappush(self._heap, (deadline_ms, self._pushed, key))

    def _resurface(self) -> None:
        """Take the top entry, which is stale, away; push its key again where the key's deadline is now."""
        surfaces_at, _, key = heapq.heappop(self._heap)
        if self._surfaces.get(key) != surfaces_at:
            return
        deadline_ms = self._deadlines.get(key)
        if deadline_ms is None:
            del self._surfaces[key]
        else:
            self._push(key, deadline_ms)
