"""The real clock and entropy, and a clock that tests can move ahead."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

LONGEST_CATCHING_UP_NS: Final = 30 * 60 * 10**9
"""Lag behind the wall clock from which the clock jumps. At an hour, clients' timestamps would be refused as future ones
(``message.timestamp.after.max.ms``)."""


class WallClock:
    """Milliseconds since the epoch, for timestamps and time-outs alike; both survive a change of the wall clock.

    The clock advances with the monotonic clock. It catches up with a wall clock that was set forward at up to double
    speed, and waits for one set back at half speed: time-outs neither fire all at once, nor stop, nor are undone, and
    timestamps are soon right. If it is further behind than ``LONGEST_CATCHING_UP_NS`` (the machine slept) it jumps,
    because wrong timestamps then do more harm than early time-outs.
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._last_ns = wall_ns()
        self._read_ns = monotonic_ns()

    def now_ms(self) -> int:
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
    """A clock that tests move ahead, to reach time-outs and retention without waiting. Otherwise it runs with the wall
    clock, for real waits of clients (a fetch, a session's heartbeats).
    """

    def __init__(self) -> None:
        self._wall = WallClock()
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return self._wall.now_ms() + self._ahead_ms

    def move_to(self, now_ms: int) -> None:
        """Move ahead to ``now_ms``; never back."""
        self._ahead_ms += max(0, now_ms - self.now_ms())


class SystemEntropy:
    def token(self, size: int) -> bytes:
        return os.urandom(size)
