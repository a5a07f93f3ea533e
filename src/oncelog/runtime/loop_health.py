"""Measures how late the event loop is, which shows whether a broker on one loop is overloaded."""

from __future__ import annotations

import asyncio
from typing import Final

INTERVAL_S: Final = 0.5


class LoopHealth:
    """Measures the lateness of a timer every half second."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        self.last_delay_s = 0.0
        self.worst_delay_s = 0.0
        self.samples = 0

    def start(self) -> None:
        due = self._loop.time() + INTERVAL_S
        self._handle = self._loop.call_at(due, self._sample, due)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _sample(self, due: float) -> None:
        delay = max(0.0, self._loop.time() - due)
        self.last_delay_s = delay
        self.worst_delay_s = max(self.worst_delay_s, delay)
        self.samples += 1
        self.start()
