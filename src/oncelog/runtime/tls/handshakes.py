"""TLS handshakes of a broker's listeners: their arithmetic runs on workers, so that nobody waits for it, and those that
do not come to their end are cut off.

Bounds: as many handshakes as ``oncelog.tls.handshakes.max`` are under way at a time; beyond, the one that has taken the
longest makes room, so that peers that never finish keep nobody out. Each has ``oncelog.tls.handshake.timeout.ms``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final, Protocol

from oncelog.runtime.workers import Work, Workers

_LOG: Final = logging.getLogger("oncelog.broker")
WORKERS: Final = 2
COMPLETED, FAILED, TIMED_OUT, DISPLACED = "completed", "failed", "timed_out", "displaced"
OUTCOMES: Final = (COMPLETED, FAILED, TIMED_OUT, DISPLACED)


class Handshaking(Protocol):
    """A connection in its handshake."""

    @property
    def peer(self) -> str:
        """The peer's ``host:port``, for messages."""

    def abort(self) -> None:
        """Close at once."""


class Handshakes:
    """Bounds the handshakes under way and hands their arithmetic to workers. Used on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, timeout_s: float, most: int) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._most = most
        self._since_s: dict[Handshaking, float] = {}
        """Starts of the handshakes under way, in their order."""
        self._workers: Workers | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))

    @property
    def under_way(self) -> int:
        """Handshakes that have begun and not ended."""
        return len(self._since_s)

    def begin(self, connection: Handshaking) -> None:
        """A connection was accepted."""
        if len(self._since_s) >= self._most:
            self._cut(next(iter(self._since_s)), DISPLACED, "others wait for its place")
        self._since_s[connection] = self._loop.time()
        if self._alarm is None:
            self._alarm = self._loop.call_later(self._timeout_s, self._time_out)

    def end(self, connection: Handshaking, outcome: str) -> None:
        """A handshake has ended, or its connection has; does nothing if that was known."""
        if self._since_s.pop(connection, None) is not None:
            self.outcomes[outcome] += 1

    def step(self, work: Work) -> None:
        """Run a step of a handshake on a worker."""
        if self._workers is None:
            self._workers = Workers(self._loop, WORKERS, "tls")
        self._workers.submit(work)

    def close(self) -> None:
        """Cut off what is under way, and stop."""
        for connection in list(self._since_s):
            connection.abort()
        self._since_s.clear()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._workers is not None:
            self._workers.stop()
            self._workers = None

    def _time_out(self) -> None:
        self._alarm = None
        now_s = self._loop.time()
        while self._since_s:
            oldest, since_s = next(iter(self._since_s.items()))
            left_s = since_s + self._timeout_s - now_s
            if left_s > 0:
                self._alarm = self._loop.call_later(left_s, self._time_out)
                return
            self._cut(oldest, TIMED_OUT, f"not done within {self._timeout_s:g} s")

    def _cut(self, connection: Handshaking, outcome: str, reason: str) -> None:
        self.end(connection, outcome)
        _LOG.info("closing connection from %s: TLS handshake, %s", connection.peer, reason)
        connection.abort()
