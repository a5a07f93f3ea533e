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
from typing import Final, TypeVar

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


async def pumped(
    pool: Executor,
    make: Callable[[Stopped], Generator[T, None, None]],
    ahead: int,
    ended: Callable[[], None],
    farewell: Farewell,
) -> AsyncIterator[T | None]:
    """The values, and None after ``ALIVE_S`` without one. Raises what the generator does, and ConsoleEnds; ``ended`` is
    called when the thread is free again, which may be later than the end of this."""
    loop, stop = asyncio.get_running_loop(), threading.Event()
    queue: asyncio.Queue[T | _End] = asyncio.Queue()
    room = threading.Semaphore(ahead)

    def tell(callback: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended, and the console with it.
            loop.call_soon_threadsafe(callback, *arguments)

    def put(item: T | _End) -> None:
        while not room.acquire(timeout=_LOOK_EVERY_S):
            if stop.is_set() or loop.is_closed():
                return
        if not stop.is_set():
            tell(queue.put_nowait, item)

    def run() -> None:
        error: BaseException | None = None
        try:
            with contextlib.closing(make(stop.is_set)) as made:
                for item in made:
                    put(item)
                    if stop.is_set():
                        return
        except BaseException as raised:  # noqa: BLE001 - it is raised where the values are taken
            error = raised
        put(_End(error))

    def run_and_tell() -> None:
        try:
            run()
        finally:
            tell(ended)

    def wake() -> None:
        queue.put_nowait(_End(ConsoleEnds()))

    pool.submit(run_and_tell)
    try:
        with farewell.told_to(wake):
            while not farewell.is_said:
                try:
                    item = await asyncio.wait_for(queue.get(), ALIVE_S)
                except TimeoutError:
                    yield None
                    continue
                if isinstance(item, _End):
                    if item.error is not None:
                        raise item.error
                    return
                room.release()
                yield item
            raise ConsoleEnds
    finally:
        stop.set()
