"""The TLS handshakes of a broker's listeners: workers run their cryptography; their number and time are bounded.

Each has ``oncelog.tls.handshake.timeout.ms``, and at most ``oncelog.tls.handshakes.max`` are in progress. Above that:

1. Of the handshakes that wait for their peer, the oldest of the address that has most makes room for a new one.
2. A wait for a worker is not the peer's fault, and the oldest is next in turn. So these are limited to a quarter of
   all; above that, the newest of the address that has most is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from oncelog.listening.limited_lines import LimitedLines
from oncelog.listening.waiting import Waiting, source_of
from oncelog.runtime.workers import Work, Workers

_LOG: Final = logging.getLogger("oncelog.broker")
WORKERS: Final = 2
COMPLETED, FAILED, TIMED_OUT, DISPLACED = "completed", "failed", "timed_out", "displaced"
_QUEUED_SHARE: Final = 4
OUTCOMES: Final = (COMPLETED, FAILED, TIMED_OUT, DISPLACED)


class Handshaking(Protocol):
    @property
    def peer(self) -> str: ...

    def abort(self) -> None: ...


class Handshakes:
    def __init__(self, loop: asyncio.AbstractEventLoop, *, timeout_s: float, most: int) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._most = most
        # Handshakes in progress with their start times, in order.
        self._since_s: dict[Handshaking, float] = {}
        # Handshakes that wait for their peer.
        self._waiting: Waiting[Handshaking] = Waiting()
        # Handshakes whose first step waits for a worker.
        self._queued: Waiting[Handshaking] = Waiting()
        # Handshakes whose first step was queued.
        self._stepped: set[Handshaking] = set()
        self._displaced = LimitedLines(_LOG, logging.INFO)
        self._workers: Workers | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))

    @property
    def under_way(self) -> int:
        return len(self._since_s)

    def begin(self, connection: Handshaking) -> None:
        if len(self._since_s) >= self._most:
            waiting = self._waiting.next_to_displace()
            self._displace(next(iter(self._since_s)) if waiting is None else waiting)
        self._since_s[connection] = self._loop.time()
        self._waiting.add(connection, _source(connection))
        if self._alarm is None:
            self._alarm = self._loop.call_later(self._timeout_s, self._time_out)

    def end(self, connection: Handshaking, outcome: str) -> None:
        """A handshake or its connection has ended; no effect if it had ended before."""
        if self._since_s.pop(connection, None) is not None:
            self.outcomes[outcome] += 1
            self._waiting.discard(connection)
            self._queued.discard(connection)
            self._stepped.discard(connection)

    def step(self, connection: Handshaking, work: Work) -> None:
        """Run a step on a worker; closes a connection if too many wait for one."""
        if connection not in self._since_s:
            return
        self._waiting.discard(connection)
        if connection not in self._stepped:
            self._stepped.add(connection)
            self._queued.add(connection, _source(connection))
            if len(self._queued) > max(1, self._most // _QUEUED_SHARE):
                newest = self._queued.newest_of_most()
                assert newest is not None
                self._displace(newest)
                if newest is connection:
                    return
        if self._workers is None:
            self._workers = Workers(self._loop, WORKERS, "tls")

        def unless_ended() -> Callable[[], None]:
            if connection not in self._since_s:
                return lambda: None
            then = work()
            return lambda: self._stepped_once(connection, then)

        self._workers.submit(unless_ended)

    def _stepped_once(self, connection: Handshaking, then: Callable[[], None]) -> None:
        self._queued.discard(connection)
        if connection in self._since_s:
            self._waiting.add(connection, _source(connection))
        then()

    def close(self) -> None:
        for connection in list(self._since_s):
            self._since_s.pop(connection, None)
            connection.abort()
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
            remaining_s = since_s + self._timeout_s - now_s
            if remaining_s > 0:
                self._alarm = self._loop.call_later(remaining_s, self._time_out)
                return
            self.end(oldest, TIMED_OUT)
            _LOG.info("closing connection from %s: TLS handshake not done within %g s", oldest.peer, self._timeout_s)
            oldest.abort()

    def _displace(self, connection: Handshaking) -> None:
        self.end(connection, DISPLACED)
        self._displaced.log(f"closing connection from {connection.peer}: TLS handshake displaced by others")
        connection.abort()


def _source(connection: Handshaking) -> str:
    return source_of(connection.peer.rpartition(":")[0])
