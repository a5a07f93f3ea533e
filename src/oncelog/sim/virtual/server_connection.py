"""The broker's end of a connection: bytes are split into frames, held while paused; responses wait in a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from oncelog.base.errors import PeerError
from oncelog.sim.virtual.network.connection import Connection
from oncelog.wire.framing import FrameLimit, FrameSplitter


class FrameHandler(Protocol):
    """The process that takes the frames of its connections."""

    def frame_received(self, peer: ServerConnection, frame: memoryview | bytes) -> None:
        """A whole request arrived."""

    def client_closed(self, peer: ServerConnection) -> None:
        """The client has closed, or is cut off for what it sent."""


class ServerConnection:
    """A connection as its broker has it."""

    __slots__ = ("_backlog", "_handler", "_paused", "_splitter", "connection", "queue")

    def __init__(self, handler: FrameHandler, connection: Connection, limit: FrameLimit) -> None:
        self._handler = handler
        self.connection = connection
        self._splitter = FrameSplitter(limit)
        self._paused = False
        self._backlog: list[bytes] = []
        self.queue: deque[Sequence[object]] = deque()
        """Chunks of responses that are not read from files and sent yet."""

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
        """The client's end is closed: what has arrived is handed in first."""
        self.resume()
        self._handler.client_closed(self)

    def drop(self) -> None:
        """Close the connection from this side; its client is not listened to any more."""
        self._handler.client_closed(self)
        self.connection.close()

    def pause(self) -> None:
        """Hold what arrives from now on."""
        self._paused = True

    def resume(self) -> None:
        """Take in what has arrived since :meth:`pause`."""
        self._paused = False
        waiting, self._backlog = self._backlog, []
        for data in waiting:
            self.received(data)
