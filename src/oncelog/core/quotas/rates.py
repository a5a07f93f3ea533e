"""A rate over samples, in Apache Kafka's arithmetic (``Rate`` over ``WindowedSum``), so that throttle times are equal.

A sample is complete one window after its start, and the next value begins another. There are ``samples`` windows, and
one more that overlaps their beginning. The rate is the sum divided by the time since the oldest sample began, at least
``samples - 1`` whole windows.
"""

from __future__ import annotations

import math
from array import array
from typing import Final, NamedTuple

from oncelog.base.units import INT32_MAX, SECOND_MS


class Windows(NamedTuple):
    """``quota.window.num`` and ``quota.window.size.seconds``."""

    samples: int = 11
    size_ms: int = SECOND_MS

    @property
    def span_ms(self) -> int:
        """All windows together: how long a recorded value counts."""
        return self.samples * self.size_ms


class Rate:
    """Values by time; ``measure`` returns the amount per second."""

    __slots__ = ("_current", "_last_ms", "_start_ms", "_values", "_windows", "last_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # One element per sample. Arrays, because a broker keeps thousands of rates: objects took three times as much
        # memory.
        self._values = array("d")
        self._start_ms = array("q")
        self._last_ms = array("q")
        self._current = 0
        self.last_ms = 0
        """Time of the newest value."""

    def record(self, value: float, now_ms: int) -> None:
        """Record a value; a negative one takes back an earlier one."""
        self.last_ms = now_ms
        if not self._values:
            self._reset(0, now_ms)
        elif now_ms - self._start_ms[self._current] >= self._windows.size_ms:
            self._current = (self._current + 1) % (self._windows.samples + 1)
            self._reset(self._current, now_ms)
        self._values[self._current] += value
        self._last_ms[self._current] = now_ms

    def measure(self, now_ms: int) -> float:
        window_ms = self.window_ms(now_ms)  # empties old samples
        return sum(self._values) / (window_ms / SECOND_MS)

    def window_ms(self, now_ms: int) -> int:
        self._purge(now_ms)
        size_ms, least = self._windows.size_ms, self._windows.samples - 1
        elapsed_ms = now_ms - min(self._start_ms, default=now_ms)
        whole = elapsed_ms // size_ms
        # A client's first second must not count as its whole time.
        if whole < least:
            elapsed_ms += (least - whole) * size_ms
        return max(elapsed_ms, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """The time until the rate is back at ``bound`` if nothing more is recorded; 0 unless it is above."""
        measured = self.measure(now_ms)
        if measured <= bound:
            return 0
        return rounded_ms((measured - bound) / bound * self.window_ms(now_ms))

    def is_idle(self, now_ms: int) -> bool:
        """True without a value for ``samples`` windows: the rate behaves like a new one."""
        return now_ms - self.last_ms >= self._windows.span_ms

    def _reset(self, index: int, now_ms: int) -> None:
        if index == len(self._values):
            self._values.append(0.0)
            self._start_ms.append(now_ms)
            self._last_ms.append(now_ms)
        else:
            self._values[index] = 0.0
            self._start_ms[index] = self._last_ms[index] = now_ms

    def _purge(self, now_ms: int) -> None:
        expire_ms = self._windows.span_ms
        for index, last_ms in enumerate(self._last_ms):
            # Too old to count.
            if now_ms - last_ms >= expire_ms:
                self._reset(index, now_ms)


class SimpleRate(Rate):
    """A rate over the time since its oldest sample began, at least one window (Kafka's ``SimpleRate``)."""

    __slots__ = ()

    def window_ms(self, now_ms: int) -> int:
        self._purge(now_ms)
        oldest_ms = min(self._start_ms, default=now_ms)
        return max(now_ms - oldest_ms, self._windows.size_ms)


MAX_THROTTLE_MS: Final = INT32_MAX


def rounded_ms(milliseconds: float) -> int:
    """Round milliseconds like Java, up to the maximum of a response; 0 for NaN."""
    if math.isnan(milliseconds):
        return 0
    return int(min(math.floor(min(milliseconds, 1e12) + 0.5), MAX_THROTTLE_MS))


class TokenBucket:
    """Credits accrue at the quota's rate, up to the capacity of all windows; it can be overdrawn (KIP-599).

    Unlike a rate over samples it recovers from a burst exactly as fast as the quota allows.
    """

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # Capped to the burst at the first use, when the bound is known.
        self._tokens = math.inf  # full
        self._updated_ms = 0

    def record(self, value: float, bound: float, now_ms: int) -> None:
        """Take ``value`` out; the bucket may become overdrawn."""
        tokens = self.measure(bound, now_ms)
        self._tokens = min(self._burst(bound), tokens - value)

    def measure(self, bound: float, now_ms: int) -> float:
        """The present credits; the quota is exhausted below zero."""
        elapsed_s = (now_ms - self._updated_ms) / SECOND_MS
        self._tokens = min(self._burst(bound), self._tokens + bound * elapsed_s)
        self._updated_ms = now_ms
        return self._tokens

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """The time until the bucket is not overdrawn."""
        tokens = self.measure(bound, now_ms)
        return rounded_ms(-tokens / bound * SECOND_MS) if tokens < 0 else 0

    def is_full(self, bound: float, now_ms: int) -> bool:
        """True if it behaves like a new one."""
        return self.measure(bound, now_ms) >= self._burst(bound)

    def _burst(self, bound: float) -> float:
        return self._windows.samples * (self._windows.size_ms / SECOND_MS) * bound
