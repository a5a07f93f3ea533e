"""An asyncio event loop in virtual time: production clients run on it unchanged, thousands of times faster than life.

What it has: tasks, futures, timers, connections through the simulated network, and an executor that computes what is
given to a thread in between two events. What it has not, on purpose: real sockets, threads, subprocesses, signals;
whatever asks for them gets NotImplementedError rather than nondeterminism.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack, cast

from oncelog.sim.virtual.kernel import Kernel
from oncelog.sim.virtual.network.network import CURRENT_HOST, Network

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


_LAST_ROUNDS: Final = 100
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM)


class Stuck(Exception):
    """The world has come to an end before what was waited for: nothing will ever happen again."""


@contextmanager
def _interrupted_between_calls(kernel: Kernel) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt between two calls of the kernel, where nothing catches it: within
    them are clients, which take whatever a request raises for the end of a connection."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    def note_interrupt(*_: object) -> None:
        kernel.soon(interrupted)

    in_main_thread = threading.current_thread() is threading.main_thread()
    taken = [one for one in _INTERRUPTS if in_main_thread and signal.getsignal(one) is signal.default_int_handler]
    for one in taken:
        signal.signal(one, note_interrupt)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.default_int_handler)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """An event loop in virtual time. ``network`` answers ``create_connection``."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.network: Network | None = None
        self.failures: list[BaseException] = []
        """Exceptions that nobody took: a callback that raised, a task that nobody awaited."""
        self.on_task: Callable[[asyncio.Task[Any], str], None] | None = None
        """Called with every new task and the host it runs on."""
        self._closed = False
        self._names = 0
        self._tasks: list[asyncio.Task[Any]] = []

    def run(self, main: Coroutine[Any, Any, T], until_us: int | None = None) -> T:
        """Run until ``main`` is done; its result. Raises Stuck, and TimeoutError past ``until_us``."""
        events._set_running_loop(self)
        try:
            task = self.create_task(main)
            done, kernel, step = task.done, self.kernel, self.kernel.step
            with _interrupted_between_calls(kernel):
                while not done():
                    if until_us is not None and kernel.now_us > until_us:
                        raise TimeoutError(f"not done after {until_us / 1e6:.0f} s of virtual time")
                    if not step():
                        raise Stuck("nothing is left that could happen")
            return task.result()
        finally:
            events._set_running_loop(None)

    def end(self) -> None:
        """Cancel every task that is left and let it clean up; time stands still meanwhile."""
        events._set_running_loop(self)
        try:
            for _ in range(_LAST_ROUNDS):
                left = [task for task in self._tasks if not task.done()]
                for task in left:
                    task.cancel()
                if not left or not self.kernel.run_soon():
                    break
        finally:
            events._set_running_loop(None)
            self._tasks.clear()
            if self.network is not None:
                self.network.over = True

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self.kernel.now_us / 1_000_000

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return cast("asyncio.Handle", self.kernel.soon(callback, *args, context=context or copy_context()))

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        at_us = self.kernel.now_us + max(0, round(delay * 1_000_000))
        return cast("asyncio.TimerHandle", self.kernel.at(at_us, callback, *args, context=context or copy_context()))

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        at_us = round(when * 1_000_000)
        return cast("asyncio.TimerHandle", self.kernel.at(at_us, callback, *args, context=context or copy_context()))

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def run_in_executor(self, executor: object, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        async def compute() -> T:
            return func(*args)

        return self.create_task(compute())

    def create_task(  # type: ignore[override]  # typeshed's signature differs between the Python versions
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None, **_: Any
    ) -> asyncio.Task[T]:
        self._names += 1
        task = asyncio.Task(coro, loop=self, name=name or f"task-{self._names}", context=context)
        if self._names % 256 == 0:
            self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)
        if self.on_task is not None:
            self.on_task(task, CURRENT_HOST.get() if context is None else context.get(CURRENT_HOST, ""))
        return task

    async def create_connection(  # type: ignore[override]  # the only kind of connection there is
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        assert self.network is not None
        return await self.network.connect(protocol_factory, host, port)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(error if error is not None else RuntimeError(context.get("message")))

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: generators end with their owners."""
