"""Bridge from a generator in a thread to the event loop, a few values ahead of the consumer.

The generator waits until its values are consumed. A consumer that stops stops it, at its next value at the latest. At
the console's shutdown, a waiting consumer gets ``ConsoleEnds``.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Executor
from typing import Final, Generic, TypeVar

from oncelog.client.errors import ClientError

T = TypeVar("T")
Stopped = Callable[[], bool]
ALIVE_S: Final = 15.0
_CHECK_EVERY_S: Final = 0.2  # A thread that waits for room checks this often whether its consumer has stopped.


class ConsoleEnds(ClientError):
    """The console is shutting down."""

    def __init__(self) -> None:
        super().__init__("the console is shutting down")


class Shutdown:
    """Signals the console's shutdown to waiting consumers; used in the event loop only."""

    def __init__(self) -> None:
        self.has_begun = False
        self._waking: set[Callable[[], None]] = set()

    def begin(self) -> None:
        """Wake all present waiters; later ones do not wait."""
        self.has_begun = True
        for wake in self._waking:
            wake()

    @contextlib.contextmanager
    def calling(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake`` at shutdown, within the block."""
        self._waking.add(wake)
        try:
            yield
        finally:
            self._waking.discard(wake)


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Producer(Generic[T]):
    def __init__(self, make: Callable[[Stopped], Generator[T, None, None]], ahead: int) -> None:
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(ahead)
        self._is_stopped = threading.Event()
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue()

    def run(self, ended: Callable[[], None]) -> None:
        try:
            self._put(_End(self._produce()))
        finally:
            self._in_loop(ended)

    def stop(self) -> None:
        self._is_stopped.set()

    def end(self, error: BaseException) -> None:
        self._queue.put_nowait(_End(error))

    async def next(self) -> T | _End | None:
        """The next value, or the end; None after ``ALIVE_S`` without one."""
        try:
            item = await asyncio.wait_for(self._queue.get(), ALIVE_S)
        except TimeoutError:
            return None
        self._room.release()
        return item

    def _produce(self) -> BaseException | None:
        """Pass on values until the consumer stops; returns the generator's error, if any."""
        try:
            with contextlib.closing(self._make(self._is_stopped.is_set)) as values:
                for item in values:
                    self._put(item)
                    del item  # It may be large, and producing the next one takes time.
                    if self._is_stopped.is_set():
                        break
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer
            return error
        return None

    def _put(self, item: T | _End) -> None:
        while not self._room.acquire(timeout=_CHECK_EVERY_S):
            if self._is_stopped.is_set() or self._loop.is_closed():
                return
        if not self._is_stopped.is_set():
            self._in_loop(self._queue.put_nowait, item)

    def _in_loop(self, callback: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: the console has stopped.
            self._loop.call_soon_threadsafe(callback, *arguments)


async def pumped(
    pool: Executor,
    make: Callable[[Stopped], Generator[T, None, None]],
    ahead: int,
    ended: Callable[[], None],
    shutdown_signal: Shutdown,
) -> AsyncIterator[T | None]:
    """Yield the values, and None after ``ALIVE_S`` without one. Raises the generator's errors, and ConsoleEnds.

    ``ended`` is called when the thread is free again, perhaps after this returns.
    """
    producer = _Producer(make, ahead)
    pool.submit(producer.run, ended)
    try:
        with shutdown_signal.calling(lambda: producer.end(ConsoleEnds())):
            while not shutdown_signal.has_begun:
                item = await producer.next()
                if not isinstance(item, _End):
                    yield item
                elif item.error is not None:
                    raise item.error
                else:
                    return
            raise ConsoleEnds
    finally:
        producer.stop()
