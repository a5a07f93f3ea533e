"""Limits the rate of new connections by address (KIP-612): excess connections are closed after a delay.

A rejected connection does not count, so that an address that keeps trying is admitted as soon as the rate allows. The
delay is at most one window: after an immediate close the peer would only return sooner.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.quotas.quotas import MAX_MEASURED
from oncelog.core.quotas.rates import Rate, Windows

ANY_ADDRESS: Final = ""


class ConnectionRates:
    """Connections by address; only addresses with a limit are measured."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limits: dict[str, float] = {}
        self._rates: dict[str, Rate] = {}
        self.throttled = 0
        """Connections closed because of their rate."""

    def set_limit(self, address: str, limit: float | None) -> None:
        """Set the limit of an address, or of all others (``ANY_ADDRESS``); None removes it."""
        if limit is None:
            self._limits.pop(address, None)
        else:
            self._limits[address] = limit

    def admit(self, address: str, now_ms: int) -> int:
        """Count a connection. Returns 0, or the delay in ms before it has to be closed unread."""
        if not self._limits:
            return 0
        limit = self._limits.get(address, self._limits.get(ANY_ADDRESS))
        if limit is None:
            return 0
        rate = self._rate(address, now_ms)
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if throttle_ms:
            # A rejected connection does not count.
            rate.record(-1, now_ms)
            self.throttled += 1
        return min(throttle_ms, self._windows.size_ms)

    def _rate(self, address: str, now_ms: int) -> Rate:
        rates = self._rates
        rate = rates.pop(address, None)
        if rate is None:
            # The dict is in order of last use: drop the least recently used address.
            oldest = next(iter(rates), None)
            if oldest is not None and (len(rates) >= MAX_MEASURED or rates[oldest].is_idle(now_ms)):
                del rates[oldest]
            rate = Rate(self._windows)
        rates[address] = rate
        return rate
