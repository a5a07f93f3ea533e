"""Clocks and entropy of the real world, and the clock that a test moves by hand."""

from __future__ import annotations

import os
import time


class WallClock:
    """Milliseconds since the epoch, never going back: a clock set back must not undo time-outs already given."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        """See :class:`oncelog.ports.Clock`."""
        now = time.time_ns() // 1_000_000
        if now > self._last_ms:
            self._last_ms = now
        return self._last_ms


class ManualClock:
    """Time that stands still until :meth:`advance`; for tests of retention and time-outs."""

    def __init__(self, start_ms: int) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """See :class:`oncelog.ports.Clock`."""
        return self._now_ms

    def move_to(self, now_ms: int) -> None:
        """Set the time; never back."""
        self._now_ms = max(self._now_ms, now_ms)


class SystemEntropy:
    """The operating system's randomness."""

    def token(self, size: int) -> bytes:
        """See :class:`oncelog.ports.Entropy`."""
        return os.urandom(size)
