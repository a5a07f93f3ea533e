"""The rate at which one address may connect (KIP-612): above its limit a connection is closed, after a delay.

A refused connection is not counted, so that an address which keeps knocking is let in again as soon as the rate allows.
The delay before the close is at most one window: closed at once, the peer would only come back sooner.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.quotas.quotas import MAX_MEASURED
from oncelog.core.quotas.rates import Rate, Windows

ANY_ADDRESS: Final = ""


class ConnectionRates:
    """Connections by address; only addresses that a limit holds for are measured."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limits: dict[str, float] = {}
        self._rates: dict[str, Rate] = {}
        self.throttled = 0
        """Connections that were closed for their rate."""

    def set_limit(self, address: str, limit: float | None) -> None:
        """Set the limit of an address, or of all that have none (``ANY_ADDRESS``); None takes it away."""
        if limit is None:
            self._limits.pop(address, None)
        else:
            self._limits[address] = limit

    def admit(self, address: str, now_ms: int) -> int:
        """Count a connection; 0, or the time after which it is to be closed unread."""
        if not self._limits:
            return 0
        limit = self._limits.get(address, self._limits.get(ANY_ADDRESS))
        if limit is None:
            return 0
        rate = self._rate(address, now_ms)
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
            self.throttled += 1
        return min(throttle_ms, self._windows.size_ms)

    def _rate(self, address: str, now_ms: int) -> Rate:
        rates = self._rates
        rate = rates.pop(address, None)
        if rate is None:
            oldest = next(iter(rates), None)
            if oldest is not None and (len(rates) >= MAX_MEASURED or rates[oldest].is_idle(now_ms)):
                del rates[oldest]
            rate = Rate(self._windows)
        rates[address] = rate
        return rate
