"""The node's deadlines: a heap of callbacks that can be cancelled."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

_REBUILD_ABOVE: Final = 256
ALARMS_PER_SLICE: Final = 1000


class Alarm:
    """A callback due at ``at_ms``; None once it ran or was cancelled."""

    __slots__ = ("_order", "at_ms", "callback")

    def __init__(self, at_ms: int, order: int, callback: Callable[[int], None]) -> None:
        self.at_ms = at_ms
        self._order = order
        self.callback: Callable[[int], None] | None = callback

    def __lt__(self, other: Alarm) -> bool:
        return (self.at_ms, self._order) < (other.at_ms, other._order)


class Deadlines:
    """Callbacks by time; those of the same millisecond run in the order they were set."""

    def __init__(self) -> None:
        self._heap: list[Alarm] = []
        self._set = 0
        self._cancelled = 0
        self.now_ms = 0
        """Time of the event being handled."""

    def at(self, at_ms: int, callback: Callable[[int], None]) -> Alarm:
        self._set += 1
        alarm = Alarm(at_ms, self._set, callback)
        heapq.heappush(self._heap, alarm)
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        if alarm.callback is None:
            return
        alarm.callback = None
        self._cancelled += 1
        # Most alarms are cancelled: a produce is acknowledged long before its time-out. So the heap is rebuilt when
        # cancelled ones are the majority.
        if self._cancelled > _REBUILD_ABOVE and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry.callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_ms(self) -> int | None:
        heap = self._heap
        while heap and heap[0].callback is None:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0].at_ms if heap else None

    def run_due(self, now_ms: int) -> None:
        """Call the first thousand due callbacks; the rest stay due."""
        # One request may set thirty thousand alarms for the same time, and other events must have their turn.
        for _ in range(ALARMS_PER_SLICE):
            if (at_ms := self.next_ms()) is None or at_ms > now_ms:
                break
            alarm = heapq.heappop(self._heap)
            callback = alarm.callback
            alarm.callback = None
            if callback is not None:
                callback(now_ms)
