"""How a process notices that it has stood still: stopped by a signal, swapped out, or with its machine asleep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from oncelog.ports import Clock

_LOOKS: Final = 6
"""Times that the clock is looked at in a session's time-out."""


class StandstillWatch:
    """Looks at the clock again and again, and calls ``stood_still`` when it was not looked at for half the time-out of
    the session: it may have ended, for what the tree heard last was before that."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, session_ms: int, stood_still: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._interval_s = session_ms / _LOOKS / 1000
        self._most_ms = session_ms // 2
        self._stood_still = stood_still
        self._looked_ms = clock.now_ms()
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look."""
        self.look(self._clock.now_ms())
        self._handle = self._loop.call_later(self._interval_s, self.start)

    def stop(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.cancel()

    def look(self, now_ms: int) -> None:
        """Called before each request, too: those that waited in the sockets come before the timer."""
        late_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if late_ms > self._most_ms:
            self._stood_still()

    def clock_jumped(self) -> None:
        """The clock was moved ahead, and the process has not stood still."""
        self._looked_ms = self._clock.now_ms()
