"""Detects that the process was paused: stopped by a signal, swapped out, or asleep with its machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

# Clock checks per longest pause.
_CHECKS: Final = 3
# Linux's monotonic clock stops while the machine sleeps; CLOCK_BOOTTIME does not.
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock_ns() -> int:
    """Nanoseconds, including the time for which the machine slept, where the system has such a clock."""
    return time.clock_gettime_ns(_CLOCK)


class PauseWatch:
    """Checks the clock periodically, and calls ``on_pause`` with the milliseconds since the last check if these exceed
    ``longest_ms()``: the broker's registration may have ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        longest_ms: Callable[[], int],
        on_pause: Callable[[int], None],
        now_ns: Callable[[], int] = clock_ns,
    ) -> None:
        self._loop = loop
        self._now_ns = now_ns
        self._longest_ms = longest_ms
        self._on_pause = on_pause
        self._checked_ns = now_ns()
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._checked_ns = self._now_ns()
        self._handle = self._loop.call_later(self._interval_s(), self._check_again)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def check(self) -> None:
        # since ==>
        now_ns = self._now_ns()
        since_ns, self._checked_ns = now_ns - self._checked_ns, now_ns
        if since_ns > self._longest_ms() * 1_000_000:
            self._on_pause(since_ns // 1_000_000)

    def _check_again(self) -> None:
        self.check()
        self._handle = self._loop.call_later(self._interval_s(), self._check_again)

    def _interval_s(self) -> float:
        return self._longest_ms() / _CHECKS / 1_000
