"""A link: one asyncio stream to one broker with its connection machine; each call awaits its own response.

After any failure the link is closed, and every call in flight on it fails with ConnectionLost. One task reads; callers
write. A cancelled or timed-out call closes the link, because its response would still arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

from oncelog.base.errors import PeerError
from oncelog.base.units import MIB
from oncelog.client.config import Address, ClientConfig
from oncelog.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionLost,
    NoBrokerReachable,
    RebootstrapRequired,
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
_READ_BYTES: Final = 256 * 1024
_TLS_CLOSE_S: Final = 1.0


class AsyncLink:
    def __init__(
        self,
        address: Address,
        config: ClientConfig,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        expected_broker: ExpectedBroker | None = None,
    ) -> None:
        self.address = address
        self._config = config
        self._reader = reader
        self._writer = writer
        self._machine = Connection(
            config.client_id,
            max_response_bytes=MAX_BYTES_OF_STRANGERS,
            assumed=OLD_BROKERS.get(config.assumed_broker_version),
            expected_broker=expected_broker,
        )
        self._waiting: dict[int, asyncio.Future[Response[Any]]] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._authenticate_at_s: float | None = None
        self._authenticating = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        address: Address,
        config: ClientConfig,
        expected_broker: ExpectedBroker | None = None,
        timeout_ms: int | None = None,
    ) -> Self:
        """Connect, negotiate versions, authenticate, all within ``timeout_ms`` (at most and by default
        ``config.open_timeout_ms``).

        Raises NoBrokerReachable, RequestTimedOut, AuthenticationFailed, ConnectionLost.
        """
        allowed = config.open_timeout_ms if timeout_ms is None else min(timeout_ms, config.open_timeout_ms)
        link: Self | None = None
        try:
            async with asyncio.timeout(allowed / 1000):
                link = cls(address, config, *await _connect(address, config), expected_broker)
                try:
                    await link._begin()
                except BaseException:
                    await link.close()
                    raise
                return link
        except TimeoutError:
            if link is not None:
                raise says_nothing(address, allowed) from None
            raise NoBrokerReachable(f"no broker at {address}: no answer within {allowed} ms") from None

    @property
    def is_open(self) -> bool:
        return self._machine.phase is Phase.READY

    @property
    def versions(self) -> Versions:
        """The API versions and features that the broker announced."""
        return self._machine.versions

    async def call(
        self, message: Request[R], version: int | None = None, timeout_ms: int | None = None, *, answered: bool = True
    ) -> R:
        """Send a request and wait for its response (with acks=0 an empty one, at once).

        Raises ConnectionLost, RequestTimedOut, UnsupportedRequest.
        """
        response = await self.ask(message, version, timeout_ms, Response.decode, answered=answered)
        return response if answered else message.response_class()()

    async def ask(
        self,
        message: Request[R],
        version: int | None,
        timeout_ms: int | None,
        read: Callable[[Response[R]], T],
        *,
        answered: bool = True,
    ) -> T:
        """Like ``call``; the result is ``read`` of the response."""
        await self._stay_authenticated()
        return await self._ask(message, version, timeout_ms, read, answered)

    def abort(self) -> None:
        """Close the link at once; requests in flight are lost."""
        self._fail(f"the connection to {self.address} is closed")
        if self._reading is not None:
            self._reading.cancel()

    async def close(self) -> None:
        """Close the link; requests in flight are lost."""
        self.abort()
        if self._reading is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _begin(self) -> None:
        self._write(self._machine.start())
        self._reading = asyncio.create_task(self._read())
        await self._ready
        if await self._authenticate() and (check := self._machine.broker_check()) is not None:
            self._machine.check_broker(await self.call(check))
        # Large responses are accepted only from an authenticated broker.
        self._machine.limit(self._config.max_response_bytes)

    async def _ask(
        self,
        message: Request[R],
        version: int | None,
        timeout_ms: int | None,
        read: Callable[[Response[R]], T],
        answered: bool = True,
    ) -> T:
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        correlation_id, chunks = self._machine.send(message, version, answered=answered)
        future: asyncio.Future[Response[Any]] = asyncio.get_running_loop().create_future()
        if answered:
            self._waiting[correlation_id] = future
        self._write(chunks)
        allowed = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(allowed / 1000):
                await self._writer.drain()
                if not answered:
                    return None  # type: ignore[return-value]  # ``call`` has an empty response for it
                response = await future
            return read(response)
        except TimeoutError:
            self._fail(f"the connection to {self.address} is closed: an answer did not come")
            raise RequestTimedOut(f"no answer from {self.address} within {allowed} ms") from None
        except OSError as error:
            self._fail(f"the connection to {self.address} broke: {error}")
            raise ConnectionLost(f"the connection to {self.address} broke: {error}") from None
        except PeerError as error:
            self._fail(f"{self.address} does not speak the Kafka protocol: {error}")
            raise ConnectionLost(f"{self.address} does not speak the Kafka protocol: {error}") from error
        except asyncio.CancelledError:
            self._fail(f"the connection to {self.address} is closed: a call was cancelled")
            raise

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(_READ_BYTES):
                self._write(self._machine.feed(data))
                if self.is_open and not self._ready.done():
                    self._ready.set_result(None)
                while (response := self._machine.next_response()) is not None:
                    waiting = self._waiting.pop(response.correlation_id, None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(response)
            self._fail(f"{self.address} closed the connection")
        except PeerError as error:
            self._fail(f"{self.address} does not speak the Kafka protocol: {error}")
        except OSError as error:
            self._fail(f"the connection to {self.address} broke: {error}")
        except RebootstrapRequired as error:
            self._fail(error)

    def _write(self, chunks: list[Chunk]) -> None:
        if chunks:
            self._writer.writelines([chunk for chunk in chunks if isinstance(chunk, (bytes, bytearray, memoryview))])

    def _fail(self, reason: str | ConnectionLost) -> None:
        """Close the link; calls in flight raise ConnectionLost."""
        self._machine.close()
        self._writer.close()
        lost: list[asyncio.Future[Any]] = [self._ready, *self._waiting.values()]
        for future in lost:
            if not future.done():
                future.set_exception(reason if isinstance(reason, ConnectionLost) else ConnectionLost(reason))
                future.exception()  # retrieved, or asyncio would warn about it
        self._waiting.clear()

    async def _stay_authenticated(self) -> None:
        """Authenticate again before the session's lifetime ends (KIP-368), once nothing is in flight."""
        if self._authenticate_at_s is None:
            return
        async with self._authenticating:
            due = self._authenticate_at_s
            if due is None or asyncio.get_running_loop().time() < due:
                return
            # Brokers refuse other requests during SASL.
            if self._waiting:
                await asyncio.wait(list(self._waiting.values()), timeout=self._config.request_timeout_ms / 1000)
            try:
                await self._authenticate()
            except ClientError:
                self._fail(f"the connection to {self.address} is closed: it could not authenticate again")
                raise

    async def _authenticate(self) -> bool:
        sasl = self._config.security.sasl if self._config.security is not None else None
        self._authenticate_at_s = None
        if sasl is None:
            return False
        machine = SaslMachine(sasl, secrets.token_urlsafe(24))
        while not machine.done:
            try:
                response = await self._ask(machine.next_request(), None, None, Response.decode)
            except UnsupportedRequest:
                raise AuthenticationFailed(f"{self.address} does not ask for SASL; is it another listener?") from None
            await asyncio.to_thread(machine.answered, response)  # a password's key takes milliseconds to derive
        if machine.session_lifetime_ms:
            self._authenticate_at_s = asyncio.get_running_loop().time() + machine.session_lifetime_ms * 0.85 / 1000
        return True


async def _connect(address: Address, config: ClientConfig) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls = config.security.tls if config.security is not None else None
    # Loading certificates reads files: not on the event loop.
    context = None if tls is None else await asyncio.to_thread(tls.context)
    try:
        return await asyncio.open_connection(
            address.host,
            address.port,
            ssl=context,
            server_hostname=address.host if context else None,
            # A frozen broker does not answer the closing alert.
            ssl_shutdown_timeout=_TLS_CLOSE_S if context else None,
        )
    except ssl.SSLCertVerificationError as error:
        hint = "set ssl.ca.location to the authority that signed it"
        raise AuthenticationFailed(f"the certificate of {address} is refused: {error.verify_message}; {hint}") from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoBrokerReachable(f"no broker at {address}: {reason.lower()}") from None
