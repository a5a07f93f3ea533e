"""A byte stream to one address: the blocking client's only access to the network, over TCP or TLS.

Every call ends within its timeout. Failures are ConnectionLost, NoBrokerReachable or, for certificates,
AuthenticationFailed, with the address; no OSError leaves this module.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from oncelog.base.low_water_mark import set_low_water_mark
from oncelog.base.units import KIB, MIB
from oncelog.client.config import Address, ClientConfig
from oncelog.client.errors import AuthenticationFailed, ConnectionLost, NoBrokerReachable, RequestTimedOut
from oncelog.client.security import TlsSettings
from oncelog.wire.chunks import Buffer

_MAX_VECTORS: Final = 512
"""Buffers in one system call; the kernel's limit is 1024."""

_WAKE_AT_BYTES: Final = 512 * KIB
_MOST_AHEAD_BYTES: Final = 4 * MIB
"""Bytes of a response that the kernel should accept before they are read, within its own bounds (tcp_rmem)."""


class Stream(Protocol):
    """Bytes to and from one broker."""

    def send(self, chunks: Sequence[Buffer], timeout_ms: int) -> None:
        """Write all of it. Raises ConnectionLost, RequestTimedOut."""

    def receive_into(self, buffer: memoryview, timeout_ms: int) -> int:
        """Receive at least one byte; 0 when none came in time. Raises ConnectionLost when the far side has closed."""

    def fileno(self) -> int:
        """The descriptor to poll when waiting on several streams at once; call it before each wait."""

    def expect(self, count: int) -> None:
        """Announce that ``count`` bytes of a large response are still to come: a wait may last until a good part has
        arrived. With 0 the size is unknown, but another large response may arrive meanwhile."""

    def pending(self) -> bool:
        """True if bytes are buffered that polling ``fileno`` would not show (TLS)."""

    def close(self) -> None:
        """Close the stream."""


class TcpStream:
    """Plain TCP, with the socket's low-water mark set for large responses.

    While one is awaited, the kernel wakes us only for many bytes: 8 MB take ten reads instead of a hundred. Between
    large responses the mark is as high as they are large: Linux makes that much room, and below the mark acknowledges
    bytes that are not read yet, so the broker need not stop after the first few hundred KB. Before a wait for a
    response of unknown size the mark is one byte again.
    """

    def __init__(self, connected: socket.socket, address: Address) -> None:
        self._socket = connected
        self._address = address
        self._wake_at = 1
        self._is_large = False
        """True while a large response is incomplete."""
        self._largest = 1
        """The size of the largest response so far, up to ``_MOST_AHEAD_BYTES``."""

    def send(self, chunks: Sequence[Buffer], timeout_ms: int) -> None:
        try:
            self._socket.settimeout(timeout_ms / 1000)
            if len(chunks) == 1 or len(chunks) > _MAX_VECTORS:
                self._socket.sendall(chunks[0] if len(chunks) == 1 else b"".join(chunks))
                return
            until = time.monotonic() + timeout_ms / 1000
            for left in _after(self._socket.sendmsg(chunks), chunks):
                self._socket.settimeout(max(until - time.monotonic(), 0.001))
                self._socket.sendall(left)
        except TimeoutError:
            raise RequestTimedOut(f"{self._address} accepted no more bytes within {timeout_ms} ms") from None
        except OSError as error:
            raise ConnectionLost(f"the connection to {self._address} broke: {_reason(error)}") from None

    def receive_into(self, buffer: memoryview, timeout_ms: int) -> int:
        try:
            if timeout_ms > 0:
                self._about_to_wait()
            self._socket.settimeout(max(timeout_ms, 0) / 1000)
            count = self._socket.recv_into(buffer)
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise ConnectionLost(f"the connection to {self._address} broke: {_reason(error)}") from None
        if count == 0:
            raise ConnectionLost(f"{self._address} closed the connection; is it a Kafka broker's plain-text port?")
        return count

    def fileno(self) -> int:
        self._about_to_wait()
        return self._socket.fileno()

    def expect(self, count: int) -> None:
        self._is_large = count > 0
        self._largest = max(self._largest, min(count, _MOST_AHEAD_BYTES))
        self._wake_from(min(count, _WAKE_AT_BYTES) if count else self._largest)

    def _about_to_wait(self) -> None:
        if not self._is_large:
            self._wake_from(1)

    def _wake_from(self, count: int) -> None:
        if count != self._wake_at and set_low_water_mark(self._socket, count):
            self._wake_at = count

    def pending(self) -> bool:
        """False: polling shows every byte of a plain socket."""
        return False

    def close(self) -> None:
        self._socket.close()


class TlsStream(TcpStream):
    """TLS over TCP; waiting on the socket does not show bytes that are decrypted already."""

    _socket: ssl.SSLSocket

    def expect(self, count: int) -> None:
        """Do nothing: how many bytes on the socket make ``count`` bytes of TLS is unknown."""

    def send(self, chunks: Sequence[Buffer], timeout_ms: int) -> None:
        """Write all in one buffer: TLS has no vectored writes."""
        super().send([chunks[0] if len(chunks) == 1 else b"".join(chunks)], timeout_ms)

    def pending(self) -> bool:
        return self._socket.pending() > 0


def connect(address: Address, config: ClientConfig, timeout_ms: int) -> Stream:
    """A stream to ``address``. Raises NoBrokerReachable with the reason, AuthenticationFailed, ConfigError."""
    until = time.monotonic() + timeout_ms / 1000
    try:
        connected = socket.create_connection(address, timeout=max(timeout_ms, 1) / 1000)
    except TimeoutError:
        raise NoBrokerReachable(f"no broker at {address}: no answer within {timeout_ms} ms") from None
    except socket.gaierror:
        raise NoBrokerReachable(f"no broker at {address}: the host name is not known") from None
    except (OSError, UnicodeError) as error:
        raise NoBrokerReachable(f"no broker at {address}: {_reason(error)}") from None
    try:
        return _stream(connected, address, config, int((until - time.monotonic()) * 1000))
    except BaseException:
        connected.close()
        raise


def _stream(connected: socket.socket, address: Address, config: ClientConfig, timeout_ms: int) -> Stream:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if config.receive_buffer_bytes > 0:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes)
    if config.send_buffer_bytes > 0:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes)
    if config.security is None or config.security.tls is None:
        return TcpStream(connected, address)
    return TlsStream(_shake_hands(connected, address, config.security.tls, timeout_ms), address)


def _shake_hands(connected: socket.socket, address: Address, tls: TlsSettings, timeout_ms: int) -> ssl.SSLSocket:
    """Perform the TLS handshake, which verifies the certificate."""
    context = tls.context()
    try:
        connected.settimeout(max(timeout_ms, 1) / 1000)
        return context.wrap_socket(connected, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        hint = "set ssl.ca.location to the authority that signed it"
        raise AuthenticationFailed(f"the certificate of {address} is refused: {error.verify_message}; {hint}") from None
    except TimeoutError:
        raise NoBrokerReachable(f"{address} does not finish the TLS handshake in time") from None
    except (OSError, ValueError) as error:
        raise NoBrokerReachable(f"no TLS with {address}: {_reason(error)}; is it a TLS port?") from None


def _after(sent: int, chunks: Sequence[Buffer]) -> Iterator[Buffer]:
    """The chunks without their first ``sent`` bytes, not copied."""
    for chunk in chunks:
        if sent < len(chunk):
            yield memoryview(chunk)[sent:]
        sent = max(0, sent - len(chunk))


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
