"""Limits of connections: how many there may be of a broker, a listener, an address, how quickly new ones may come, and
how much memory all may take.

Kafka's keys: ``max.connections`` and ``max.connection.creation.rate``, also for one listener;
``max.connections.per.ip`` with its overrides; and ``connections.max.idle.ms`` (negative: never). The limits may change
while the broker runs. Where there are several listeners, the one between brokers is protected: only its own limits hold
for it. Ours: ``oncelog.buffered.max.bytes`` for what unfinished requests and unsent responses may hold together,
``oncelog.connection.stalled.ms`` for how long a peer may leave one so. An address that connects more often than its
quota allows (KIP-612) is held unread for a moment and closed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final

from oncelog.listening.descriptors import limit
from oncelog.listening.limited_lines import LimitedLines
from oncelog.listening.waiting import Waiting, source_of
from oncelog.node.listeners.broker_settings import BrokerConfig, Listeners
from oncelog.runtime.effects.peer import Peer

_LOG: Final = logging.getLogger("oncelog.broker")
NO_LIMIT: Final = 2**31 - 1
_OVERRIDES: Final = "max.connections.per.ip.overrides"
_BURST_S: Final = 10
"""A rate is that of ten seconds, as by default in Apache Kafka: so many seconds' worth may come at once."""


def _pairs(text: str) -> list[tuple[str, int]]:
    """Hosts with their limits, as ``host:limit,…`` says."""
    pairs = (part.strip().rpartition(":") for part in text.split(",") if part.strip())
    return [(host.strip().strip("[]"), int(limit)) for host, _, limit in pairs]


class Rate:
    """Bounds how quickly connections are taken: those above the rate wait their turn."""

    def __init__(self) -> None:
        self._free_s = -math.inf
        """Time at which, at the rate, all that came so far would have been due."""

    def delay_s(self, rate: int, now_s: float) -> float:
        """Time for which a connection that comes now has to wait, at so many a second."""
        if rate >= NO_LIMIT:
            return 0.0
        interval_s = 1.0 / max(rate, 1)
        self._free_s = max(self._free_s, now_s - _BURST_S) + interval_s
        return max(0.0, self._free_s - now_s)


class ConnectionLimits:
    """Counts connections and says which are too many. ``config`` gives the present configuration."""

    def __init__(self, config: Callable[[], BrokerConfig], listeners: Listeners) -> None:
        self._config = config
        self._protected = listeners.inter_broker if len(listeners.endpoints) > 1 else None
        self._rates: dict[str | None, Rate] = {}
        self._overrides: Mapping[str, int] = {}
        self._overrides_text = ""

    def is_protected(self, listener: str) -> bool:
        """True for the listener between brokers, if it is not the only one."""
        return listener == self._protected

    def of_broker(self) -> int:
        """The maximum of connections."""
        return int(self._config().get("max.connections"))

    def of_listener(self, listener: str) -> int:
        """The maximum of connections by one listener."""
        return self._own(listener, "max.connections")

    def of_address(self, ip: str) -> int:
        """The maximum of connections from one address."""
        config = self._config()
        text = config.get(_OVERRIDES)
        if text != self._overrides_text:
            self._overrides_changed(text)
        return self._overrides.get(ip, int(config.get("max.connections.per.ip")))

    def resolve(self) -> None:
        """Ask for the addresses of names in ``max.connections.per.ip.overrides``; may take long."""
        self._overrides_text = text = self._config().get(_OVERRIDES)
        self._overrides = _limits_of(_pairs(text))

    def _overrides_changed(self, text: str) -> None:
        """Addresses count at once, names when a thread has asked for them: nobody waits meanwhile."""
        pairs = _pairs(text)
        self._overrides_text = text
        self._overrides = _limits_of((host, most) for host, most in pairs if _is_numeric(host))
        if not all(_is_numeric(host) for host, _ in pairs):
            threading.Thread(target=self._look_up, args=(text, pairs), name="oncelog-names", daemon=True).start()

    def _look_up(self, text: str, pairs: Sequence[tuple[str, int]]) -> None:
        found = _limits_of(pairs)
        if text == self._overrides_text:
            self._overrides = found

    def delay_s(self, listener: str, now_s: float) -> float:
        """Time for which a new connection of a listener has to wait."""
        key = "max.connection.creation.rate"
        delay_s = self._rate(listener).delay_s(self._own(listener, key), now_s)
        if self.is_protected(listener):
            return delay_s
        return max(delay_s, self._rate(None).delay_s(int(self._config().get(key)), now_s))

    def _own(self, listener: str, key: str) -> int:
        """A listener's own limit."""
        config = self._config()
        return int(config.of_listener(listener, key)) if config.is_set_for(listener, key) else NO_LIMIT

    def _rate(self, listener: str | None) -> Rate:
        return self._rates.setdefault(listener, Rate())


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _limits_of(pairs: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    """Limits by address; a host that has no address is reported and left out. Asks for names, so it may take long."""
    found: dict[str, int] = {}
    for host, most in pairs:
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            _LOG.warning("max.connections.per.ip.overrides: %s has no address: %s", host, error.strerror or error)
            continue
        for *_, address in addresses:
            found[str(address[0])] = most
    return found


_OVER_BOUND: Final = "held bytes"
_RESUME_SHARE: Final = 0.75
_SHORTEST_SWEEP_S: Final = 0.05


class ConnectionQuotas:
    """Counts connections and the bytes held for them, and enforces their limits."""

    def __init__(
        self, *, limits: ConnectionLimits, max_held_bytes: int, max_idle_s: float, max_stalled_s: float
    ) -> None:
        self._limits = limits
        self.address_delay_s: Callable[[str], float] = lambda _ip: 0.0
        """Time after which a new connection from an address is closed, because that one connects too often; 0: it is
        let in. Set by whoever keeps the rates of addresses."""
        self._max_held_bytes = max_held_bytes
        self._max_idle_s = max_idle_s if max_idle_s >= 0 else inf
        self._max_stalled_s = max_stalled_s
        self._by_ip: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._admitted: dict[Peer, tuple[str, str]] = {}
        """Address and listener by connection."""
        self._strangers: Waiting[Peer] = Waiting()
        """Connections that have not sent a whole request yet, or not logged in where they have to."""
        self._refusals = LimitedLines(_LOG, logging.WARNING)
        self._displaced = LimitedLines(_LOG, logging.WARNING)
        self._paused: dict[Peer, None] = {}
        self._favoured: Peer | None = None
        """Above the bound of held bytes, the one connection that still reads: else all might wait for each other."""
        self._timer: asyncio.TimerHandle | None = None
        self.held_bytes = 0
        self.refused = 0
        self.cut_off = 0

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._admitted)

    def admit(self, connection: Peer, ip: str, listener: str, now_s: float) -> float | None:
        """Count a new connection: the time for which it has to wait, or None if a limit refuses it."""
        limits = self._limits
        is_full = len(self._admitted) >= limits.of_broker()
        if is_full and limits.is_protected(listener):
            self._make_room(listener)
            is_full = False
        if (
            is_full
            or self._by_listener.get(listener, 0) >= limits.of_listener(listener)
            or self._by_ip.get(ip, 0) >= limits.of_address(ip)
        ):
            self.refused += 1
            self._refusals.log(f"refusing connection from {connection.peer}: too many connections")
            return None
        self._admitted[connection] = ip, listener
        self._by_ip[ip] += 1
        self._by_listener[listener] += 1
        self._strangers.add(connection, source_of(ip))
        return limits.delay_s(listener, now_s)

    def identified(self, connection: Peer) -> None:
        """Note that a connection has sent a whole request, and has logged in where it has to."""
        self._strangers.discard(connection)

    def count_refusal(self) -> None:
        """Count a connection that was closed before it was admitted."""
        self.refused += 1

    def make_room(self, listener: str) -> None:
        """Close a connection for a new one of ``listener``, for file descriptors run out: one that has not shown yet
        what it wants."""
        stranger = self._strangers.next_to_displace()
        if stranger is None:
            if self._limits.is_protected(listener):
                self._make_room(listener)
            return
        self._strangers.discard(stranger)
        self.cut_off += 1
        self._displaced.log(
            f"closing connection from {stranger.peer}, which has sent nothing: others need its file descriptor "
            f"(ulimit -n is {limit()}); raise the limit"
        )
        stranger.abort()

    def _make_room(self, protected: str) -> None:
        """Close the connection of another listener that was silent for the longest: brokers must reach each other."""
        others = [each for each, (_, listener) in self._admitted.items() if listener != protected]
        if others:
            self._cut(min(others, key=lambda each: each.last_active_s), "a broker needs its place")

    def leave(self, connection: Peer, held_bytes: int) -> None:
        """Forget a closed connection and the bytes held for it."""
        found = self._admitted.pop(connection, None)
        if found is None:
            return
        ip, listener = found
        self._by_listener[listener] -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]
        self._paused.pop(connection, None)
        self._strangers.discard(connection)
        self._change(connection, -held_bytes)

    def garbage(self, connection: Peer, reason: str) -> None:
        """Count and log a peer that is cut off because its bytes are no frame."""
        self.cut_off += 1
        _LOG.info("closing connection from %s: %s", connection.peer, reason)

    def account(self, connection: Peer, change_bytes: int) -> None:
        """Count ``change_bytes`` more held for a connection. Above the bound, connections that add to it are paused."""
        self._change(connection, change_bytes)
        if change_bytes > 0 and self.held_bytes > self._max_held_bytes and connection is not self._favoured:
            if self._favoured is None:
                self._favoured = connection
            else:
                connection.pause_reading(_OVER_BOUND)
                self._paused[connection] = None

    def _change(self, connection: Peer, change_bytes: int) -> None:
        self.held_bytes += change_bytes
        if change_bytes <= 0 and connection is self._favoured:
            self._favoured = None
        if not self._paused:
            return
        if self.held_bytes <= self._max_held_bytes * _RESUME_SHARE:
            paused, self._paused = self._paused, {}
            for each in paused:
                each.resume_reading(_OVER_BOUND)
        elif self._favoured is None:
            self._favoured = next(iter(self._paused))
            del self._paused[self._favoured]
            self._favoured.resume_reading(_OVER_BOUND)

    def start_sweeping(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cut off idle and stalled peers from time to time."""
        delay_s = max(_SHORTEST_SWEEP_S, min(10.0, self._max_idle_s / 2, self._max_stalled_s / 2))
        self._timer = loop.call_later(delay_s, self._sweep, loop)

    def stop_sweeping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = loop.time()
        for connection in list(self._admitted):
            stalled_s = connection.stalled_since_s()
            if stalled_s is not None and now_s - stalled_s > self._max_stalled_s:
                self._cut(connection, "stalled inside a request or before its responses")
            elif now_s - connection.last_active_s > self._max_idle_s:
                self._cut(connection, "idle for too long")
        self.start_sweeping(loop)

    def _cut(self, connection: Peer, reason: str) -> None:
        self.cut_off += 1
        _LOG.info("closing connection from %s: %s", connection.peer, reason)
        connection.abort()
