"""From a thread to the event loop: values that a generator makes in a thread, a few ahead of who takes them.

The rules: what is not taken in time is waited for, so nothing is gathered here; who stops taking stops the generator,
at the latest at its next value. When the console ends, who waits for a value is told (``ConsoleEnds``).
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
_LOOK_EVERY_S: Final = 0.2
"""Pauses after which a thread that waits for room looks whether anybody still takes."""


class ConsoleEnds(ClientError):
    """The console is being ended, and waits for nothing any more."""

    def __init__(self) -> None:
        super().__init__("the console was ended")


class Farewell:
    """The end of the console, for those that wait for values; used from the event loop alone."""

    def __init__(self) -> None:
        self.is_said = False
        self._waking: set[Callable[[], None]] = set()

    def say(self) -> None:
        """Tell all that wait now, and all that wait later."""
        self.is_said = True
        for wake in self._waking:
            wake()

    @contextlib.contextmanager
    def told_to(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake`` when it is said, as long as the block lasts."""
        self._waking.add(wake)
        try:
            yield
        finally:
            self._waking.discard(wake)


class _End:
    """The generator's end, with its error."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Maker(Generic[T]):
    """A generator that runs in a thread, and the queue from it into the event loop."""

    def __init__(self, make: Callable[[Stopped], Generator[T, None, None]], ahead: int) -> None:
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(ahead)
        self._is_stopped = threading.Event()
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue()

    def run(self, ended: Callable[[], None]) -> None:
        """Make the values, in a thread, and call ``ended`` in the event loop."""
        try:
            self._put(_End(self._made()))
        finally:
            self._in_loop(ended)

    def stop(self) -> None:
        self._is_stopped.set()

    def end(self, error: BaseException) -> None:
        """Have who takes the values get an error in their place."""
        self._queue.put_nowait(_End(error))

    async def next(self) -> T | _End | None:
        """The next value, or the end; None after ``ALIVE_S`` without one."""
        try:
            item = await asyncio.wait_for(self._queue.get(), ALIVE_S)
        except TimeoutError:
            return None
        self._room.release()
        return item

    def _made(self) -> BaseException | None:
        """Hand on the values as long as they are taken: the error that ended them, if one did."""
        try:
            with contextlib.closing(self._make(self._is_stopped.is_set)) as values:
                for item in values:
                    self._put(item)
                    del item  # It may be large, and the next one takes time to make.
                    if self._is_stopped.is_set():
                        break
        except BaseException as error:  # noqa: BLE001 - it is raised where the values are taken
            return error
        return None

    def _put(self, item: T | _End) -> None:
        while not self._room.acquire(timeout=_LOOK_EVERY_S):
            if self._is_stopped.is_set() or self._loop.is_closed():
                return
        if not self._is_stopped.is_set():
            self._in_loop(self._queue.put_nowait, item)

    def _in_loop(self, callback: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended, and the console with it.
            self._loop.call_soon_threadsafe(callback, *arguments)


async def pumped(
    pool: Executor,
    make: Callable[[Stopped], Generator[T, None, None]],
    ahead: int,
    ended: Callable[[], None],
    farewell: Farewell,
) -> AsyncIterator[T | None]:
    """The values, and None after ``ALIVE_S`` without one. Raises what the generator does, and ConsoleEnds; ``ended`` is
    called when the thread is free again, which may be later than the end of this."""
    maker = _Maker(make, ahead)
    pool.submit(maker.run, ended)
    try:
        with farewell.told_to(lambda: maker.end(ConsoleEnds())):
            while not farewell.is_said:
                item = await maker.next()
                if not isinstance(item, _End):
                    yield item
                elif item.error is not None:
                    raise item.error
                else:
                    return
            raise ConsoleEnds
    finally:
        maker.stop()
