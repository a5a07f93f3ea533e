"""A TCP proxy that writes down every frame between clients and a broker, and the file those frames are kept in.

A recording is a list of events in the order in which the proxy saw them: a request as it came from the client, a
response as it came from the broker. That order is causal (an event is written down before the frame is passed on), so
a replay that sends and awaits in the same order meets the same situations: joins held by a rebalance, pipelined
requests, long polls. A recording is an xz file of `connection, direction, size, frame`.
"""

from __future__ import annotations

import contextlib
import lzma
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

_EVENT: Final = struct.Struct(">HBI")
_SIZE: Final = struct.Struct(">i")
_CHANGES: Final = frozenset({19, 20, 21, 26, 33, 37, 44, 57})
"""Topics, records and configs created, altered and deleted, transactions ended, features set: Apache Kafka answers
before all of it has heard."""


class Direction(IntEnum):
    """The kind of an event."""

    REQUEST = 0
    RESPONSE = 1
    CLOSED_BY_CLIENT = 2
    CLOSED_BY_BROKER = 3


class Event(NamedTuple):
    """One frame without its size, on one of the session's connections (numbered from 0), or a connection's end."""

    connection: int
    direction: Direction
    frame: bytes


def save(path: Path, events: Iterable[Event]) -> int:
    """Write a recording; its size in bytes."""
    plain = b"".join(_EVENT.pack(event.connection, event.direction, len(event.frame)) + event.frame for event in events)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(plain, preset=9 | lzma.PRESET_EXTREME))
    return path.stat().st_size


def load(path: Path) -> list[Event]:
    """Read a recording."""
    plain = lzma.decompress(path.read_bytes())
    events = []
    position = 0
    while position < len(plain):
        connection, direction, size = _EVENT.unpack_from(plain, position)
        position += _EVENT.size
        events.append(Event(connection, Direction(direction), plain[position : position + size]))
        position += size
    return events


def _frames(connection: socket.socket) -> Iterator[bytes]:
    buffered = b""
    while True:
        with contextlib.suppress(OSError):
            more = connection.recv(1 << 18)
            if more:
                buffered += more
                while len(buffered) >= 4:
                    (size,) = _SIZE.unpack_from(buffered)
                    if len(buffered) < 4 + size:
                        break
                    yield buffered[4 : 4 + size]
                    buffered = buffered[4 + size :]
                continue
        return


class Recorder:
    """The proxy: `with Recorder(("127.0.0.1", 9092), port) as recorder: …; recorder.events`.

    The broker has to advertise the proxy's address, or clients go past it. The answer to a change is held back for
    ``settle_s``, so that what follows does not depend on how fast the broker spreads it among its own parts.
    """

    def __init__(self, upstream: tuple[str, int], port: int, *, settle_s: float = 0.0) -> None:
        self._upstream = upstream
        self._settle_s = settle_s
        self._changing: set[tuple[int, bytes]] = set()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._connections = 0
        self._closed: set[int] = set()
        self.events: list[Event] = []

    @property
    def bootstrap_servers(self) -> str:
        """The addresses that clients are given."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        with self._lock:
            sockets = list(self._sockets)
        for item in sockets:
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()

    def take(self) -> list[Event]:
        """The events so far, connections numbered in the order of their first frame; recording goes on."""
        with self._lock:
            events, self.events = self.events, []
        numbers: dict[int, int] = {}
        return [event._replace(connection=numbers.setdefault(event.connection, len(numbers))) for event in events]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._upstream)
            except OSError:
                return
            for item in (client, broker):
                item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                number = self._connections
                self._connections += 1
                self._sockets += [client, broker]
            for source, target, direction in (
                (client, broker, Direction.REQUEST),
                (broker, client, Direction.RESPONSE),
            ):
                threading.Thread(target=self._pump, args=(number, source, target, direction), daemon=True).start()

    def _pump(self, number: int, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        for frame in _frames(source):
            if direction is Direction.REQUEST and int.from_bytes(frame[:2], "big") in _CHANGES:
                self._changing.add((number, frame[4:8]))
            elif direction is Direction.RESPONSE and (number, frame[:4]) in self._changing:
                self._changing.discard((number, frame[:4]))
                time.sleep(self._settle_s)
            with self._lock:
                self.events.append(Event(number, direction, frame))
            try:
                target.sendall(_SIZE.pack(len(frame)) + frame)
            except OSError:
                break
        ended = Direction.CLOSED_BY_CLIENT if direction is Direction.REQUEST else Direction.CLOSED_BY_BROKER
        with self._lock:
            if number not in self._closed:
                self._closed.add(number)
                self.events.append(Event(number, ended, b""))
        for item in (source, target):
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
