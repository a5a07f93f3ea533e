"""The HTTP port of a broker: who may see a page, and what strangers can hold of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from oncelog.runtime.metrics import http
from oncelog.runtime.metrics.http import MOST_CONNECTIONS, HttpEndpoint, Page
from oncelog.runtime.process import new_event_loop

T = TypeVar("T")


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario on the loop that servers have."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(scenario)


async def page() -> Page:
    return 200, "text/plain", b"the page" * 20_000


async def health() -> Page:
    return 200, "text/plain", b"ok"


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[int]:
    """An HTTP port on loopback."""
    endpoint = HttpEndpoint({"/metrics": page, "/health": health}, open_to_all=("/health",), **options)
    _, port = await endpoint.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await endpoint.stop()


async def ask(port: int, *headers: str, path: str = "/metrics", first: str = "") -> bytes:
    """The status and, of 200, the size of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "\r\n".join([first or f"GET {path} HTTP/1.1", *headers, "", ""])
    writer.write(head.encode("latin-1"))
    answer = await reader.read()
    writer.close()
    status, body = answer[9:12], answer.partition(b"\r\n\r\n")[2]
    return b"%s %d" % (status, len(body)) if status == b"200" else status


SIZE = b"200 160000"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (["Host: 127.0.0.1:9100"], SIZE),
        (["Host: [::1]:9100"], SIZE),
        (["Host: localhost"], SIZE),
        (["host: Broker-1.example:9100"], SIZE),
        ([], SIZE),
        (["Host: evil.example"], b"421"),
        (["Host: 127.0.0.1.evil.example:9100"], b"421"),
        (["Host: localhost", "Host: evil.example"], b"400"),
        (["Host: evil.example", "Host: localhost"], b"400"),
        (["Host: localhost", "Host : evil.example"], b"400"),
        (["Host: localhost", " evil.example"], b"400"),
        (["Host: localhost", "no header"], b"400"),
    ],
)
def test_a_page_is_for_those_who_ask_a_name_of_this_broker(headers: list[str], expected: bytes) -> None:
    async def scenario() -> None:
        async with serving(names={"broker-1.example"}) as port:
            assert await ask(port, *headers) == expected
            assert await ask(port, *headers, path="/health") == (b"400" if expected == b"400" else b"200 2")

    run(scenario())


def test_two_tokens_are_none() -> None:
    async def scenario() -> None:
        async with serving(token="sesame") as port:
            assert await ask(port, "Authorization: Bearer sesame") == SIZE
            assert await ask(port, "Authorization: Bearer sesame", "Authorization: Bearer sesame") == b"400"
            assert await ask(port, "Authorization: Bearer wrong") == b"401"
            assert await ask(port) == b"401"

    run(scenario())


@pytest.mark.parametrize(
    ("first", "expected"), [("POST /metrics HTTP/1.1", b"405"), ("GET", b"400"), ("GET /nothing HTTP/1.1", b"404")]
)
def test_everything_else_is_refused(first: str, expected: bytes) -> None:
    async def scenario() -> None:
        async with serving() as port:
            assert await ask(port, first=first) == expected

    run(scenario())


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def test_those_who_send_no_head_make_room_and_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with serving() as port:
            slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_CONNECTIONS)]
            for _, writer in slow:
                writer.write(b"GET /metrics HT")
            assert await ask(port) == SIZE
            assert await ended(slow[0][0])
            monkeypatch.setattr(http, "HEAD_TIMEOUT_S", 0.0)
            last_reader, last_writer = await asyncio.open_connection("127.0.0.1", port)
            assert await ended(last_reader)
            for _, writer in (*slow, (None, last_writer)):
                writer.close()

    run(scenario())


def test_a_head_that_is_too_long_and_an_end_of_the_port_end_a_connection() -> None:
    async def scenario() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\n" + b"x" * 20_000)
            assert await ended(reader)
            waiting, other = await asyncio.open_connection("127.0.0.1", port)
            assert await ask(port, path="/health") == b"200 2"
        assert await ended(waiting)
        for item in (writer, other):
            item.close()

    run(scenario())
