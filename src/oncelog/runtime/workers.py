"""Worker threads for calls that would block the loop: syncs, cold reads, deletes, compaction, the coordination tree.

A plain queue and threads instead of ``concurrent.futures``: a group commit is on the path of every acknowledged
produce, and completions are handed to the loop in bunches, one wake-up for many.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

Work = Callable[[], Callable[[], None]]
"""Runs on a worker; returns what to call on the loop afterwards. Must not raise: failures are part of the result."""

DELIVERED_AT_ONCE: Final = 100
"""Results handed over before the loop has another round: each is an event of the node, a tenth of a millisecond."""


class Workers:
    """A fixed number of threads that take work in order of submission."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, name: str) -> None:
        self._loop = loop
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._finished: deque[Callable[[], None]] = deque()
        self._wake_pending = False
        self._outstanding = 0
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, name=f"oncelog-{name}-{index}", daemon=True) for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Work) -> None:
        """Run ``work`` on a worker, then its result on the loop."""
        self._outstanding += 1
        self._queue.put(work)

    def is_busy(self) -> bool:
        """True while results of submitted work are not delivered yet. Called on the loop."""
        return self._outstanding > 0

    def stop(self) -> None:
        """Let the threads finish what is queued and end. Waits for them."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            self._finished.append(work())
            del work  # what it holds (files that may be deleted) is not to stay until the next one
            with self._lock:
                wake = not self._wake_pending
                self._wake_pending = True
            if wake:
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:
                    return  # the loop is closed: nobody is interested any more

    def _deliver(self) -> None:
        """Deliver some results, and the others in the loop's next round: each starts further work, which may finish
        before all are delivered, so that the loop would serve nothing else until a thousand syncs are over."""
        with self._lock:
            self._wake_pending = False
        for _ in range(min(DELIVERED_AT_ONCE, len(self._finished))):
            self._outstanding -= 1
            self._finished.popleft()()
        if self._finished:
            with self._lock:
                self._wake_pending = True
            self._loop.call_soon(self._deliver)
