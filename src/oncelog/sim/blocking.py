"""Runs blocking code on the simulated loop: production tools run unchanged in virtual time.

The code runs in a thread, but never concurrently: to block, it gives the loop a coroutine and waits for the result. The
loop alone decides the order, so a seed determines the run (ADR 0007). When the code's host dies, the current wait
raises, and so does every later one.
"""

from __future__ import annotations

import asyncio
import random
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from threading import Thread
from typing import Any, Final, Generic, TypeVar, cast

from oncelog.client.blocking.client import Client
from oncelog.client.blocking.stream import Stream
from oncelog.client.config import Address, ClientConfig
from oncelog.client.errors import ConnectionLost, NoBrokerReachable
from oncelog.sim.virtual.world import CLIENT_CONFIG, ClientHost
from oncelog.wire.chunks import Buffer

T = TypeVar("T")
_NOT_CONNECTED: Final = -1


class Baton(Generic[T]):
    """One piece of blocking code: the loop calls :meth:`run`, the code calls :meth:`wait`."""

    def __init__(self, work: Callable[[Baton[T]], T]) -> None:
        self._work = work
        self._code_may_run = _acquired_lock()
        self._loop_may_run = _acquired_lock()
        self._pending: Coroutine[Any, Any, Any] | None = None
        self._outcome: Any = None
        # The exception of the last await, for the code to raise; after the end, the exception of the code.
        self._failure: BaseException | None = None
        self._cut_short: BaseException | None = None
        self._result: T

    async def run(self) -> T:
        """Run the code to its end. Raises its exception."""
        thread = Thread(target=self._thread, daemon=True)
        thread.start()
        self._switch()
        while self._pending is not None:
            self._outcome = self._failure = None
            try:
                self._outcome = await self._pending
            except Exception as error:  # noqa: BLE001 - the code handles it
                self._failure = error
            except BaseException as end:  # noqa: BLE001 - cancelled or closed: raised after the code unwinds
                self._failure = self._cut_short = end
            self._switch()
        thread.join()
        if self._cut_short is not None:
            raise self._cut_short
        if self._failure is not None:
            raise self._failure
        return self._result

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Called in the thread: let the loop await a coroutine. Raises its exception."""
        if self._cut_short is not None:
            coroutine.close()
            raise self._cut_short
        self._pending = coroutine
        self._loop_may_run.release()
        self._code_may_run.acquire()
        if self._failure is not None:
            raise self._failure
        return self._outcome

    def _switch(self) -> None:
        self._code_may_run.release()
        self._loop_may_run.acquire()

    def _thread(self) -> None:
        self._code_may_run.acquire()
        try:
            self._result = self._work(self)
            self._failure = None
        except BaseException as error:  # noqa: BLE001 - run() raises it
            self._failure = error
        self._pending = None
        self._loop_may_run.release()


class SimulatedSystem:
    def __init__(self, baton: Baton[Any], host: ClientHost, breaks_after: int | None = None) -> None:
        self._baton = baton
        self._sends_left = breaks_after
        self._kernel = host.world.kernel
        self._entropy: random.Random = host.world.kernel.entropy("jitter")

    def connect(self, address: Address, config: ClientConfig, timeout_ms: int) -> SimulatedStream:
        stream = SimulatedStream(self._baton, address, self._survives_send)
        try:
            self._baton.wait(_within(timeout_ms, stream.open()))
        except (TimeoutError, OSError) as error:
            raise NoBrokerReachable(f"no broker at {address}: {error}") from None
        return stream

    def _survives_send(self) -> bool:
        # `breaks_after` sends succeed, the last of them breaks the connection.
        if self._sends_left is None:
            return True
        self._sends_left -= 1
        return self._sends_left != 0

    def now_ms(self) -> int:
        return self._kernel.now_ms()

    def now_us(self) -> int:
        return self._kernel.now_us

    def wall_ms(self) -> int:
        # Clocks of clients are exact.
        return self._kernel.now_ms()

    def sleep(self, milliseconds: float) -> None:
        self._baton.wait(asyncio.sleep(milliseconds / 1000))

    def wait(self, streams: Sequence[Stream], wait_ms: float) -> bool:
        if not any(stream.pending() for stream in streams):
            own = cast("Sequence[SimulatedStream]", streams)
            self._baton.wait(_first([stream.wait_for_bytes(int(wait_ms)) for stream in own]))
        return any(stream.pending() for stream in streams)

    def jitter(self, least: int, most: int) -> int:
        return self._entropy.randint(least, most)


class SimulatedStream(asyncio.Protocol):
    """A stream over the simulated network. See ``oncelog.client.blocking.stream.Stream``."""

    def __init__(self, baton: Baton[Any], address: Address, survives_send: Callable[[], bool]) -> None:
        self._baton = baton
        self._address = address
        self._survives_send = survives_send
        self._transport: asyncio.Transport | None = None
        self._received: deque[memoryview] = deque()
        self._ended = False
        self._awaited: asyncio.Future[None] | None = None

    async def open(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, self._address.host, self._address.port)

    def send(self, chunks: Sequence[Buffer], timeout_ms: int) -> None:
        # Write all chunks: the network has no limit.
        if self._ended or self._transport is None:
            raise ConnectionLost(f"the connection to {self._address} broke")
        if not self._survives_send():
            self._transport.abort()
            raise ConnectionLost(f"the connection to {self._address} broke")
        self._transport.writelines(chunks)

    def receive_into(self, buffer: memoryview, timeout_ms: int) -> int:
        """Wait for at least one byte. Returns 0 after the timeout."""
        if not self._received and not self._ended and timeout_ms > 0:
            self._baton.wait(self.wait_for_bytes(timeout_ms))
        if not self._received:
            if self._ended:
                raise ConnectionLost(f"{self._address} closed the connection")
            return 0
        data = self._received.popleft()
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        if count < len(data):
            self._received.appendleft(data[count:])
        return count

    def fileno(self) -> int:
        # Returns -1: a simulated stream has no file descriptor.
        return _NOT_CONNECTED

    def expect(self, count: int) -> None:
        """Does nothing: chunks are delivered as they arrive."""

    def pending(self) -> bool:
        return bool(self._received)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def wait_for_bytes(self, timeout_ms: int) -> None:
        self._awaited = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._awaited
        except TimeoutError:
            pass
        finally:
            self._awaited = None

    def _wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received.append(memoryview(data))
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._wake()


async def with_client(
    host: ClientHost,
    work: Callable[[Client], T],
    config: ClientConfig = CLIENT_CONFIG,
    *,
    breaks_after: int | None = None,
) -> T:
    """Run blocking code with a production client on a simulated host. ``breaks_after``: the connection breaks after
    this many sends, including those of the handshake.
    """

    def in_thread(baton: Baton[T]) -> T:
        with Client(host.world.bootstrap, config=config, system=SimulatedSystem(baton, host, breaks_after)) as client:
            return work(client)

    return await Baton(in_thread).run()


async def _first(waits: Sequence[Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _within(timeout_ms: int, work: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(timeout_ms / 1000):
        return await work


def _acquired_lock() -> LockType:
    lock = allocate_lock()
    lock.acquire()
    return lock
