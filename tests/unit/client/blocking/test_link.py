"""Connecting to what is no broker, or a broken one: a clear error, in time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from oncelog.client.aio.link import AsyncLink
from oncelog.client.blocking import Client, ClientConfig
from oncelog.client.blocking.link import Link
from oncelog.client.config import Address
from oncelog.client.errors import ClientError, ConnectionLost, NoBrokerReachable, RequestTimedOut
from tests.waiting import HANG_S

CONFIG = ClientConfig(connect_timeout_ms=150, bootstrap_timeout_ms=0, request_timeout_ms=150, retry_timeout_ms=0)


@pytest.fixture
def listening() -> Iterator[Callable[[bytes | None], Address]]:
    """An address where every connection gets some bytes and the end, or (None) silence."""
    sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(answer: bytes | None) -> Address:
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                sockets.append(connection)
                if answer is not None:
                    with contextlib.suppress(OSError):  # the client may hang up first
                        connection.recv(1000)
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return Address("127.0.0.1", listener.getsockname()[1])

    yield start
    for item in sockets:
        with item:
            if item.getsockname() and threads:
                try:
                    item.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
    for thread in threads:
        thread.join()


Start = Callable[[bytes | None], Address]


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff\xff\xff\xff", b"\x00\x00\x00\x06abcdef"]
)
def test_what_does_not_speak_the_protocol(listening: Start, answer: bytes) -> None:
    with pytest.raises(ConnectionLost, match="does not speak the Kafka protocol"):
        Link(listening(answer), CONFIG)


def test_what_hangs_up(listening: Start) -> None:
    with pytest.raises(ConnectionLost, match="closed the connection"):
        Link(listening(b""), CONFIG)


@pytest.mark.parametrize("connect_timeout_ms", [CONFIG.request_timeout_ms - 50, HANG_S * 1000])
@pytest.mark.parametrize("open_link", [Link, lambda *args: asyncio.run(AsyncLink.open(*args))], ids=["blocking", "aio"])
def test_what_says_nothing(listening: Start, open_link: Callable[..., object], connect_timeout_ms: int) -> None:
    """It is given up after the shorter of two times."""
    config = replace(CONFIG, connect_timeout_ms=connect_timeout_ms)
    shorter = min(CONFIG.request_timeout_ms, connect_timeout_ms)
    with pytest.raises(RequestTimedOut, match=f"connections but does not answer within {shorter} ms"):
        open_link(listening(None), config)


def test_a_caller_may_wait_less_for_what_says_nothing(listening: Start) -> None:
    with pytest.raises(RequestTimedOut, match="does not answer within 20 ms"):
        Link(listening(None), CONFIG, timeout_ms=20)
    with pytest.raises(RequestTimedOut, match="does not answer within 20 ms"):
        asyncio.run(AsyncLink.open(listening(None), CONFIG, timeout_ms=20))


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NoBrokerReachable, match=f"no broker at 127.0.0.1:{port}: connection refused"):
        Link(Address("127.0.0.1", port), CONFIG)


def test_a_client_tries_all_its_servers_and_names_them(listening: Start) -> None:
    first, second = listening(b""), listening(b"HTTP/1.1 400\r\n\r\n")
    with (
        Client([str(first), str(second)], config=CONFIG) as client,
        pytest.raises(ClientError, match=f"none of the 2 brokers can be reached \\({first}, {second}\\)"),
    ):
        client.metadata()
