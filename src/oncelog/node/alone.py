"""One at a time: requests whose work holds much memory from one turn to the next wait for each other, in order."""

from __future__ import annotations

from collections import deque

from oncelog.node.tasks import Runnable, Task


class Alone:
    """Who has the turn, and who waits for it."""

    def __init__(self, runnable: Runnable) -> None:
        self._runnable = runnable
        self._is_taken = False
        self._queue: deque[Task] = deque()

    def wait(self, task: Task) -> None:
        """Let ``task`` go on when everybody before it is through; it says so with :meth:`over`."""
        if self._is_taken:
            self._queue.append(task)
        else:
            self._is_taken = True
            self._runnable.wake(task)

    def over(self) -> None:
        """Who had it is through; the next one whose client is still there has it."""
        while self._queue:
            task = self._queue.popleft()
            if task.waiting:
                self._runnable.wake(task)
                return
        self._is_taken = False
