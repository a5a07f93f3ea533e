"""Connections of a simulated broker's process: from clients, and to other brokers."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from oncelog.base.errors import PeerError
from oncelog.node.kernel.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerSent,
    ConnectToBroker,
    DisconnectFromBroker,
    Event,
    SendToBroker,
)
from oncelog.sim.virtual.network.connection import Connection
from oncelog.sim.virtual.network.network import ConnectionAttempt, Network
from oncelog.wire.chunks import join_chunks
from oncelog.wire.framing import FrameLimit, FrameSplitter


class FrameHandler(Protocol):
    """The process that handles the frames of its connections."""

    def frame_received(self, peer: ServerConnection, frame: memoryview | bytes) -> None: ...

    def client_closed(self, peer: ServerConnection) -> None:
        """The client has closed, or is disconnected for invalid bytes."""


class ServerConnection:
    __slots__ = ("_backlog", "_handler", "_paused", "_splitter", "connection", "queue")

    def __init__(self, handler: FrameHandler, connection: Connection, limit: FrameLimit) -> None:
        self._handler = handler
        self.connection = connection
        self._splitter = FrameSplitter(limit)
        self._paused = False
        self._backlog: list[bytes] = []
        # Chunks of responses that are still to be read from files and sent.
        self.queue: deque[Sequence[object]] = deque()

    def received(self, data: bytes) -> None:
        """Bytes arrived: frames go to the handler unless the connection is paused."""
        if self._paused:
            self._backlog.append(data)
            return
        try:
            frames = self._splitter.feed(data)
        except PeerError:
            self.drop()
            return
        for frame in frames:
            self._handler.frame_received(self, frame)

    def closed(self) -> None:
        # The client has closed. Received bytes are handled first.
        self.resume()
        self._handler.client_closed(self)

    def drop(self) -> None:
        self._handler.client_closed(self)
        self.connection.close()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        backlog, self._backlog = self._backlog, []
        for data in backlog:
            self.received(data)


Dispatch = Callable[[Event], None]


class OutboundLink:
    """The process's end of a connection that it opened (``network.connection.ClientEnd``)."""

    def __init__(self, link_id: int, dispatch: Dispatch) -> None:
        self.link_id = link_id
        self.connection: Connection | None = None
        self.is_open = True
        self.dead = False
        self._dispatch = dispatch

    def established(self, connection: Connection) -> None:
        self.connection = connection
        connection.client_end = self
        self._dispatch(BrokerConnected(self.link_id))

    def refused(self, error: OSError) -> None:
        self.is_open = False
        self._dispatch(BrokerDisconnected(self.link_id, refused=error.errno == errno.ECONNREFUSED))

    def arrived(self, data: bytes | None) -> None:
        # None is the end of the stream.
        if data is None:
            self.lose(None)
        elif self.is_open and not self.dead:
            self._dispatch(BrokerSent(self.link_id, data))

    def lose(self, error: Exception | None) -> None:
        if self.is_open and not self.dead:
            self.close()
            self._dispatch(BrokerDisconnected(self.link_id))

    def close(self) -> None:
        self.is_open = False
        if self.connection is not None and not self.dead:
            self.connection.up.put(None)


class OutboundLinks:
    """The outbound connections of one process, by link id."""

    def __init__(self, network: Network, host: str, dispatch: Dispatch) -> None:
        self._network = network
        self._host = host
        self._dispatch = dispatch
        self._links: dict[int, OutboundLink] = {}

    def connect(self, effect: ConnectToBroker) -> None:
        link = self._links[effect.link_id] = OutboundLink(effect.link_id, self._dispatch)
        address = (effect.host, effect.port)
        self._network.open(ConnectionAttempt(self._host, address, link.established, link.refused, lambda: link.is_open))

    def send(self, effect: SendToBroker) -> None:
        link = self._links.get(effect.link_id)
        if link is not None and link.is_open and link.connection is not None:
            link.connection.up.put(join_chunks(effect.chunks))

    def disconnect(self, effect: DisconnectFromBroker) -> None:
        link = self._links.pop(effect.link_id, None)
        if link is not None and link.is_open:
            link.close()

    def end(self) -> None:
        # The process is gone. Attempts end here, the host's network ends open connections.
        for link in self._links.values():
            link.is_open = False
