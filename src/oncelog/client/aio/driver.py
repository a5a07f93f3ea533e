"""Runs programs on the running event loop; parallel programs become tasks.

A step is awaited where it was yielded, so a cancelled task closes its program, and a cancelled call its link. The
driver adds no loop iteration of its own, so the simulator can run it unchanged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from oncelog.client.addresses import Address
from oncelog.client.aio.link import AsyncLink
from oncelog.client.config import ClientConfig
from oncelog.client.errors import ClientError
from oncelog.client.machine.connection import ExpectedBroker
from oncelog.client.programs import steps
from oncelog.client.programs.steps import Acquire, Await, Call, Connect, Parallel, Program, Sleep, Step, Submit, Wait

T = TypeVar("T")


def loop_ms() -> int:
    """The running loop's monotonic time in milliseconds, for all pauses and time-outs here."""
    return int(asyncio.get_running_loop().time() * 1000)


class _Sent:
    """A request that is not awaited."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        task.add_done_callback(failure_of)

    @property
    def is_done(self) -> bool:
        return self.task.done()

    def result(self) -> Any:
        return self.task.result()


def failure_of(task: asyncio.Task[Any]) -> BaseException | None:
    """The exception of an ended task, retrieved so that asyncio does not warn about it."""
    return None if task.cancelled() else task.exception()


class Driver:
    """Runs programs. ``entropy`` gives the jitter of retry pauses, ``wall_ms`` the time for record timestamps."""

    def __init__(
        self,
        config: ClientConfig,
        entropy: random.Random,
        wall_ms: Callable[[], int],
        open_link: Callable[[Address, ExpectedBroker | None, int | None], Awaitable[steps.Link]] | None = None,
    ) -> None:
        self._entropy = entropy
        self.wall_ms = wall_ms
        self._open_link = open_link or (
            lambda address, expected, timeout_ms: AsyncLink.open(address, config, expected, timeout_ms)
        )

    def now_ms(self) -> int:
        return loop_ms()

    def now_us(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000_000)

    def jitter(self, least: int, most: int) -> int:
        return self._entropy.randint(least, most)

    def lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def run(self, program: Program[T]) -> T:
        value: Any = None
        error: ClientError | None = None
        try:
            while True:
                try:
                    step = program.send(value) if error is None else program.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                value, error = None, None
                try:
                    value = await self._carry_out(step)
                except ClientError as failure:
                    error = failure
        finally:
            program.close()

    async def _carry_out(self, step: Step) -> Any:
        match step:
            case Call(link, message, version, timeout_ms, read):
                return await cast("AsyncLink", link).ask(message, version, timeout_ms, read)
            case Connect(address, expected, timeout_ms):
                return await self._open_link(address, expected, timeout_ms)
            case Sleep(milliseconds):
                await asyncio.sleep(milliseconds / 1000)
            case Acquire(lock):
                await cast("asyncio.Lock", lock).acquire()
            case Submit(link, message, version, timeout_ms, answered):
                request = cast("AsyncLink", link).call(message, version, timeout_ms, answered=answered)
                if not answered:  # must be written: the program counts it as done, and may close the link
                    return await request
                return _Sent(asyncio.create_task(request))
            case Wait(pending, milliseconds):
                tasks = [cast("_Sent", sent).task for sent in pending]
                await asyncio.wait(tasks, timeout=milliseconds / 1000, return_when=asyncio.FIRST_COMPLETED)
            case Await(awaitable):
                return await awaitable
            case Parallel(programs):
                return await self._run_each(programs)
        return None

    async def _run_each(self, programs: Sequence[Program[Any]]) -> list[Any]:
        tasks = [asyncio.create_task(self.run(program)) for program in programs]
        # All programs end before the first error is raised.
        await asyncio.gather(*tasks, return_exceptions=True)
        return [task.result() for task in tasks]


def awaited(awaitable: Awaitable[T]) -> Program[T]:
    """A program that awaits an asyncio awaitable; only this driver can run it."""
    result: T = yield Await(awaitable)
    return result
