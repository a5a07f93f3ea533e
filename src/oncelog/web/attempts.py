"""Rate limit for wrong passwords and tokens, per source: an address, or the user of a session."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

# After `FREE` failures the attempts of a source run one at a time, `PAUSE_S` apart, correct ones included. At most
# `MAX_WAITING` of one source and `MAX_WAITING_TOTAL` in all wait; others are rejected unread. One failure is
# forgotten every `FORGOTTEN_S`. Strangers behind a user's address or proxy slow down only new logins.

FREE: Final = 5
PAUSE_S: Final = 1.0
MAX_WAITING: Final = 8
MAX_WAITING_TOTAL: Final = 64
FORGOTTEN_S: Final = 10.0  # After this time one failure is forgotten.
MAX_FAILURES: Final = 30
MAX_SOURCES: Final = 4096


class _Source:
    __slots__ = ("at_s", "failures", "free_s", "waiting")

    def __init__(self, now_s: float) -> None:
        self.failures = 0.0
        self.at_s = now_s  # The time at which ``failures`` was last updated.
        self.free_s = now_s  # The next attempt may run at this time.
        self.waiting = 0


class Attempts:
    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._now_s = now_s
        self._sleep = sleep
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self._waiting = 0

    async def wait_turn(self, source: str) -> bool:
        """Wait until an attempt may run; False if too many attempts wait already."""
        state = self._sources.get(source)
        if state is None or self._failures_of(state) <= FREE - 1:
            return True
        if state.waiting >= MAX_WAITING or self._waiting >= MAX_WAITING_TOTAL:
            return False
        now_s = self._now_s()
        turn_s = max(now_s, state.free_s)
        state.free_s = turn_s + PAUSE_S
        state.waiting += 1
        self._waiting += 1
        try:
            await self._sleep(turn_s - now_s)
        finally:
            state.waiting -= 1
            self._waiting -= 1
        return True

    def count_failure(self, source: str) -> None:
        state = self._sources.get(source)
        if state is None:
            state = self._sources[source] = _Source(self._now_s())
            if len(self._sources) > MAX_SOURCES:
                self._sources.popitem(last=False)
        # The least recently failing source is the first to be evicted.
        self._sources.move_to_end(source)
        state.failures = min(self._failures_of(state) + 1, MAX_FAILURES)

    def _failures_of(self, state: _Source) -> float:
        now_s = self._now_s()
        state.failures = max(0.0, state.failures - (now_s - state.at_s) / FORGOTTEN_S)
        state.at_s = now_s
        return state.failures
