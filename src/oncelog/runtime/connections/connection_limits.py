"""How many connections there may be and how quickly new ones may come: of a broker, a listener, an address.

Kafka's keys: ``max.connections`` and ``max.connection.creation.rate``, also for one listener; and
``max.connections.per.ip`` with its overrides. All of them may change while the broker runs. Where there are several
listeners, the one between brokers is protected: only its own limits hold for it.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from oncelog.node.listeners.broker_settings import BrokerConfig, Listeners

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
        self._overrides = _limits_of((host, limit) for host, limit in pairs if _is_numeric(host))
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
    for host, limit in pairs:
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            _LOG.warning("max.connections.per.ip.overrides: %s has no address: %s", host, error.strerror or error)
            continue
        for *_, address in addresses:
            found[str(address[0])] = limit
    return found
