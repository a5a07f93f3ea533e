"""A TLS connection: the protocol of a socket's transport, and the plaintext transport of a ``ClientConnection`` above
it.

OpenSSL's state is created with the first bytes: silent peers cost only a socket. While the connection above is paused,
at most ``BUFFER_SIZE`` bytes wait encrypted. OpenSSL's buffers never shrink, so bytes pass through them in pieces of
that size.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, Protocol, cast

from oncelog.base.low_water_mark import set_low_water_mark
from oncelog.base.security import ANONYMOUS, SecurityProtocol
from oncelog.base.units import KIB
from oncelog.node.listeners.certificates import read_certificate
from oncelog.node.listeners.principal_mapping import NoRuleApplies
from oncelog.runtime.arrived_bytes import read_arrived
from oncelog.runtime.tls.credentials import Credentials
from oncelog.runtime.tls.handshakes import COMPLETED, FAILED, Handshakes
from oncelog.runtime.tls.record_tracker import RecordTracker

BUFFER_SIZE: Final = 64 * KIB
HANDSHAKE_BYTES: Final = 16 * KIB
"""Bytes read at a time during the handshake."""
# Room for one decrypted TLS record.
_RECORD: Final = 17 * KIB
_HANDSHAKE_RECORD: Final = 0x16


class Above(Protocol):
    """The connection above, as implemented by ``ClientConnection``."""

    peer: str

    def accept(self, transport: asyncio.Transport, admitted: Callable[[], None]) -> None:
        """Count the connection; refuse it, or call ``admitted``, at once or after its delay."""

    def open(self, principal: str, transport: asyncio.Transport | None = None) -> None:
        """Take requests from a plaintext transport."""

    def connection_lost(self, exc: Exception | None) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for decrypted bytes."""

    def buffer_updated(self, nbytes: int) -> None:
        """``nbytes`` were decrypted into the buffer."""

    def undecrypted(self, size: int) -> None:
        """Note how many received bytes wait to be decrypted."""

    def eof_received(self) -> bool:
        """The peer has stopped sending; True if responses may still be sent."""

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def garbage(self, reason: str) -> None:
        """Count and log that the peer is cut off."""


class TlsState(Enum):
    # Unless the first bytes are TLS, the connection fails.
    NEW = "new"
    # Bytes go to OpenSSL on a worker; reading pauses meanwhile.
    HANDSHAKE = "handshake"
    # Bytes are decrypted into the buffer of the connection above, until either side ends.
    OPEN = "open"
    CLOSED = "closed"


class TlsConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        above: Above,
        protocol: SecurityProtocol,
        credentials: Credentials,
        handshakes: Handshakes,
        buffer: memoryview,
    ) -> None:
        self.state = TlsState.NEW
        self._above = above
        self._protocol = protocol
        self._credentials = credentials
        self._handshakes = handshakes
        self._buffer = buffer
        self._below: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # True while the connection above reads nothing.
        self._is_paused = False
        # The size last reported to the connection above.
        self._undecrypted = 0
        self._records = RecordTracker()
        # Bytes that must arrive before the loop wakes (SO_RCVLOWAT).
        self._wakes_from = 1

    @property
    def peer(self) -> str:
        return self._above.peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast("asyncio.Transport", transport)
        self._above.accept(self._below, lambda: self._handshakes.begin(self))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.state is TlsState.OPEN and self._below is not None:
            if exc is not None:
                self._incoming.write(read_arrived(self._below))
            self._is_paused = True
            while self._is_paused and self._incoming.pending:  # the connection above may pause in between
                self._is_paused = False
                self._decrypt()
        self.state = TlsState.CLOSED
        self._handshakes.end(self, FAILED)
        self._above.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer if self.state is TlsState.OPEN else self._buffer[:HANDSHAKE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self.state is TlsState.CLOSED:
            return
        data = self._buffer[:nbytes]
        if self.state is TlsState.NEW:
            # Plain Kafka clients are recognized before OpenSSL is involved.
            if data[0] != _HANDSHAKE_RECORD:
                self._fail("the peer does not speak TLS")
                return
            self._begin()
        self._incoming.write(data)
        self._records.feed(data)
        if self.state is TlsState.OPEN:
            self._decrypt()
            # Nothing more, not even an alert, can be decrypted before the record in progress is complete, so the loop
            # need not wake for each of its packets. It must not wait for a whole request: part of that may be inside
            # OpenSSL already, or the peer may break it off.
            wakes_from = self._records.missing_bytes or 1
            if wakes_from != self._wakes_from:
                self._wake_from(wakes_from)
        else:
            self._step()

    def eof_received(self) -> bool:
        """asyncio: the peer has closed without TLS's close_notify. True: responses may still be sent."""
        return self.state is TlsState.OPEN and self._above.eof_received()

    def pause_writing(self) -> None:
        if self.state is TlsState.OPEN:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self.state is TlsState.OPEN:
            self._above.resume_writing()

    def _begin(self) -> None:
        self.state = TlsState.HANDSHAKE
        server = self._credentials.contexts.server
        self._tls = server.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def _step(self) -> None:
        """Continue the handshake on a worker; nothing else touches OpenSSL's state until it is done."""
        tls, below = self._tls, self._below
        assert tls is not None
        assert below is not None
        if not below.is_closing():
            below.pause_reading()

        def work() -> Callable[[], None]:
            try:
                tls.do_handshake()
                certificate = tls.getpeercert(binary_form=True)
            except ssl.SSLWantReadError:
                return self._wait_for_more
            except (OSError, ValueError) as error:  # SSLError is an OSError
                reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
                return lambda: self._fail(str(reason))
            return lambda: self._completed(certificate)

        self._handshakes.step(self, work)

    def _wait_for_more(self) -> None:
        if self.state is TlsState.HANDSHAKE:
            self._flush()
            self._acknowledge_at_once()
            self._read_on()

    def _acknowledge_at_once(self) -> None:
        # No response follows the end of a handshake, and a peer that gathers small writes (Nagle) holds its first
        # request until it is acknowledged, which would take 40 ms.
        sock = None if self._below is None else self._below.get_extra_info("socket")
        if sock is not None and hasattr(socket, "TCP_QUICKACK"):
            with contextlib.suppress(OSError):  # it has ended already
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _completed(self, certificate: bytes | None) -> None:
        if self.state is not TlsState.HANDSHAKE:
            return
        try:
            principal = self._principal(certificate)
        except (NoRuleApplies, ValueError) as error:
            self._fail(str(error))
            return
        self._flush()
        self._handshakes.end(self, COMPLETED)
        self.state = TlsState.OPEN
        self._above.open(principal, cast("asyncio.Transport", self))
        self._decrypt()
        self._read_on()

    def _principal(self, certificate: bytes | None) -> str:
        """The principal of the client's certificate; anonymous without one, or where SASL identifies the client."""
        if certificate is None or self._protocol.has_sasl:
            return ANONYMOUS
        leaf = read_certificate(certificate)
        if leaf.not_after_s * 1_000_000_000 < time.time_ns():
            raise ValueError("the certificate has expired since its session began")  # a resumed TLS 1.2 session
        return self._credentials.mapping.principal(leaf.subject)

    def _fail(self, reason: str) -> None:
        if self.state is TlsState.CLOSED:
            return
        self._handshakes.end(self, FAILED)
        self._above.garbage(f"TLS: {reason}")
        self._flush()
        self.state = TlsState.CLOSED
        if self._below is not None:
            self._below.close()

    def _decrypt(self) -> None:
        """Decrypt what has arrived, as much at a time as the buffer above takes."""
        tls, above = self._tls, self._above
        assert tls is not None
        is_over = is_partial = False
        while self._incoming.pending and not (is_over or is_partial or self._is_paused) and self.state is TlsState.OPEN:
            buffer = above.get_buffer(-1)
            filled = 0
            try:
                while (
                    self._incoming.pending and len(buffer) - filled >= _RECORD
                ):  # OpenSSL keeps nothing decrypted back
                    count = cast("int", tls.read(len(buffer) - filled, cast("bytearray", buffer[filled:])))
                    if not count:
                        is_over = True
                        break
                    filled += count
            except ssl.SSLWantReadError:
                is_partial = True
            except (OSError, ValueError) as error:
                self._fail(getattr(error, "reason", None) or str(error))
                return
            if filled:
                above.buffer_updated(filled)
            if is_over and not above.eof_received():
                self.close()
        if self._outgoing.pending:
            self._flush()
        left = self._incoming.pending if self.state is TlsState.OPEN else 0
        if left != self._undecrypted:
            self._undecrypted = left
            above.undecrypted(left)

    def _wake_from(self, size_bytes: int) -> None:
        sock = None if self._below is None else self._below.get_extra_info("socket")
        if sock is not None and set_low_water_mark(sock, size_bytes):
            self._wakes_from = size_bytes

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None:
            self._below.write(self._outgoing.read())

    def _read_on(self) -> None:
        if not self._is_paused and self._below is not None and not self._below.is_closing():
            self._below.resume_reading()

        # The methods of asyncio.Transport that the connection above uses

    def write(self, data: Any) -> None:
        tls, below = self._tls, self._below
        if self.state is not TlsState.OPEN or tls is None or below is None:
            return
        view = memoryview(data)
        try:
            for start in range(0, len(view), BUFFER_SIZE):
                tls.write(view[start : start + BUFFER_SIZE])
                below.write(self._outgoing.read())
        except OSError as error:
            self._fail(getattr(error, "reason", None) or str(error))

    def writelines(self, parts: Iterable[Any]) -> None:
        for part in parts:
            self.write(part)

    def pause_reading(self) -> None:
        self._is_paused = True
        if self.state is TlsState.OPEN and self._below is not None and not self._below.is_closing():
            self._below.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self.state is TlsState.OPEN:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self.state is TlsState.OPEN:
            self._decrypt()
            self._read_on()

    def close(self) -> None:
        """Send close_notify after the queued bytes, then close."""
        if self.state is TlsState.OPEN and self._tls is not None:
            with contextlib.suppress(OSError):  # it would wait for the peer's close_notify, or the peer is gone
                self._tls.unwrap()
            self._flush()
        self.state = TlsState.CLOSED
        if self._below is not None:
            self._below.close()

    def abort(self) -> None:
        self.state = TlsState.CLOSED
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        return self._below is None or self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._below is None else self._below.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._below is None else self._below.get_write_buffer_size()
