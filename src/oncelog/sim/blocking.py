"""Blocking code on the simulated loop: the production tools run in virtual time as they are.

The tool gets a thread, but never runs beside anybody: thread and loop hand one baton to each other. Whenever the code
would block it gives the loop a coroutine to await, and stands still until the loop gives back what came of it. So
nothing is concurrent, the order is the loop's, and same seed is same run (ADR 0007). A host that dies ends the code
where it stands: the wait raises, and every further one, too.
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
    """One piece of blocking code: :meth:`run` on the loop's side, :meth:`wait` on the code's."""

    def __init__(self, work: Callable[[Baton[T]], T]) -> None:
        self._work = work
        self._go = _held()
        self._back = _held()
        self._asked: Coroutine[Any, Any, Any] | None = None
        self._answer: Any = None
        self._failure: BaseException | None = None
        """The exception of the last await, for the code; at the end the exception of the code."""
        self._cut_short: BaseException | None = None
        self._result: T

    async def run(self) -> T:
        """Run it to its end; what it returns. Raises what it raises."""
        thread = Thread(target=self._thread, daemon=True)
        thread.start()
        self._switch()
        while self._asked is not None:
            self._answer = self._failure = None
            try:
                self._answer = await self._asked
            except Exception as error:  # noqa: BLE001 - it is the code's
                self._failure = error
            except BaseException as end:  # noqa: BLE001 - cancelled, or closed: the code unwinds, and then it is raised
                self._failure = self._cut_short = end
            self._switch()
        thread.join()
        if self._cut_short is not None:
            raise self._cut_short
        if self._failure is not None:
            raise self._failure
        return self._result

    def wait(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """Let the loop await something, from the thread; what came of it. Raises what that raised."""
        if self._cut_short is not None:
            asked.close()
            raise self._cut_short
        self._asked = asked
        self._back.release()
        self._go.acquire()
        if self._failure is not None:
            raise self._failure
        return self._answer

    def _switch(self) -> None:
        self._go.release()
        self._back.acquire()

    def _thread(self) -> None:
        self._go.acquire()
        try:
            self._result = self._work(self)
            self._failure = None
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            self._failure = error
        self._asked = None
        self._back.release()


class SimulatedSystem:
    """The System port of the blocking client on a simulated host."""

    def __init__(self, baton: Baton[Any], host: ClientHost, breaks_after: int | None = None) -> None:
        self._baton = baton
        self._sends_left = breaks_after
        self._kernel = host.world.kernel
        self._entropy: random.Random = host.world.kernel.entropy("jitter")

    def connect(self, address: Address, config: ClientConfig, timeout_ms: int) -> SimulatedStream:
        stream = SimulatedStream(self._baton, address, self._sending)
        try:
            self._baton.wait(_within(timeout_ms, stream.open()))
        except (TimeoutError, OSError) as error:
            raise NoBrokerReachable(f"no broker at {address}: {error}") from None
        return stream

    def _sending(self) -> bool:
        """True when a connection holds while something is sent on it."""
        if self._sends_left is None:
            return True
        self._sends_left -= 1
        return self._sends_left != 0

    def now_ms(self) -> int:
        return self._kernel.now_ms()

    def now_us(self) -> int:
        return self._kernel.now_us

    def wall_ms(self) -> int:
        """Virtual time; clients' clocks are right."""
        return self._kernel.now_ms()

    def sleep(self, milliseconds: float) -> None:
        self._baton.wait(asyncio.sleep(milliseconds / 1000))

    def wait(self, streams: Sequence[Stream], wait_ms: float) -> bool:
        """Let virtual time pass until bytes come on one of them."""
        if not any(stream.pending() for stream in streams):
            own = cast("Sequence[SimulatedStream]", streams)
            self._baton.wait(_first([stream.something(int(wait_ms)) for stream in own]))
        return any(stream.pending() for stream in streams)

    def jitter(self, least: int, most: int) -> int:
        """A pause between the two, by seed."""
        return self._entropy.randint(least, most)


class SimulatedStream(asyncio.Protocol):
    """A stream over the simulated network; see ``oncelog.client.blocking.stream.Stream``."""

    def __init__(self, baton: Baton[Any], address: Address, holds: Callable[[], bool]) -> None:
        self._baton = baton
        self._address = address
        self._holds = holds
        self._transport: asyncio.Transport | None = None
        self._came: deque[memoryview] = deque()
        self._ended = False
        self._awaited: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Connect. Raises OSError."""
        await asyncio.get_running_loop().create_connection(lambda: self, self._address.host, self._address.port)

    def send(self, chunks: Sequence[Buffer], timeout_ms: int) -> None:
        """Write all of it; the network takes whatever it is given."""
        if self._ended or self._transport is None:
            raise ConnectionLost(f"the connection to {self._address} broke")
        if not self._holds():
            self._transport.abort()
            raise ConnectionLost(f"the connection to {self._address} broke")
        self._transport.writelines(chunks)

    def receive_into(self, buffer: memoryview, timeout_ms: int) -> int:
        """Wait for at least one byte; 0 when none came in time."""
        if not self._came and not self._ended and timeout_ms > 0:
            self._baton.wait(self.something(timeout_ms))
        if not self._came:
            if self._ended:
                raise ConnectionLost(f"{self._address} closed the connection")
            return 0
        data = self._came.popleft()
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        if count < len(data):
            self._came.appendleft(data[count:])
        return count

    def fileno(self) -> int:
        """Refuse: there is no file."""
        return _NOT_CONNECTED

    def expect(self, count: int) -> None:
        """Do nothing: what has come is taken as it is."""

    def pending(self) -> bool:
        """True when bytes have arrived already."""
        return bool(self._came)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def something(self, timeout_ms: int) -> None:
        """Wait until bytes come, or the end, or the time is up."""
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

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came.append(memoryview(data))
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
    """Run blocking code with a production client of the cluster on a host. Raises what it raises.

    ``breaks_after``: the connection breaks when so much has been sent, requests and what comes before them.
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


def _held() -> LockType:
    lock = allocate_lock()
    lock.acquire()
    return lock
