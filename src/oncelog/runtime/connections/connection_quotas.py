"""Limits on connections: their number per broker, listener and address, their rate, and the memory held for them.

Kafka's keys, which may change while the broker runs: ``max.connections`` and ``max.connection.creation.rate``, also per
listener; ``max.connections.per.ip`` with its overrides; ``connections.max.idle.ms`` (negative: unlimited). With several
listeners only its own limits apply to the one between brokers. Own keys: ``oncelog.buffered.max.bytes`` bounds
unfinished requests and unsent responses together, ``oncelog.connection.stalled.ms`` the time for which a peer may leave
one so. A connection from an address over its rate quota (KIP-612) is held unread for a moment, then closed.
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
# Rates are measured over this time, as in Apache Kafka by default: a burst may use all of it at once.
_BURST_S: Final = 10


def _pairs(text: str) -> list[tuple[str, int]]:
    pairs = (part.strip().rpartition(":") for part in text.split(",") if part.strip())
    return [(host.strip().strip("[]"), int(limit)) for host, _, limit in pairs]


class Rate:
    def __init__(self) -> None:
        # Time at which the connections so far would have been due at the rate.
        self._free_s = -math.inf

    def delay_s(self, rate: int, now_s: float) -> float:
        if rate >= NO_LIMIT:
            return 0.0
        interval_s = 1.0 / max(rate, 1)
        self._free_s = max(self._free_s, now_s - _BURST_S) + interval_s
        return max(0.0, self._free_s - now_s)


class ConnectionLimits:
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
        return int(self._config().get("max.connections"))

    def of_listener(self, listener: str) -> int:
        return self._own(listener, "max.connections")

    def of_address(self, ip: str) -> int:
        config = self._config()
        text = config.get(_OVERRIDES)
        if text != self._overrides_text:
            self._overrides_changed(text)
        return self._overrides.get(ip, int(config.get("max.connections.per.ip")))

    def resolve(self) -> None:
        """Resolve the host names in ``max.connections.per.ip.overrides``; may block for long."""
        self._overrides_text = text = self._config().get(_OVERRIDES)
        self._overrides = _limits_of(_pairs(text))

    def _overrides_changed(self, text: str) -> None:
        pairs = _pairs(text)
        self._overrides_text = text
        # Addresses apply at once, names when a thread has resolved them, so that accepting never blocks.
        self._overrides = _limits_of((host, max_connections) for host, max_connections in pairs if _is_numeric(host))
        if not all(_is_numeric(host) for host, _ in pairs):
            threading.Thread(target=self._resolve_names, args=(text, pairs), name="oncelog-names", daemon=True).start()

    def _resolve_names(self, text: str, pairs: Sequence[tuple[str, int]]) -> None:
        limits = _limits_of(pairs)
        if text == self._overrides_text:
            self._overrides = limits

    def delay_s(self, listener: str, now_s: float) -> float:
        key = "max.connection.creation.rate"
        delay_s = self._rate(listener).delay_s(self._own(listener, key), now_s)
        if self.is_protected(listener):
            return delay_s
        return max(delay_s, self._rate(None).delay_s(int(self._config().get(key)), now_s))

    def _own(self, listener: str, key: str) -> int:
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
    """Limits by address; a host without an address is reported and skipped. May block for long."""
    limits: dict[str, int] = {}
    for host, max_connections in pairs:
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            _LOG.warning("max.connections.per.ip.overrides: %s has no address: %s", host, error.strerror or error)
            continue
        for *_, address in addresses:
            limits[str(address[0])] = max_connections
    return limits


_OVER_BOUND: Final = "held bytes"
_RESUME_SHARE: Final = 0.75
_SHORTEST_SWEEP_S: Final = 0.05


class ConnectionQuotas:
    def __init__(
        self, *, limits: ConnectionLimits, max_held_bytes: int, max_idle_s: float, max_stalled_s: float
    ) -> None:
        self._limits = limits
        self.address_delay_s: Callable[[str], float] = lambda _ip: 0.0
        """Time after which a new connection from an address over its rate is closed; 0: it is admitted. Set by the
        server."""
        self._max_held_bytes = max_held_bytes
        self._max_idle_s = max_idle_s if max_idle_s >= 0 else inf
        self._max_stalled_s = max_stalled_s
        self._by_ip: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        # Address and listener by connection.
        self._admitted: dict[Peer, tuple[str, str]] = {}
        # Connections without a complete request or a required login so far.
        self._unidentified: Waiting[Peer] = Waiting()
        self._refusals = LimitedLines(_LOG, logging.WARNING)
        self._displaced = LimitedLines(_LOG, logging.WARNING)
        self._paused: dict[Peer, None] = {}
        # Above the bound of held bytes, the only connection that still reads; otherwise all might wait for each other.
        self._favoured: Peer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.held_bytes = 0
        self.refused = 0
        self.cut_off = 0

    @property
    def connections(self) -> int:
        return len(self._admitted)

    def admit(self, connection: Peer, ip: str, listener: str, now_s: float) -> float | None:
        """Count a new connection; returns its delay, or None if a limit refuses it."""
        limits = self._limits
        # Brokers must get in even when clients have taken all places.
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
        self._unidentified.add(connection, source_of(ip))
        return limits.delay_s(listener, now_s)

    def identified(self, connection: Peer) -> None:
        """The connection has sent a complete request, and has logged in if required."""
        self._unidentified.discard(connection)

    def count_refusal(self) -> None:
        self.refused += 1

    def make_room(self, listener: str) -> None:
        """Free a file descriptor for a new connection of ``listener`` by closing one that is still unidentified."""
        connection = self._unidentified.next_to_displace()
        if connection is None:
            if self._limits.is_protected(listener):
                self._make_room(listener)
            return
        self._unidentified.discard(connection)
        self.cut_off += 1
        self._displaced.log(
            f"closing connection from {connection.peer}, which has sent no request: others need its file descriptor "
            f"(ulimit -n is {limit()}); raise the limit"
        )
        connection.abort()

    def _make_room(self, protected: str) -> None:
        """Close the longest idle connection of another listener: brokers must be able to reach each other."""
        others = [connection for connection, (_, listener) in self._admitted.items() if listener != protected]
        if others:
            self._cut(min(others, key=lambda connection: connection.last_active_s), "a broker needs its place")

    def leave(self, connection: Peer, held_bytes: int) -> None:
        admission = self._admitted.pop(connection, None)
        if admission is None:
            return
        ip, listener = admission
        self._by_listener[listener] -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]
        self._paused.pop(connection, None)
        self._unidentified.discard(connection)
        self._change(connection, -held_bytes)

    def garbage(self, connection: Peer, reason: str) -> None:
        """Count and log a peer that is cut off for a malformed frame."""
        self.cut_off += 1
        _LOG.info("closing connection from %s: %s", connection.peer, reason)

    def account(self, connection: Peer, change_bytes: int) -> None:
        """Count ``change_bytes`` held for a connection. Above the bound, connections that add to it are paused."""
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
        # Resuming somewhat below the bound avoids pausing again at once.
        if self.held_bytes <= self._max_held_bytes * _RESUME_SHARE:
            paused, self._paused = self._paused, {}
            for paused_connection in paused:
                paused_connection.resume_reading(_OVER_BOUND)
        elif self._favoured is None:
            self._favoured = next(iter(self._paused))
            del self._paused[self._favoured]
            self._favoured.resume_reading(_OVER_BOUND)

    def start_sweeping(self, loop: asyncio.AbstractEventLoop) -> None:
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
                self._cut(connection, "stalled in the middle of a request or of its responses")
            elif now_s - connection.last_active_s > self._max_idle_s:
                self._cut(connection, "idle for too long")
        self.start_sweeping(loop)

    def _cut(self, connection: Peer, reason: str) -> None:
        self.cut_off += 1
        _LOG.info("closing connection from %s: %s", connection.peer, reason)
        connection.abort()
