"""The thread that looks after a tree shared by several processes: again and again, with a pause between two looks."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Watcher:
    """Calls ``look`` in a thread of its own, from ``start`` to ``stop``; ``look`` returns the pause in seconds."""

    def __init__(self, look: Callable[[], float]) -> None:
        self._look = look
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="oncelog-tree", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for a look that is under way."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            pause_s = self._look()
