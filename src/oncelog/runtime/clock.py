"""Clocks and entropy of the real world, and the clock that a test moves on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

LONGEST_CATCHING_UP_NS: Final = 30 * 60 * 10**9
"""How far time may be behind the wall clock. Records that clients stamp would be refused as from the future at an
hour (``message.timestamp.after.max.ms``)."""


class WallClock:
    """Milliseconds since the epoch, for timestamps and for time-outs, so neither may suffer when somebody sets the
    wall clock.

    Time goes on with the monotonic clock, and catches up with the wall clock at most at double its speed where that
    was set forward, waits for it at half its speed where it was set back: time-outs already given neither fire all at
    once, nor stop, nor are undone, and timestamps are soon right. Further behind than ``LONGEST_CATCHING_UP_NS``
    (a machine that slept) it jumps: wrong timestamps do more harm then than early time-outs."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._last_ns = wall_ns()
        self._read_ns = monotonic_ns()

    def now_ms(self) -> int:
        """See :class:`oncelog.ports.Clock`."""
        read_ns = self._monotonic_ns()
        elapsed_ns = read_ns - self._read_ns
        self._read_ns = read_ns
        behind_ns = self._wall_ns() - self._last_ns - elapsed_ns
        if behind_ns > LONGEST_CATCHING_UP_NS:
            self._last_ns += elapsed_ns + behind_ns
        else:
            self._last_ns += elapsed_ns + min(max(behind_ns, -(elapsed_ns // 2)), elapsed_ns)
        return self._last_ns // 1_000_000


class JumpingClock:
    """A clock that a test moves ahead: for time-outs and retention without waiting for them. In between it goes on as
    the wall clock does, so that what clients wait for in real time (a fetch, a session they keep alive) comes."""

    def __init__(self) -> None:
        self._wall = WallClock()
        self._ahead_ms = 0

    def now_ms(self) -> int:
        """See :class:`oncelog.ports.Clock`."""
        return self._wall.now_ms() + self._ahead_ms

    def move_to(self, now_ms: int) -> None:
        """Be at ``now_ms``; never back."""
        self._ahead_ms += max(0, now_ms - self.now_ms())


class SystemEntropy:
    """The operating system's randomness."""

    def token(self, size: int) -> bytes:
        """See :class:`oncelog.ports.Entropy`."""
        return os.urandom(size)
