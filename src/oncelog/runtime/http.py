"""``--http HOST:PORT``: ``/metrics`` in Prometheus text and ``/health``; nothing else, GET only.

A few lines over asyncio instead of a web framework: the broker must start without one, and what is served here is
two documents. Requests are bounded in size and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

MAX_HEAD_BYTES: Final = 8 * 1024
READ_TIMEOUT_S: Final = 10.0
_STATUS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}

Page = tuple[int, str, bytes]
"""Status, content type, body."""


class HttpEndpoint:
    """Serves the pages given by path; one request a connection."""

    def __init__(self, pages: dict[str, Callable[[], Page]]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address bound. Raises OSError when it cannot."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD_BYTES)
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._respond(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()

    def _respond(self, head: bytes) -> bytes:
        status, content_type, body = self._find(head)
        lines = [
            f"HTTP/1.1 {status} {_STATUS[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def _find(self, head: bytes) -> Page:
        words = head.split(b"\r\n", 1)[0].split()
        if len(words) != 3:
            return 400, "text/plain", b"bad request\n"
        if words[0] != b"GET":
            return 405, "text/plain", b"only GET\n"
        page = self._pages.get(words[1].decode("latin-1").split("?", 1)[0])
        if page is None:
            return 404, "text/plain", f"no such page; there is {', '.join(sorted(self._pages))}\n".encode()
        return page()
