"""The listening sockets of a broker, one for each listener, and the connections that come by them.

A socket is bound first, so that its port is known, listens when the broker's logs are open, and is served when its node
has started: see ``runtime.server``.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from oncelog.base.security import Endpoint
from oncelog.node.assembly import StartRefused
from oncelog.node.settings import Address, BrokerConfig, Settings
from oncelog.runtime.connections.client_connection import RECEIVE_BUFFER_SIZE, ClientConnection, Listener
from oncelog.runtime.connections.connection_quotas import ConnectionQuotas
from oncelog.runtime.effects.effect_runner import EffectRunner
from oncelog.wire.framing import request_limit, response_limit

if TYPE_CHECKING:
    from oncelog.runtime.tls.listeners import ListenersTls

DEFAULT_BACKLOG: Final = 1024
"""Connections that wait until they are accepted, where ``socket.listen.backlog.size`` does not say it: one loop does
what many threads do in Apache Kafka, and accepts in bursts."""
_BACKLOG: Final = "socket.listen.backlog.size"
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


def cannot_listen(address: str, error: OSError) -> StartRefused:
    """The refusal of a start whose ``address`` cannot be listened on, by the system's own reason: asyncio's repeats the
    address."""
    known = error.errno is not None and error.errno in errno.errorcode and not isinstance(error, socket.gaierror)
    reason = os.strerror(error.errno or 0) if known else error.strerror or str(error)
    what = "; stop what listens there, or choose another port" if error.errno == errno.EADDRINUSE else ""
    return StartRefused(f"cannot listen on {address}: {reason.lower()}{what}")


class Acceptors:
    """Binds, listens and accepts. ``bound`` has sockets to listen on in place of the addresses of the settings, by
    listener."""

    def __init__(self, settings: Settings, quotas: ConnectionQuotas, bound: Mapping[str, socket.socket]) -> None:
        self._settings = settings
        self._quotas = quotas
        self._given = bound
        self._servers: dict[str, asyncio.Server] = {}
        self._effect_runner: EffectRunner | None = None
        self._ids = itertools.count(1)
        self.tls: ListenersTls | None = None
        """None: no listener has TLS, and no start has to wait for what it needs."""
        self.addresses: dict[str, Address] = {}
        """The address at which each listener listens."""

    async def bind(self) -> None:
        """Bind all sockets. Raises StartRefused; then those that were bound are to be closed."""
        loop = asyncio.get_running_loop()
        if any(endpoint.protocol.has_tls for endpoint in self._settings.listeners.endpoints):
            from oncelog.runtime.tls.listeners import ListenersTls

            self.tls = ListenersTls(self._settings)
            self.tls.prepare()
        for endpoint in self._settings.listeners.endpoints:
            given = self._given.get(endpoint.listener_name)
            where = {"host": endpoint.host or None, "port": endpoint.port} if given is None else {"sock": given}
            make = self._protocol_factory(endpoint)
            try:
                server = await loop.create_server(make, **where, backlog=self._backlog, start_serving=False)
            except OSError as error:
                raise cannot_listen(f"{endpoint.host}:{endpoint.port}", error) from None
            self._servers[endpoint.listener_name] = server
            host, port = server.sockets[0].getsockname()[:2]
            self.addresses[endpoint.listener_name] = (endpoint.host or host, port)

    def _protocol_factory(self, endpoint: Endpoint) -> Callable[[], asyncio.BufferedProtocol]:
        config = self._settings.config
        limit = request_limit(int(config.get("socket.request.max.bytes")), int(config.get("oncelog.request.max.bytes")))
        login_limit = response_limit(int(config.get("sasl.server.max.receive.size")))  # a token has no API key
        receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_SIZE))
        listener = Listener(endpoint.listener_name, endpoint.protocol, self._advertised(endpoint), limit, login_limit)

        def plain() -> ClientConnection:
            runner = self._effect_runner
            assert runner is not None
            return ClientConnection(next(self._ids), runner, self._quotas, receive_buffer, listener)

        if not endpoint.protocol.has_tls:
            return plain
        assert self.tls is not None
        return self.tls.protocol_factory(endpoint, plain)

    @property
    def _backlog(self) -> int:
        config = self._settings.config
        return int(config.get(_BACKLOG)) if config.is_set(_BACKLOG) else DEFAULT_BACKLOG

    def _advertised(self, endpoint: Endpoint) -> Callable[[str, int], Address]:
        """The address that clients of a listener are told, given the one by which they came."""
        told = self._settings.listeners.advertised.get(endpoint.listener_name, endpoint)
        host = told.host or endpoint.host

        def advertised(came_by_host: str, came_by_port: int) -> Address:
            return came_by_host if host in _EVERYWHERE else host, told.port or came_by_port

        return advertised

    def listen(self) -> None:
        """Let clients connect, and wait until they are served: who is registered must not be taken for dead."""
        for server in self._servers.values():
            for listening in server.sockets:
                with listening.dup() as same:
                    same.listen(self._backlog)

    async def serve(self, effect_runner: EffectRunner, config: Callable[[], BrokerConfig]) -> None:
        """Hand connections to the node; ``config`` gives the present configuration. Raises StartRefused."""
        self._effect_runner = effect_runner
        if self.tls is not None:
            self.tls.start(asyncio.get_running_loop(), config, effect_runner.disk)
        for server in self._servers.values():
            await server.start_serving()

    def close(self) -> None:
        """Accept no more connections."""
        for server in self._servers.values():
            server.close()

    def close_tls(self) -> None:
        """End the handshakes under way."""
        if self.tls is not None:
            self.tls.close()
