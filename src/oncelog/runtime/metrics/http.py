"""``--http HOST:PORT``: ``/metrics`` in Prometheus text and ``/health``; nothing else, GET only.

A few lines over asyncio instead of a web framework: the broker must start without one, and what is served here is
two documents. Requests are bounded in size and time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection
from hmac import compare_digest
from typing import Final

from oncelog.node.assembly import StartRefused
from oncelog.node.settings import BrokerConfig

MAX_HEAD_BYTES: Final = 8 * 1024
READ_TIMEOUT_S: Final = 10.0
_STATUS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}

Page = tuple[int, str, bytes]
"""Status, content type, body."""


class HttpEndpoint:
    """Serves the pages given by path; one request a connection. ``token`` is what has to be known for all but those in
    ``open_to_all``."""

    def __init__(
        self,
        pages: dict[str, Callable[[], Page]],
        *,
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        open_to_all: Collection[str] = (),
    ) -> None:
        self._pages = pages
        self._tls = tls
        self._credentials = None if token is None else f"Bearer {token}".encode()
        self._open_to_all = open_to_all
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address bound. Raises OSError when it cannot."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD_BYTES, ssl=self._tls)
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
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            writer.close()

    def _may_see(self, path: str, head: bytes) -> bool:
        if self._credentials is None or path in self._open_to_all:
            return True
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"authorization":
                return compare_digest(value.strip(), self._credentials)
        return False

    def _respond(self, head: bytes) -> bytes:
        status, content_type, body = self._find(head)
        lines = [
            f"HTTP/1.1 {status} {_STATUS[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *(["WWW-Authenticate: Bearer"] if status == 401 else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def _find(self, head: bytes) -> Page:
        words = head.split(b"\r\n", 1)[0].split()
        if len(words) != 3:
            return 400, "text/plain", b"bad request\n"
        if words[0] != b"GET":
            return 405, "text/plain", b"only GET\n"
        path = words[1].decode("latin-1").split("?", 1)[0]
        if not self._may_see(path, head):
            return 401, "text/plain", b"unauthorized\n"
        page = self._pages.get(path)
        if page is None:
            return 404, "text/plain", f"no such page; there is {', '.join(sorted(self._pages))}\n".encode()
        return page()


def http_context(config: BrokerConfig) -> ssl.SSLContext | None:
    """TLS of the HTTP port; None where it has none. Raises StartRefused."""
    location = config.get("oncelog.http.ssl.keystore.location")
    if location is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password instead of none, or OpenSSL would ask for it on the terminal.
        context.load_cert_chain(location, password=config.get("oncelog.http.ssl.key.password") or "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise StartRefused(f"oncelog.http.ssl.keystore.location {location}: {reason}") from None
    return context
