"""A broker's listening sockets, one or more per listener, and the connections they accept.

A socket is bound first, so that its port is known, listens once the logs are open, and accepts once the node has
started.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.security import Endpoint
from oncelog.listening.acceptor import Acceptor
from oncelog.listening.addresses import bind, is_ipv4
from oncelog.node.assembly import StartRefused
from oncelog.node.listeners.broker_settings import Address, BrokerConfig, Settings
from oncelog.runtime.connections.client_connection import RECEIVE_BUFFER_SIZE, ClientConnection, Listener
from oncelog.runtime.connections.connection_quotas import ConnectionQuotas
from oncelog.runtime.effects.effect_runner import EffectRunner
from oncelog.wire.framing import request_limit, response_limit

if TYPE_CHECKING:
    from oncelog.runtime.tls.listeners import ListenersTls

DEFAULT_BACKLOG: Final = 1024
"""Default for ``socket.listen.backlog.size``, larger than Apache Kafka's: one loop replaces many threads, and accepts
in bursts."""
_BACKLOG: Final = "socket.listen.backlog.size"
_REMEDIES: Final = {
    errno.EADDRINUSE: "; stop what listens there, or choose another port",
    errno.EAFNOSUPPORT: "; this machine has no IPv6, listen on 0.0.0.0",
}
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


def cannot_listen(address: str, error: OSError) -> StartRefused:
    # asyncio's own messages repeat the address.
    has_errno = error.errno is not None and error.errno in errno.errorcode and not isinstance(error, socket.gaierror)
    reason = os.strerror(error.errno or 0) if has_errno else error.strerror or str(error)
    return StartRefused(f"cannot listen on {address}: {reason.lower()}{_REMEDIES.get(error.errno or 0, '')}")


class Acceptors:
    """``bound`` has sockets, by listener, that replace the settings' addresses."""

    def __init__(self, settings: Settings, quotas: ConnectionQuotas, bound: Mapping[str, socket.socket]) -> None:
        self._settings = settings
        self._quotas = quotas
        self._given = bound
        self._acceptors: dict[str, Acceptor] = {}
        self._effect_runner: EffectRunner | None = None
        self._ids = itertools.count(1)
        self.tls: ListenersTls | None = None
        """None: no listener has TLS, so its code is not imported."""
        self.addresses: dict[str, Address] = {}
        """The bound address of each listener."""

    async def bind(self) -> None:
        """Bind all sockets. Raises StartRefused; the caller then closes those already bound."""
        if any(endpoint.protocol.has_tls for endpoint in self._settings.listeners.endpoints):
            from oncelog.runtime.tls.listeners import ListenersTls

            self.tls = ListenersTls(self._settings)
            self.tls.prepare()
        for endpoint in self._settings.listeners.endpoints:
            name = endpoint.listener_name
            self._acceptors[name] = acceptor = Acceptor(
                f"listener {name}",
                self._bound_sockets(endpoint),
                self._protocol_factory(endpoint),
                make_room=partial(self._quotas.make_room, name),
                on_refused=self._quotas.count_refusal,
            )
            host, port = acceptor.sockets[0].getsockname()[:2]
            self.addresses[name] = (endpoint.host or host, port)

    def _bound_sockets(self, endpoint: Endpoint) -> list[socket.socket]:
        given = self._given.get(endpoint.listener_name)
        if given is not None:
            given.setblocking(False)
            return [given]
        others = (other for other in self._settings.listeners.endpoints if other is not endpoint)
        has_ipv4_already = any(other.port == endpoint.port and is_ipv4(other.host) for other in others)
        try:
            return bind(endpoint.host, endpoint.port, ipv6_only=has_ipv4_already and endpoint.port > 0)
        except OSError as error:
            raise cannot_listen(str(endpoint).partition("://")[2], error) from None

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
        endpoint_advertised = self._settings.listeners.advertised.get(endpoint.listener_name, endpoint)
        host = endpoint_advertised.host or endpoint.host

        def advertised(local_host: str, local_port: int) -> Address:
            return local_host if host in _EVERYWHERE else host, endpoint_advertised.port or local_port

        return advertised

    def listen(self) -> None:
        """Let clients connect before they are served: a registered broker must not be taken for dead."""
        for acceptor in self._acceptors.values():
            acceptor.listen(self._backlog)

    async def serve(self, effect_runner: EffectRunner, config: Callable[[], BrokerConfig]) -> None:
        """Hand connections to the node; ``config`` returns the present configuration. Raises StartRefused."""
        self._effect_runner = effect_runner
        if self.tls is not None:
            self.tls.start(asyncio.get_running_loop(), config, effect_runner.disk)
        for acceptor in self._acceptors.values():
            acceptor.start()

    def close(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.close()

    def close_tls(self) -> None:
        if self.tls is not None:
            self.tls.close()
