"""Worker threads for blocking calls: syncs, cold reads, deletes, compaction, the coordination tree.

A plain queue with threads, not ``concurrent.futures``: a group commit is on the path of every acknowledged produce. The
loop gets completions in batches, with one wake-up each.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

Work = Callable[[], Callable[[], None]]
"""Runs on a worker; returns a callback for the loop. Must not raise: failures are part of the result."""

DELIVERED_AT_ONCE: Final = 100
"""Results delivered before the loop's next round; each is an event of the node, a tenth of a millisecond."""


class Workers:
    """A fixed number of threads that run work in order of submission."""

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
        self._outstanding += 1
        self._queue.put(work)

    def is_busy(self) -> bool:
        """True while results of submitted work are undelivered. Called on the loop."""
        return self._outstanding > 0

    def stop(self) -> None:
        """Let the threads finish the queue and end; waits for them."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            self._finished.append(work())
            del work  # releases its files, which may be deleted, before the next wait
            with self._lock:
                # One wake-up delivers all results that finish before it runs.
                wake = not self._wake_pending
                self._wake_pending = True
            if wake:
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:
                    return  # the loop is closed

    def _deliver(self) -> None:
        with self._lock:
            self._wake_pending = False
        # Each result starts further work that may finish before all are delivered: otherwise the loop would serve
        # nothing else until a thousand syncs are over.
        try:
            for _ in range(min(DELIVERED_AT_ONCE, len(self._finished))):
                self._outstanding -= 1
                self._finished.popleft()()
        finally:  # a result that raises must not keep the others, syncs among them
            if self._finished:
                with self._lock:
                    self._wake_pending = True
                self._loop.call_soon(self._deliver)
