"""An asyncio loop in a thread of its own, and calls into it from any other thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from oncelog.runtime.process import new_event_loop

T = TypeVar("T")

_TURNS_TO_CLOSE: Final = 3
"""Turns of the loop until a connection is closed that has just been accepted: made, aborted, lost."""


class LoopEnded(Exception):
    """The loop ended before the call did."""


class LoopThread:
    """An event loop in a thread, running from construction until :meth:`end`."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """The result of ``work``, run on the loop. Raises what ``work`` raises, LoopEnded and TimeoutError."""
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
        """Call ``work`` on the loop; from the loop's own thread at once."""
        if threading.current_thread() is self._thread:
            return work()

        async def called() -> T:
            return work()

        return self.call(called(), timeout_s)

    def begin(self, work: Callable[[], object]) -> None:
        """Call ``work`` on the loop some time, without waiting for it. Raises LoopEnded."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise LoopEnded from None

    def end(self) -> None:
        """Stop the loop and join its thread; tasks are cancelled, their callers get LoopEnded."""

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
