"""A link: one blocking stream to one broker, and its connection state machine; responses are collected in any order.

Any failure closes the link and loses every request in flight; waiting callers get ConnectionLost and decide whether to
retry. Responses that arrive while a caller waits for another one are kept.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final, TypeVar

from oncelog.base.errors import PeerError
from oncelog.base.units import MIB
from oncelog.client.blocking.stream import Stream
from oncelog.client.blocking.system import THIS_MACHINE, System, now_ms
from oncelog.client.config import Address, ClientConfig
from oncelog.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedRequest,
    says_nothing,
)
from oncelog.client.machine.connection import Connection, ExpectedBroker, Phase, Response
from oncelog.client.machine.sasl.exchange import SaslMachine
from oncelog.client.machine.versions import OLD_BROKERS, Versions
from oncelog.wire.chunks import Chunk
from oncelog.wire.message import Request
from oncelog.wire.message import Response as ResponseMessage

R = TypeVar("R", bound=ResponseMessage)
T = TypeVar("T")

MAX_BYTES_OF_STRANGERS: Final = MIB
"""The largest response accepted before authentication."""


__all__ = ["Link", "now_ms"]


class Link:
    def __init__(
        self,
        address: Address,
        config: ClientConfig,
        system: System = THIS_MACHINE,
        expected_broker: ExpectedBroker | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Connect, negotiate versions, authenticate, all within ``timeout_ms`` (at most and by default
        ``config.open_timeout_ms``).

        Raises NoBrokerReachable, RequestTimedOut, AuthenticationFailed, ConnectionLost.
        """
        self.address = address
        self._config = config
        self._now_ms = system.now_ms
        self._arrived: dict[int, Response[Any]] = {}
        self._machine = Connection(
            config.client_id,
            max_response_bytes=MAX_BYTES_OF_STRANGERS,
            assumed=OLD_BROKERS.get(config.assumed_broker_version),
            expected_broker=expected_broker,
        )
        self._machine.keep(config.max_kept_bytes)
        self._authenticate_at_ms: int | None = None
        allowed = config.open_timeout_ms if timeout_ms is None else min(timeout_ms, config.open_timeout_ms)
        deadline = self._now_ms() + allowed
        self.stream: Stream = system.connect(address, config, allowed)
        try:
            self._send(self._machine.start())
            while self._machine.phase is not Phase.READY:
                if not self._read(deadline - self._now_ms()) and self._now_ms() >= deadline:
                    raise says_nothing(address, allowed)
            if self._authenticate(deadline) and (check := self._machine.broker_check()) is not None:
                self._machine.check_broker(self.call(check, timeout_ms=deadline - self._now_ms()))
            self._machine.limit(config.max_response_bytes)
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """True while requests can be submitted."""
        return self._machine.phase is Phase.READY

    @property
    def versions(self) -> Versions:
        """The API versions and features that the broker announced."""
        return self._machine.versions

    def fileno(self) -> int:
        """The descriptor to poll when waiting on several links; check ``pending`` first."""
        return self.stream.fileno()

    @property
    def missing(self) -> int:
        """Bytes still to come of a large response; 0 if none is in progress."""
        return self._machine.missing

    def pending(self) -> bool:
        return bool(self._arrived) or self.stream.pending()

    def submit(self, message: Request[Any], version: int | None = None, *, answered: bool = True) -> int:
        """Send a request. Returns its correlation id. Raises UnsupportedRequest, ConnectionLost, RequestTimedOut."""
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        # KIP-368: the broker closes connections whose session has expired.
        if self._authenticate_at_ms is not None and self._now_ms() >= self._authenticate_at_ms:
            self._authenticate_again()
        correlation_id, chunks = self._machine.send(message, version, answered=answered)
        self._send(chunks)
        return correlation_id

    def response(self, correlation_id: int, timeout_ms: int | None = None) -> Response[Any]:
        """Wait for the response to one request. Raises RequestTimedOut (closing the link) and ConnectionLost."""
        allowed = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._now_ms() + allowed
        while correlation_id not in self._arrived:
            left = deadline - self._now_ms()
            if left <= 0:
                self.close()
                raise RequestTimedOut(f"no answer from {self.address} within {allowed} ms")
            self._read(left)
        return self._arrived.pop(correlation_id)

    def arrived(self, correlation_id: int) -> Response[Any] | None:
        """The response if it has arrived or can be read without waiting, else None. Raises ConnectionLost."""
        while correlation_id not in self._arrived and self._read(0):
            pass
        return self._arrived.pop(correlation_id, None)

    def has_arrived(self, correlation_id: int) -> bool:
        return correlation_id in self._arrived

    def call(self, message: Request[R], version: int | None = None, timeout_ms: int | None = None) -> R:
        """Submit, wait, decode. Raises what ``submit``, ``response`` and ``decode`` raise."""
        response: Response[R] = self.response(self.submit(message, version), timeout_ms)
        return self.decode(response)

    def decode(self, response: Response[R]) -> R:
        """The decoded message. A response that cannot be decoded closes the link and raises ConnectionLost."""
        return self.read(response, Response.decode)

    def read(self, response: Response[R], read: Callable[[Response[R]], T]) -> T:
        """The result of ``read``. If it raises PeerError, the link is closed and ConnectionLost raised."""
        try:
            return read(response)
        except PeerError as error:
            self.close()
            raise ConnectionLost(f"{self.address} does not speak the Kafka protocol: {error}") from error

    def close(self) -> None:
        self._machine.close()
        self.stream.close()

    abort = close

    def _authenticate(self, deadline_ms: int | None = None) -> bool:
        sasl = self._config.security.sasl if self._config.security is not None else None
        self._authenticate_at_ms = None
        if sasl is None:
            return False
        machine = SaslMachine(sasl, secrets.token_urlsafe(24))
        while not machine.done:
            try:
                left = None if deadline_ms is None else deadline_ms - self._now_ms()
                machine.answered(self.call(machine.next_request(), timeout_ms=left))
            except UnsupportedRequest:
                raise AuthenticationFailed(f"{self.address} does not ask for SASL; is it another listener?") from None
        if machine.session_lifetime_ms:
            self._authenticate_at_ms = self._now_ms() + machine.session_lifetime_ms * 85 // 100
        return True

    def _authenticate_again(self) -> None:
        """Authenticate again before the session's lifetime ends (KIP-368), once nothing is in flight."""
        self._authenticate_at_ms = None
        deadline = self._now_ms() + self._config.request_timeout_ms
        while self._machine.in_flight:
            if self._now_ms() >= deadline:
                self.close()
                raise RequestTimedOut(f"no answer from {self.address} before authenticating again")
            self._read(deadline - self._now_ms())
        try:
            self._authenticate()
        except ClientError:
            self.close()
            raise

    def _send(self, chunks: list[Chunk]) -> None:
        if not chunks:
            return
        buffers = [chunk for chunk in chunks if isinstance(chunk, (bytes, bytearray, memoryview))]
        try:
            self.stream.send(buffers, self._config.request_timeout_ms)
        except BaseException:  # an interrupt, too: a part of a request may have been sent
            self.close()
            raise

    def _read(self, timeout_ms: int) -> bool:
        """Receive within ``timeout_ms``. Returns True if any bytes arrived."""
        if self._machine.phase is Phase.CLOSED:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        try:
            count = self.stream.receive_into(self._machine.buffer(), timeout_ms)
            if not count:
                return False
            self._send(self._machine.received(count))
            while (response := self._machine.next_response()) is not None:
                self._arrived[response.correlation_id] = response
            self.stream.expect(self._machine.missing)
        except PeerError as error:
            self.close()
            raise ConnectionLost(f"{self.address} does not speak the Kafka protocol: {error}") from error
        except BaseException:  # an interrupt, too: bytes that were received may be lost
            self.close()
            raise
        return True
