"""A client connection between a fake transport, whose socket is real, and a fake node."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from oncelog.base.security import ANONYMOUS, SecurityProtocol
from oncelog.base.units import KIB, MIB
from oncelog.runtime.connections.client_connection import ClientConnection, Listener
from oncelog.runtime.connections.connection_quotas import ConnectionQuotas
from oncelog.runtime.effects.effect_runner import EffectRunner
from oncelog.wire.framing import request_limit


class Transport:
    """The transport over a socket that the peer writes to."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self._sock, "sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)}.get(name, default)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Node:
    """The effect runner, as far as a connection calls it."""

    disk = None

    def __init__(self) -> None:
        self.connections: dict[int, object] = {}
        self.requests: list[bytes] = []
        self.events: list[object] = []

    def receive(self, connection_id: int, frame: memoryview, spent_ns: int) -> int:
        self.requests.append(bytes(frame))
        return 0

    def dispatch(self, event: object) -> None:
        self.events.append(event)

    def backlog_bytes(self, connection_id: int) -> int:
        return 0


class Quotas:
    """Counts what is cut off."""

    def __init__(self) -> None:
        self.cut_off: list[str] = []

    def garbage(self, connection: object, reason: str) -> None:
        self.cut_off.append(reason)

    def leave(self, connection: object, held_bytes: int) -> None:
        pass

    def account(self, connection: object, change: int) -> None:
        pass

    def identified(self, connection: object) -> None:
        pass


class Link:
    """A connection, and the peer's end of its socket."""

    def __init__(self, peer: socket.socket, ours: socket.socket, protocol: SecurityProtocol) -> None:
        limit = request_limit(MIB, MIB)
        listener = Listener("L", protocol, lambda host, port: (host, port), limit, limit)
        self.peer, self.node, self.quotas = peer, Node(), Quotas()
        self.connection = ClientConnection(
            1,
            cast("EffectRunner", self.node),
            cast("ConnectionQuotas", self.quotas),
            memoryview(bytearray(64 * KIB)),
            listener,
        )
        self.connection.open(ANONYMOUS, cast("asyncio.Transport", Transport(ours)))

    def receive(self, data: bytes) -> None:
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))


@pytest.fixture
def run() -> Iterator[Callable[[SecurityProtocol, Callable[[Link], None]], Link]]:
    """Runs a check on a loop with a new connection."""
    peer, ours = socket.socketpair()
    ours.setblocking(False)

    def run(protocol: SecurityProtocol, check: Callable[[Link], None]) -> Link:
        async def checked() -> Link:
            link = Link(peer, ours, protocol)
            check(link)
            return link

        return asyncio.run(checked())

    yield run
    peer.close()
    ours.close()


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


REQUEST = b"\0\x12\0\0\0\0\0\1\xff\xff"


@pytest.mark.parametrize(("protocol", "handed_in"), [(SecurityProtocol.PLAINTEXT, 3), (SecurityProtocol.SSL, 1)])
def test_only_plain_bytes_are_read_from_the_socket_of_a_broken_connection(run, protocol, handed_in) -> None:
    def check(link: Link) -> None:
        link.receive(frame(REQUEST) + frame(REQUEST)[:7])
        link.peer.sendall(frame(REQUEST)[7:] + frame(REQUEST))
        link.connection.connection_lost(ConnectionResetError())

    link = run(protocol, check)
    assert link.node.requests == [REQUEST] * handed_in


def test_a_peer_that_sends_garbage_is_cut_off_once(run) -> None:
    def check(link: Link) -> None:
        link.connection.pause_writing()
        link.receive(frame(REQUEST) + b"\xff" * 8)
        for _ in range(3):
            link.connection.pause_writing()
            link.connection.resume_writing()

    link = run(SecurityProtocol.PLAINTEXT, check)
    assert link.node.requests == [REQUEST]
    assert len(link.quotas.cut_off) == 1
