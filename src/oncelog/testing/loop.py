"""An asyncio loop in a thread of its own, and calls into it from any other thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from oncelog.runtime.process import new_event_loop

T = TypeVar("T")


class LoopEnded(Exception):
    """The loop came to its end before the call did."""


class LoopThread:
    """Runs from the start; :meth:`end` waits for its end."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run ``work`` on the loop and wait for what it returns or raises. Raises LoopEnded, TimeoutError."""
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

    def end(self) -> None:
        """Stop it; what still waits on it is cancelled, its callers get LoopEnded."""

        async def cancel() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.call(cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()
