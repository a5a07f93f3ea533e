"""Work of requests that is too much for the loop and holds much memory: a worker does it, one request's at a time.

A client that leaves is not waited for, but its work is, up to its next pause: the worker has what it holds until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oncelog.handlers.support.waits import Offload
from oncelog.node.events import Effect, JobFinished, RunJob
from oncelog.node.requests.tasks import Runnable, Task


@dataclass(slots=True, eq=False)
class _Work:
    task: Task
    wait: Offload
    result: Any = None

    def slices(self) -> Iterator[None]:
        """For the worker: to the end, or until nobody waits for it."""
        steps = self.wait.steps
        while self.task.waiting:
            try:
                next(steps)
            except StopIteration as end:
                self.result = end.value
                return
            yield
        steps.close()


class OffloadedWork:
    """Work of requests that a worker does, one after the other. Tokens are negative: others count upwards."""

    def __init__(self, runnable: Runnable) -> None:
        self._runnable = runnable
        self._queue: deque[_Work] = deque()
        self._running: _Work | None = None
        self._token = 0

    def park(self, task: Task, wait: Offload) -> None:
        """Have the work of ``task`` done when its turn comes."""
        self._queue.append(_Work(task, wait))

    def start(self, effects: list[Effect]) -> None:
        """Have the next one done, if none is; those whose client is gone are passed over."""
        while self._running is None and self._queue:
            work = self._queue.popleft()
            if work.task.waiting:
                self._running = work
                self._token -= 1
                effects.append(RunJob(self._token, work.slices(), waited_for=True))

    def is_idle(self) -> bool:
        """True while no worker is busy with such work."""
        return self._running is None

    def finished(self, event: JobFinished) -> bool:
        """Take in the end of a job; True if it was one of these, and its request goes on."""
        work = self._running
        if work is None or event.token != self._token:
            return False
        self._running = None
        self._runnable.wake(work.task, work.result, event.failure)
        return True
