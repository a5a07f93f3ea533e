"""Sockets to other brokers: carries bytes between them and the node, which interprets them (``node.brokers``).

All connections of a loop receive into one buffer; the node copies the bytes once, into their frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from oncelog.base.units import KIB
from oncelog.node.kernel.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerSent,
    ConnectToBroker,
    DisconnectFromBroker,
    Event,
    SendToBroker,
)
from oncelog.node.listeners.broker_settings import StoreUnusable
from oncelog.wire.chunks import join_chunks

_LOG: Final = logging.getLogger("oncelog.broker")
RECEIVE_BUFFER_SIZE: Final = 256 * KIB

# Errors for unreachable address families, such as a name's IPv6 address on a machine without IPv6.
_NO_SUCH_NETWORK: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH})

Dispatch = Callable[[Event], None]


class BrokerSockets:
    """The outgoing connections of one node, by link id."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dispatch: Dispatch) -> None:
        self._loop = loop
        self._dispatch = dispatch
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._connected: dict[int, asyncio.Transport] = {}
        self._receive_buffer: memoryview | None = None
        self.tls: Callable[[str], ssl.SSLContext] | None = None
        """Returns the TLS context for other brokers' listeners of a name; set by the server."""
        # The last reason for a failed handshake, by address, so that it is logged once.
        self._refusals: dict[tuple[str, int], str] = {}

    def connect(self, effect: ConnectToBroker) -> None:
        self._connecting[effect.link_id] = self._loop.create_task(self._connect(effect))

    def send(self, effect: SendToBroker) -> None:
        transport = self._connected.get(effect.link_id)
        if transport is not None:
            transport.write(join_chunks(effect.chunks))

    def disconnect(self, effect: DisconnectFromBroker) -> None:
        self._end(effect.link_id, in_order=False)

    def close(self) -> None:
        """Close all connections after sending the queued bytes."""
        self._end_all(in_order=True)

    def abort(self) -> None:
        self._end_all(in_order=False)

    def _end_all(self, *, in_order: bool) -> None:
        for link_id in [*self._connecting, *self._connected]:
            self._end(link_id, in_order=in_order)

    def _end(self, link_id: int, *, in_order: bool) -> None:
        attempt = self._connecting.pop(link_id, None)
        if attempt is not None:
            attempt.cancel()
        transport = self._connected.pop(link_id, None)
        if transport is not None and in_order:
            transport.close()
        elif transport is not None:
            transport.abort()

    async def _connect(self, effect: ConnectToBroker) -> None:
        # Tries the host's addresses in turn, as asyncio does; asyncio does not tell if all of them refused.
        failures: list[Exception] = []
        try:
            addresses = await self._loop.getaddrinfo(effect.host, effect.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failures.append(error)
            addresses = []
        for *_, address in addresses:
            try:
                await self._connect_to(effect, str(address[0]))
            except (OSError, OverflowError, StoreUnusable) as error:  # SSLError is an OSError
                failures.append(error)
            else:
                return
        self._report(effect, failures)
        if self._connecting.pop(effect.link_id, None) is not None:
            self._dispatch(BrokerDisconnected(effect.link_id, refused=_is_refusal(failures)))

    async def _connect_to(self, effect: ConnectToBroker, address: str) -> None:
        """Connect to one address, with TLS if the listener uses it; the certificate must name the broker's host."""
        secure: dict[str, Any] = {}
        if effect.security_protocol.has_tls:
            if self.tls is None:
                raise StoreUnusable(f"this broker has no listener {effect.listener_name} with TLS")
            secure = {"ssl": self.tls(effect.listener_name), "server_hostname": effect.host}
        await self._loop.create_connection(lambda: self._protocol(effect.link_id), address, effect.port, **secure)
        self._refusals.pop((effect.host, effect.port), None)

    def _report(self, effect: ConnectToBroker, failures: Sequence[Exception]) -> None:
        """Log why TLS with a broker fails, unless the reason was logged before."""
        for failure in failures:
            if isinstance(failure, (ssl.SSLError, StoreUnusable)):
                reason = getattr(failure, "verify_message", None) or getattr(failure, "reason", None) or str(failure)
                if self._refusals.get((effect.host, effect.port)) != reason:
                    self._refusals[effect.host, effect.port] = reason
                    _LOG.warning("no TLS with the broker at %s:%d: %s", effect.host, effect.port, reason)

    def _protocol(self, link_id: int) -> BrokerConnection:
        if self._receive_buffer is None:
            self._receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_SIZE))
        return BrokerConnection(self, link_id, self._receive_buffer)

    def made(self, link_id: int, transport: asyncio.Transport) -> None:
        """A connection is open; it is closed if the attempt was cancelled."""
        if self._connecting.pop(link_id, None) is None:
            transport.abort()
            return
        self._connected[link_id] = transport
        self._dispatch(BrokerConnected(link_id))

    def received(self, link_id: int, data: memoryview) -> None:
        if link_id in self._connected:
            self._dispatch(BrokerSent(link_id, data))

    def lost(self, link_id: int) -> None:
        """The node gets an event unless it closed the connection itself."""
        if self._connected.pop(link_id, None) is not None:
            self._dispatch(BrokerDisconnected(link_id))


def _is_refusal(failures: Sequence[Exception]) -> bool:
    """True if the port is closed at every reachable address."""
    reached = [failure for failure in failures if getattr(failure, "errno", None) not in _NO_SUCH_NETWORK]
    return bool(reached) and all(isinstance(failure, ConnectionRefusedError) for failure in reached)


MakeSockets = Callable[[asyncio.AbstractEventLoop, Dispatch], BrokerSockets]
"""Makes a node's connections; tests bring their own, which they can cut."""


class BrokerConnection(asyncio.BufferedProtocol):
    def __init__(self, sockets: BrokerSockets, link_id: int, receive_buffer: memoryview) -> None:
        self._sockets = sockets
        self._link_id = link_id
        self._receive_buffer = receive_buffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        sock: Any = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):  # it has ended already
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.made(self._link_id, cast("asyncio.Transport", transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        """asyncio: the buffer for the next bytes; consumed before another connection's turn."""
        return self._receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._sockets.received(self._link_id, self._receive_buffer[:nbytes])

    def eof_received(self) -> bool:
        # Reported now instead of when the transport has closed, one turn later: clients whose connections to that
        # broker also ended may ask for the new leader before that.
        self._sockets.lost(self._link_id)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._sockets.lost(self._link_id)
