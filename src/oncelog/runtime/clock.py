"""Clocks and entropy of the real world, and the clock that a test moves by hand."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


class WallClock:
    """Milliseconds since the epoch, never going back: a clock set back must not undo time-outs already given. Nor may
    it stop them: until the clock has caught up, time goes on at half its speed."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._last_ns = 0
        self._read_ns = monotonic_ns()

    def now_ms(self) -> int:
        """See :class:`oncelog.ports.Clock`."""
        read_ns = self._monotonic_ns()
        slowly_ns = self._last_ns + (read_ns - self._read_ns) // 2
        self._read_ns = read_ns
        self._last_ns = max(self._wall_ns(), slowly_ns)
        return self._last_ns // 1_000_000


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
