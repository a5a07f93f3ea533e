"""How a process notices that it has stood still: stopped by a signal, swapped out, or with its machine asleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_LOOKS: Final = 6
"""Times that the clock is looked at in a session's time-out."""
_LONGEST_SESSION_MS: Final = 40_000
"""ZooKeeper grants no longer ones unless it is told to (20 ``tickTime``)."""
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops its monotonic clock while the machine sleeps, and not this one."""


def clock_ns() -> int:
    """Nanoseconds, of which a machine that sleeps misses none where it has a clock for that."""
    return time.clock_gettime_ns(_CLOCK)


class PauseWatch:
    """Looks at the clock again and again, and calls ``stood_still`` with the milliseconds since the last time when
    these are more than half the time-out of the session: it may have ended, for what the tree heard last was before."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        session_ms: int,
        stood_still: Callable[[int], None],
        now_ns: Callable[[], int] = clock_ns,
    ) -> None:
        session_ms = min(session_ms, _LONGEST_SESSION_MS)
        self._loop = loop
        self._now_ns = now_ns
        self._interval_s = session_ms / _LOOKS / 1_000
        self._longest_ns = session_ms * 1_000_000 // 2
        self._stood_still = stood_still
        self._looked_ns = now_ns()
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._looked_ns = self._now_ns()
        self._handle = self._loop.call_later(self._interval_s, self._look_again)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def look(self) -> None:
        """Notice a standstill that has just ended. Called before each event: what was due meanwhile, and what waited in
        the sockets, comes in any order."""
        now_ns = self._now_ns()
        since_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        if since_ns > self._longest_ns:
            self._stood_still(since_ns // 1_000_000)

    def _look_again(self) -> None:
        self.look()
        self._handle = self._loop.call_later(self._interval_s, self._look_again)
