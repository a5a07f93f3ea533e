"""An asyncio event loop in virtual time: production clients run on it unchanged, thousands of times faster.

Connections go through the simulated network; an executor computes between two events. Real sockets, threads,
subprocesses and signals raise NotImplementedError, since they are not deterministic.
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
    """Nothing is scheduled any more, but the awaited task is not done."""


@contextmanager
def _interrupted_between_calls(kernel: Kernel) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt between two calls of the kernel, where no code catches it."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    def schedule_interrupt(*_: object) -> None:
        # Within a call, a client would take the exception for the end of a connection.
        kernel.soon(interrupted)

    in_main_thread = threading.current_thread() is threading.main_thread()
    replaced = [
        number for number in _INTERRUPTS if in_main_thread and signal.getsignal(number) is signal.default_int_handler
    ]
    for number in replaced:
        signal.signal(number, schedule_interrupt)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.default_int_handler)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """``network`` implements ``create_connection``."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.network: Network | None = None
        # Exceptions without a handler: of a callback, or of a task that was never awaited.
        self.failures: list[BaseException] = []
        # Called with every new task and the host it runs on.
        self.on_task: Callable[[asyncio.Task[Any], str], None] | None = None
        self._closed = False
        self._names = 0
        self._tasks: list[asyncio.Task[Any]] = []

    def run(self, main: Coroutine[Any, Any, T], until_us: int | None = None) -> T:
        """Run until ``main`` is done and return its result. Raises Stuck, and TimeoutError past ``until_us``."""
        events._set_running_loop(self)
        try:
            task = self.create_task(main)
            done, kernel, step = task.done, self.kernel, self.kernel.step
            with _interrupted_between_calls(kernel):
                while not done():
                    if until_us is not None and kernel.now_us > until_us:
                        raise TimeoutError(f"not done after {until_us / 1e6:.0f} s of virtual time")
                    if not step():
                        raise Stuck("no call is scheduled")
            return task.result()
        finally:
            events._set_running_loop(None)

    def end(self) -> None:
        """Cancel all remaining tasks and let them clean up. Time does not advance."""
        events._set_running_loop(self)
        try:
            for _ in range(_LAST_ROUNDS):
                pending = [task for task in self._tasks if not task.done()]
                for task in pending:
                    task.cancel()
                if not pending or not self.kernel.run_soon():
                    break
        finally:
            events._set_running_loop(None)
            self._tasks.clear()
            if self.network is not None:
                self.network.over = True

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
            self._tasks = [other_task for other_task in self._tasks if not other_task.done()]
        self._tasks.append(task)
        if self.on_task is not None:
            self.on_task(task, CURRENT_HOST.get() if context is None else context.get(CURRENT_HOST, ""))
        return task

    async def create_connection(  # type: ignore[override]  # the only kind of connection
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
        """Does nothing: generators end with their owners."""
