"""A minimal HTTP server for ``--http HOST:PORT``: ``/metrics`` in Prometheus text and ``/health``, GET only.

Over asyncio, because a broker must start without a web framework. Commands with metrics use it too
(``cli.support.metrics_server``). One request per connection; a page is sent piece by piece: readers share its bytes.
The Host header must name this broker (``listening.addresses``).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from hmac import compare_digest
from typing import Final

from oncelog.base.units import KIB
from oncelog.listening.acceptor import Acceptor
from oncelog.listening.addresses import bind, is_addressed_to, unbracketed
from oncelog.listening.descriptors import metrics_bound
from oncelog.listening.waiting import Waiting, source_of

MAX_HEAD_BYTES: Final = 8 * KIB
HEAD_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
# Beyond them the oldest of the address that has most is closed.
MOST_CONNECTIONS: Final = 32
# Further connections wait in the system's queue.
MOST_A_SECOND: Final = 50
_PIECE_BYTES: Final = 64 * KIB
_BACKLOG: Final = 128
_STATUS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    503: "Service Unavailable",
}

# Status, content type, body.
Page = tuple[int, str, bytes]
# Values by name in lower case.
Headers = Mapping[bytes, list[bytes]]
_TEXT: Final = "text/plain; charset=utf-8"


class HttpEndpoint:
    """Serves pages by path. ``token`` protects all but those in ``open_to_all``, which also ignore the Host header; the
    others must be requested by one of ``names`` (in lower case), None: by any name.
    """

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Awaitable[Page]]],
        *,
        names: Collection[str] | None = (),
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        open_to_all: Collection[str] = (),
    ) -> None:
        self._pages = pages
        self._names = names
        self._tls = tls
        self._credentials = None if token is None else f"Bearer {token}".encode()
        self._open_to_all = open_to_all
        self._connections: Waiting[asyncio.WriteTransport] = Waiting()
        self._acceptor: Acceptor | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the bound address. Raises OSError."""
        self._acceptor = Acceptor(
            "the HTTP port",
            bind(unbracketed(host), port),
            self._protocol,
            bound=metrics_bound,
            make_room=self._make_room,
            tls=self._tls,
            most_a_second=MOST_A_SECOND,
        )
        self._acceptor.listen(_BACKLOG)
        self._acceptor.start()
        address = self._acceptor.sockets[0].getsockname()
        return address[0], address[1]

    async def stop(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        while len(self._connections):
            self._make_room()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(MAX_HEAD_BYTES), self._serve)

    def _make_room(self) -> None:
        oldest = self._connections.next_to_displace()
        if oldest is not None:
            self._connections.discard(oldest)
            oldest.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = writer.transport
        peer = writer.get_extra_info("peername")
        if len(self._connections) >= MOST_CONNECTIONS:
            self._make_room()
        self._connections.add(transport, source_of(peer[0] if peer else ""))
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._answer(head, writer)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            self._connections.discard(transport)
            transport.abort()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        status, content_type, body = await self._page(head)
        lines = [
            f"HTTP/1.1 {status} {_STATUS[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *(["WWW-Authenticate: Bearer"] if status == 401 else []),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for start in range(0, len(body), _PIECE_BYTES):
            writer.write(body[start : start + _PIECE_BYTES])
            await writer.drain()

    async def _page(self, head: bytes) -> Page:
        first, _, rest = head.partition(b"\r\n")
        words = first.split()
        headers = _headers(rest)
        if len(words) != 3 or headers is None or any(len(headers.get(name, ())) > 1 for name in _UNIQUE_HEADERS):
            return 400, _TEXT, b"bad request\n"
        if words[0] != b"GET":
            return 405, _TEXT, b"only GET\n"
        path = words[1].decode("latin-1").split("?", 1)[0]
        if path not in self._open_to_all:
            refusal = self._refusal(headers)
            if refusal is not None:
                return refusal
        page = self._pages.get(path)
        if page is None:
            return 404, _TEXT, f"no such page; pages: {', '.join(sorted(self._pages))}\n".encode()
        return await page()

    def _refusal(self, headers: Headers) -> Page | None:
        """The error response to an unauthorised request; None if it is allowed."""
        # Browsers always send a Host.
        (host,) = headers.get(b"host", [b""])
        if host and self._names is not None and not is_addressed_to(host.decode("latin-1"), self._names):
            return 421, _TEXT, b"the Host header has no name of this server; a broker's oncelog.http.names adds some\n"
        (given,) = headers.get(b"authorization", [b""])
        if self._credentials is not None and not compare_digest(given, self._credentials):
            return 401, _TEXT, b"unauthorized\n"
        return None


# Headers that may not repeat: a proxy might have judged one value and this server the other.
_UNIQUE_HEADERS: Final = (b"host", b"authorization", b"content-length")


def _headers(lines: bytes) -> Headers | None:
    """The headers of a request; None if they are malformed."""
    headers: dict[bytes, list[bytes]] = {}
    for line in lines.split(b"\r\n"):
        if not line:
            continue
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            return None
        headers.setdefault(name.lower(), []).append(value.strip())
    return headers
