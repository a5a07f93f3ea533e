"""An asyncio loop in its own thread, and calls into it from other threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from oncelog.runtime.process import new_event_loop

T = TypeVar("T")

# Iterations of the loop to close a connection that was just accepted: made, aborted, lost.
_TURNS_TO_CLOSE: Final = 3


class LoopEnded(Exception):
    """The loop ended before or during the call."""


class LoopThread:
    """An event loop in a thread, running from construction to :meth:`end`."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run ``work`` on the loop and return its result. Raises its exceptions, LoopEnded and TimeoutError."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise LoopEnded from None
        try:
            return future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise LoopEnded from None

    def run(self, work: Callable[[], T], timeout_s: float | None = None) -> T:
        if threading.current_thread() is self._thread:
            return work()

        async def call_work() -> T:
            return work()

        return self.call(call_work(), timeout_s)

    def begin(self, work: Callable[[], object]) -> None:
        """Schedule ``work`` on the loop without waiting. Raises LoopEnded."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise LoopEnded from None

    def end(self) -> None:
        """Stop the loop and join its thread. Tasks are cancelled, and their callers get LoopEnded."""

        async def cancel() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for _ in range(_TURNS_TO_CLOSE):
                await asyncio.sleep(0)

        self.call(cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()
