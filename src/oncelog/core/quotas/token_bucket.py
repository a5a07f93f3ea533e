"""A token bucket (KIP-599): credits accrue at the quota's rate, up to the capacity of all windows; it can be overdrawn.

Unlike a rate over samples it recovers from a burst exactly as fast as the quota allows.
"""

from __future__ import annotations

import math

from oncelog.base.units import SECOND_MS
from oncelog.core.quotas.rates import Windows, rounded_ms


class TokenBucket:
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
