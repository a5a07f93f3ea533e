"""Deadlines by key: a heap with lazy deletion, so that moving a deadline costs one dictionary write.

A key has at most one deadline. When the old heap entry of a moved one surfaces, it is pushed again at the key's current
deadline. Equal deadlines fire in the order in which they were scheduled.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """Deadlines in milliseconds of the caller's clock."""

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._surfaces: dict[K, int] = {}
        """The earliest heap entry of each key; when it surfaces, the key's deadline is checked."""
        self._heap: list[tuple[int, int, K]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def schedule(self, key: K, deadline_ms: int) -> None:
        """Set the deadline of ``key``, replacing any earlier one."""
        self._deadlines[key] = deadline_ms
        surfaces_at = self._surfaces.get(key)
        if surfaces_at is None or surfaces_at > deadline_ms:
            # A later deadline needs no entry: the earlier one surfaces first and is pushed again.
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def deadline_of(self, key: K) -> int | None:
        return self._deadlines.get(key)

    def next_deadline_ms(self) -> int | None:
        while self._heap:
            surfaces_at, _, key = self._heap[0]
            if self._deadlines.get(key) == surfaces_at:
                return surfaces_at
            self._resurface()
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the earliest key whose deadline is at or before ``now_ms``."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._deadlines[key], self._surfaces[key]
        return key

    def _push(self, key: K, deadline_ms: int) -> None:
        self._surfaces[key] = deadline_ms
        self._pushed += 1
        heapq.heappush(self._heap, (deadline_ms, self._pushed, key))

    def _resurface(self) -> None:
        surfaces_at, _, key = heapq.heappop(self._heap)
        # An earlier entry of the key has been pushed since.
        if self._surfaces.get(key) != surfaces_at:
            return
        deadline_ms = self._deadlines.get(key)
        if deadline_ms is None:
            del self._surfaces[key]
        else:
            self._push(key, deadline_ms)
