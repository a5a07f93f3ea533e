"""Brokers behind proxies that cut every stream into small pieces with pauses between, in both directions.

The proxies listen at the addresses of the brokers and stand in the brokers' own processes: they start, freeze and die
with them, and clients, other brokers and tools need not know of them. With TLS, plain listeners speak it to their
proxies: clients stay as they are, and the broker reads encrypted pieces.

The switch is ``ONCELOG_TEST_NETWORK``, for the interop tests and every process that they start:

    ONCELOG_TEST_NETWORK=cut:7 python -m pytest tests/interop
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from oncelog.base.security import Endpoint
from oncelog.node.listeners.broker_settings import Address
from oncelog.runtime import server
from oncelog.runtime.connections.acceptors import Acceptors, cannot_listen
from tests.peers.network_proxy import Cuts, NetworkConditions, Proxy
from tests.peers.process import free_ports

VARIABLE: Final = "ONCELOG_TEST_NETWORK"
_ACCEPTORS: Final = Acceptors.__name__
_GRACE_S: Final = 5.0
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class CutNetwork:
    """The network around brokers. ``with_tls``: plain listeners speak TLS to their proxies."""

    seed: int
    with_tls: bool = False

    @classmethod
    def parse(cls, text: str) -> CutNetwork:
        """``cut`` or ``cut-tls``, and a seed behind a colon. Raises ValueError."""
        kind, _, seed = text.partition(":")
        if kind not in ("cut", "cut-tls"):
            raise ValueError(f"{VARIABLE} is cut or cut-tls, with a seed behind a colon, not {text}")
        return cls(int(seed or "1"), kind == "cut-tls")

    def in_front_of(self, target: tuple[str, int], public: socket.socket, *, over_tls: bool = False) -> list[Proxy]:
        """The proxies between a bound socket, at which the first of them listens, and the target."""
        conditions = NetworkConditions(cuts=Cuts(self.seed))
        if not over_tls:
            return [Proxy(target, conditions=conditions, listening=public)]
        inner = Proxy(target, conditions=conditions)
        context = _authority().context()
        return [Proxy((_LOOPBACK, inner.port), conditions=conditions, tls=context, listening=public), inner]


def requested() -> CutNetwork | None:
    """The network that the environment asks for; None: the loopback as it is."""
    text = os.environ.get(VARIABLE)
    return None if not text else CutNetwork.parse(text)


def bound(host: str, port: int) -> socket.socket:
    """A socket that does not listen yet. Raises OSError."""
    family, kind, _, _, address = socket.getaddrinfo(host or _LOOPBACK, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


@contextmanager
def cut_network(network: CutNetwork) -> Iterator[None]:
    """Put each broker that starts in this process within the block behind proxies."""
    original = vars(server)[_ACCEPTORS]
    install(network)
    try:
        yield
    finally:
        setattr(server, _ACCEPTORS, original)


def install(network: CutNetwork) -> None:
    """Put each broker that starts in this process behind proxies."""
    setattr(server, _ACCEPTORS, type("CutAcceptors", (_CutAcceptors,), {"network": network}))


class _CutAcceptors(Acceptors):
    """Listens on sockets of its own, with proxies at the addresses of the settings."""

    network: CutNetwork

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._public: dict[str, socket.socket] = {}
        """Sockets at the addresses of the settings, by listener, until a proxy has them."""
        self._ports: dict[int, int] = {}
        """The public port by the port that is listened on."""
        self._proxies: list[Proxy] = []
        self._handshakes: list[Any] = []

    async def bind(self) -> None:
        """Bind both sockets of each listener."""
        endpoints = self._settings.listeners.endpoints
        public, self._given = dict(self._given), {}
        for endpoint in endpoints:
            name = endpoint.listener_name
            try:
                self._public[name] = public.get(name) or bound(endpoint.host, endpoint.port)
            except OSError as error:
                raise cannot_listen(f"{endpoint.host}:{endpoint.port}", error) from None
            self._given[name] = bound(_LOOPBACK, 0)
        await super().bind()
        for endpoint in endpoints:
            name = endpoint.listener_name
            host, port = self._public[name].getsockname()[:2]
            self._ports[self.addresses[name][1]] = port
            self.addresses[name] = (endpoint.host or host, port)

    def listen(self) -> None:
        """Let clients connect, through the proxies."""
        super().listen()
        private = {public: port for port, public in self._ports.items()}
        for endpoint in self._settings.listeners.endpoints:
            public = self._public.pop(endpoint.listener_name)
            target = (_LOOPBACK, private[public.getsockname()[1]])
            over_tls = self.network.with_tls and not endpoint.protocol.has_tls
            self._proxies += self.network.in_front_of(target, public, over_tls=over_tls)

    def close(self) -> None:
        """Accept no more connections."""
        super().close()
        for item in self._public.values():
            item.close()
        self._public.clear()
        for proxy in self._proxies:
            proxy.refuse()

    def close_tls(self) -> None:
        """End the handshakes under way; the proxies end when all connections have."""
        super().close_tls()
        for handshake in self._handshakes:
            handshake.close()
        for proxy in self._proxies:
            threading.Thread(target=proxy.close, args=(_GRACE_S,), name="proxy-end", daemon=True).start()
        self._proxies.clear()

    def _advertised(self, endpoint: Endpoint) -> Callable[[str, int], Address]:
        told = super()._advertised(endpoint)
        return lambda host, port: told(host, self._ports.get(port, port))

    def _protocol_factory(self, endpoint: Endpoint) -> Callable[[], asyncio.BufferedProtocol]:
        plain = super()._protocol_factory(endpoint)
        if not self.network.with_tls or endpoint.protocol.has_tls:
            return plain
        from oncelog.runtime.tls.connection import BUFFER_SIZE, Above, TlsConnection
        from oncelog.runtime.tls.handshakes import Handshakes

        handshakes = Handshakes(asyncio.get_running_loop(), timeout_s=_GRACE_S * 6, most=1_000)
        self._handshakes.append(handshakes)
        buffer, credentials = memoryview(bytearray(BUFFER_SIZE)), _credentials()
        return lambda: TlsConnection(cast("Above", plain()), endpoint.protocol, credentials, handshakes, buffer)


@cache
def _authority() -> Any:
    from tests.certificates import Authority

    return Authority()


@cache
def _credentials() -> Any:
    from oncelog.base.security import SecurityProtocol
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.node.listeners.tls import tls_settings
    from oncelog.runtime.tls.credentials import Credentials

    config = BrokerConfig(_authority().listener())
    return Credentials("CUT", lambda: tls_settings(config, "CUT", SecurityProtocol.SSL))


class CutListeners:
    """Proxies in front of the listeners of a Java broker, where the environment asks for them."""

    def __init__(self) -> None:
        self._network = requested()
        self._proxies: list[Proxy] = []

    def put_before(self, properties: Path) -> Path:
        """Let the listeners that clients use go to other ports, with a proxy at the port of each."""
        if self._network is None:
            return properties
        lines = properties.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            key, _, listeners = line.partition("=")
            if key == "listeners":
                lines[number] = f"listeners={','.join(map(self._moved, listeners.split(',')))}"
        properties.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return properties

    def close(self) -> None:
        """End the proxies."""
        for proxy in self._proxies:
            proxy.close(_GRACE_S)
        self._proxies.clear()

    def _moved(self, listener: str) -> str:
        place, _, port = listener.rpartition(":")
        if self._network is None or place.startswith("CONTROLLER:"):
            return listener
        host = place.rpartition("/")[2]
        moved = free_ports(1)[0]
        self._proxies += self._network.in_front_of((host, moved), bound(host, int(port)))
        return f"{place}:{moved}"
