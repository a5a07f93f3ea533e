"""HTTP requests to one URL, over kept connections: each within a deadline, each answer within a number of bytes.

The standard library's `http.client` suffices: it follows no redirects and reads no proxy from the environment.
This module adds the deadline of a whole answer, which a server that sends a byte at a time cannot stretch, and a second
try when the server has closed a kept connection.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from oncelog.base.units import MIB

if TYPE_CHECKING:
    import ssl

MAX_ANSWER_BYTES: Final = 8 * MIB
_MAX_IDLE: Final = 4


class Answer(NamedTuple):
    status: int
    retry_after: str | None
    body: bytes


class AnswerTooLarge(Exception):
    """An answer of more than ``MAX_ANSWER_BYTES``."""


class HttpConnections:
    """The connections to one URL. Threads may use it at the same time: each takes a connection, or makes one."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.url = url
        parts = urlsplit(url)
        self._host, self._port, self._path = cast("str", parts.hostname), parts.port, parts.path
        self._tls = tls
        self._clock = clock
        self._idle: list[_Connection] = []

    def exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Answer:
        """The answer to a request. Raises OSError, http.client.HTTPException, AnswerTooLarge."""
        deadline = self._clock() + timeout_s
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            try:
                return self._over(connection, method, path, headers, body, deadline)
            except (ConnectionError, http.client.RemoteDisconnected):
                continue  # the server closes idle connections; a new one tells whether it is there
        return self._over(_Connection(self._host, self._port, self._tls), method, path, headers, body, deadline)

    def _over(
        self,
        connection: _Connection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        deadline: float,
    ) -> Answer:
        connection.time_left = lambda: deadline - self._clock()
        is_reusable = False
        try:
            connection.request(method, self._path + path, body or None, dict(headers))
            response = connection.getresponse()
            data = response.read(MAX_ANSWER_BYTES + 1)
            if len(data) > MAX_ANSWER_BYTES:
                raise AnswerTooLarge
            if response.length:  # the library does not mind a body that ends too early
                raise http.client.IncompleteRead(data, response.length)
            # Without a length the end of the stream ends the body.
            is_reusable = response.isclosed() and not response.will_close and len(self._idle) < _MAX_IDLE
            return Answer(response.status, response.headers["Retry-After"], data)
        finally:
            if is_reusable:
                self._idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class _Connection(http.client.HTTPConnection):
    """A connection whose every wait ends at the request's deadline."""

    time_left: Callable[[], float]

    def __init__(self, host: str, port: int | None, tls: ssl.SSLContext | None) -> None:
        self.default_port = 80 if tls is None else 443
        super().__init__(host, port)
        self._tls = tls

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), _positive(self.time_left()))
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wrapped = plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise
        self.sock: Any = _TimedSocket(wrapped, self)


class _TimedSocket:
    """The part of a socket that `http.client` uses."""

    def __init__(self, connected: socket.socket, connection: _Connection) -> None:
        self._socket = connected
        self._connection = connection
        self.close = connected.close

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(_positive(self._connection.time_left()))
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._socket, self._connection))


class _TimedReader(io.RawIOBase):
    def __init__(self, connected: socket.socket, connection: _Connection) -> None:
        self._socket = connected
        self._raw = connected.makefile("rb", buffering=0)  # keeps the descriptor until it is closed
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._socket.settimeout(_positive(self._connection.time_left()))
        return cast("int", self._raw.readinto(buffer))

    def close(self) -> None:
        self._raw.close()
        super().close()


def _positive(left_s: float) -> float:
    if left_s <= 0:
        raise TimeoutError
    return left_s
