"""A simulated TCP connection: two directions and two ends.

A direction keeps its order and loses nothing in the middle; two connections have no order. Bytes sent before a
connection broke may still arrive, long after their sender has reconnected (KAFKA-17754). Each end may learn of the
connection's end at its own time, or never.
"""

from __future__ import annotations

import errno
import zlib
from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol

from oncelog.sim.virtual.kernel import Kernel
from oncelog.sim.virtual.network.conditions import HostPair, NetworkConditions

Address = tuple[str, int]


class ServerEnd(Protocol):
    def received(self, data: bytes) -> None: ...

    def closed(self) -> None:
        """The client has closed: the stream has ended."""


class ClientEnd(Protocol):
    """The program that opened a connection: an asyncio transport on a client host, or a broker."""

    # The host is down: no bytes are sent or received.
    dead: bool

    def arrived(self, data: bytes | None) -> None:
        """Bytes arrived, or (None) the end of the server's stream."""

    def lose(self, error: Exception | None) -> None:
        """The connection has ended, with an error or regularly."""


Acceptor = Callable[["Connection"], ServerEnd]


class Medium(Protocol):
    """The network as seen by its connections."""

    kernel: Kernel

    def draw(self) -> float: ...

    def pick(self, least: int, most: int) -> int: ...

    def conditions_of(self, pair: HostPair) -> NetworkConditions: ...

    def delay_us(self, pair: HostPair) -> int: ...

    def forget(self, connection: Connection) -> None:
        """The server's end of the connection is closed."""


class Direction:
    """One direction of a connection: first in, first out, each packet with its delay. A cut holds packets back."""

    __slots__ = ("_arrive", "_cut_by", "_held", "_last_us", "_medium", "ended", "name", "pair")

    def __init__(self, medium: Medium, name: str, pair: HostPair, arrive: Callable[[bytes | None], None]) -> None:
        self._medium = medium
        self.name = name
        self.pair = pair
        self._arrive = arrive
        self._last_us = 0
        self._held: deque[bytes | None] = deque()
        self._cut_by: set[Hashable] = set()
        self.ended = False

    def put(self, data: bytes | None) -> None:
        if self.ended:
            return
        self.ended = data is None
        if self._cut_by:
            self._held.append(data)
            return
        medium = self._medium
        if data is not None and len(data) > 1 and medium.draw() < medium.conditions_of(self.pair).split:
            split_at = medium.pick(1, len(data) - 1)
            self._carry(data[:split_at])
            data = data[split_at:]
        self._carry(data)

    def cut(self, reason: Hashable) -> None:
        """Hold back all packets from now on, until every reason is healed."""
        self._cut_by.add(reason)

    def is_cut(self, reason: Hashable) -> bool:
        return reason in self._cut_by

    def heal(self, reason: Hashable | None = None) -> None:
        """Remove a reason (None: all). After the last one, deliver the packets held back."""
        if reason is None:
            self._cut_by.clear()
        else:
            self._cut_by.discard(reason)
        if self._cut_by:
            return
        while self._held:
            self._carry(self._held.popleft())

    def discard_held(self) -> None:
        self._held.clear()

    def _carry(self, data: bytes | None) -> None:
        kernel = self._medium.kernel
        at_us = max(self._last_us, kernel.now_us + self._medium.delay_us(self.pair))
        self._last_us = at_us
        kernel.at(at_us, self._arrived, data)

    def _arrived(self, data: bytes | None) -> None:
        content = "end" if data is None else f"{len(data)} {zlib.crc32(data):08x}"
        self._medium.kernel.trace(f"{self.name} {content}")
        self._arrive(data)


class Connection:
    """A connection from host ``client`` to address ``server``. ``up`` leads to the server, ``down`` back."""

    def __init__(self, medium: Medium, number: int, client: str, server: Address) -> None:
        self.number = number
        self.client = client
        self.server = server
        self._medium = medium
        self._server_end: ServerEnd | None = None
        self._server_closed = False
        self.client_end: ClientEnd | None = None
        host = server[0]
        self.up = Direction(medium, f"{client}#{number}>", (client, host), self._at_server)
        self.down = Direction(medium, f"{client}#{number}<", (host, client), self._at_client)

    def accept(self, acceptor: Acceptor) -> None:
        self._server_end = acceptor(self)

    def send(self, data: bytes) -> None:
        if not self._server_closed:
            self.down.put(data)

    def close(self) -> None:
        if not self._server_closed:
            self._server_closed = True
            self.down.put(None)
            self._medium.forget(self)

    def reset(self, *, deliver: bool) -> None:
        """Break the connection for both ends. With ``deliver``, bytes already sent by the client arrive first."""
        if self.client_end is not None:
            self.client_end.lose(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
        if deliver:
            self.up.put(None)
            self.up.heal()
        else:
            self._close_server_end()

    def server_died(self, *, silent_us: int) -> None:
        """The server is gone at once. The client learns of it after ``silent_us``."""
        self._server_end = None
        self._server_closed = True
        self._medium.forget(self)
        if self.client_end is not None:
            error = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
            self._medium.kernel.after(silent_us, self.client_end.lose, error)

    def server_exited(self) -> None:
        """Bytes already sent still arrive, then the end of the stream."""
        self._server_end = None
        self.close()

    def client_died(self, *, silent: bool) -> None:
        """The client is gone. The server sees the connection close, or (``silent``) keeps a half-open one."""
        if self.client_end is not None:
            self.client_end.dead = True
        if not silent:
            self.up.put(None)
        self.down.discard_held()

    def _at_server(self, data: bytes | None) -> None:
        if self._server_end is None:
            return
        if data is None:
            self._close_server_end()
        else:
            self._server_end.received(data)

    def _close_server_end(self) -> None:
        end, self._server_end = self._server_end, None
        self._server_closed = True
        self._medium.forget(self)
        if end is not None:
            end.closed()

    def _at_client(self, data: bytes | None) -> None:
        if self.client_end is not None:
            self.client_end.arrived(data)
