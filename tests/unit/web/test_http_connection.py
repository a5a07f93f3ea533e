"""Connections to the console that send or take nothing: they end, and keep nobody out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import pytest
import uvicorn
from uvicorn.server import ServerState

from oncelog.listening.waiting import Waiting
from oncelog.runtime.process import new_event_loop
from oncelog.web import http_connection
from oncelog.web.http_connection import HttpConnection, Idle

T = TypeVar("T")


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario on the loop that servers have."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(scenario)


GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


class App:
    """Answers ``/`` at once, ``/large`` with megabytes, and ``/held`` when it is told to."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.asked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        if scope["path"] == "/held":
            await self.may_end.wait()
        body = b"x" * (8 << 20 if scope["path"] == "/large" else 2)
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Console:
    """Connections to an app on loopback."""

    def __init__(self, app: App, port: int, state: ServerState) -> None:
        self.app = app
        self.state = state
        self._port = port

    async def connect(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(data)
        return reader, writer

    async def until(self, count: int) -> None:
        while len(self.state.connections) != count:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving() -> AsyncIterator[Console]:
    app, state = App(), ServerState()
    config = uvicorn.Config(app, http="h11", access_log=False, timeout_keep_alive=30)
    config.load()
    idle: Idle = Waiting()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(HttpConnection, config, state, {}, idle), "127.0.0.1", 0)
    try:
        yield Console(app, server.sockets[0].getsockname()[1], state)
    finally:
        server.close()
        app.may_end.set()
        for connection in list(state.connections):
            assert isinstance(connection, HttpConnection)
            connection.abort()
        while state.connections or state.tasks:
            await asyncio.sleep(0)


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return not (await reader.read()).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return True


def test_a_second_head_has_to_come_in_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.01)

    async def scenario() -> None:
        async with serving() as console:
            reader, writer = await console.connect(GET % b"")
            await reader.readuntil(b"xx")
            writer.write(b"GET / HT")
            assert await ended(reader)
            writer.close()

    run(scenario())


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: local"])
def test_a_head_has_to_come_in_time(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.01)

    async def scenario() -> None:
        async with serving() as console:
            reader, writer = await console.connect(sent)
            assert await ended(reader)
            writer.close()

    run(scenario())


def test_what_is_worked_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.01)

    async def scenario() -> None:
        async with serving() as console:
            reader, writer = await console.connect(GET % b"held")
            silent, other = await console.connect()
            assert await ended(silent)
            console.app.may_end.set()
            assert (await reader.readuntil(b"xx")).startswith(b"HTTP/1.1 200")
            for item in (writer, other):
                item.close()

    run(scenario())


def test_those_that_wait_make_room_and_those_that_work_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "MAX_CONNECTIONS", 3)

    async def scenario() -> None:
        async with serving() as console:
            held = await console.connect(GET % b"held")
            slow = await console.connect(b"GET / HT")
            idle = await console.connect(GET % b"")
            await idle[0].readuntil(b"xx")
            await console.until(3)
            for goes in (slow, idle):
                reader, writer = await console.connect(GET % b"")
                assert (await reader.readuntil(b"xx")).startswith(b"HTTP/1.1 200")
                assert await ended(goes[0])
                for item in (writer, goes[1]):
                    item.close()
            console.app.may_end.set()
            assert (await held[0].readuntil(b"xx")).startswith(b"HTTP/1.1 200")
            held[1].close()

    run(scenario())


def test_where_all_are_worked_on_the_newest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(http_connection, "_LEAVING", 0)

    async def scenario() -> None:
        async with serving() as console:
            held = await console.connect(GET % b"held")
            while not console.app.asked:
                await asyncio.sleep(0)
            late = await console.connect()
            assert await ended(late[0])
            for _, writer in (held, late):
                writer.close()

    run(scenario())


def test_an_answer_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "STALLED_S", 0.05)

    async def scenario() -> None:
        async with serving() as console:
            reader, writer = await console.connect(GET % b"large")
            reader._transport.pause_reading()  # type: ignore[attr-defined]  # or the test would take it
            await console.until(1)
            await console.until(0)
            writer.close()

    run(scenario())
