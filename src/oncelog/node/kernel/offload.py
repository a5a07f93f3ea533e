"""Work of requests that is too much for the loop: a worker does it, one request's of each lane at a time.

A client that leaves is not waited for, but its work is, up to its next pause: the worker has what it holds until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oncelog.handlers.broker.waits import Lane, Offload
from oncelog.node.kernel.events import Effect, JobFinished, RunJob
from oncelog.node.kernel.tasks import Runnable, Task


@dataclass(slots=True, eq=False)
class _Work:
    task: Task
    wait: Offload
    result: Any = None

    def slices(self) -> Iterator[None]:
        """The slices that a worker drives to the end, or until nobody waits for them."""
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
    """Work of requests that workers do, lane by lane. Tokens are negative: those of other jobs count upwards."""

    def __init__(self, runnable: Runnable) -> None:
        self._runnable = runnable
        self._queues: dict[Lane, deque[_Work]] = {lane: deque() for lane in Lane}
        self._running: dict[int, _Work] = {}
        """Work that workers have, by token, one of each lane at most."""
        self._token = 0

    def park(self, task: Task, wait: Offload) -> None:
        """Have the work of ``task`` done when its turn comes."""
        self._queues[wait.lane].append(_Work(task, wait))

    def start(self, effects: list[Effect]) -> None:
        """Have the next one of each lane done, if none is; those whose client is gone are passed over."""
        for lane, queue in self._queues.items():
            while queue and not self._runs(lane):
                work = queue.popleft()
                if work.task.waiting:
                    self._token -= 1
                    self._running[self._token] = work
                    effects.append(RunJob(self._token, work.slices(), waited_for=True))

    def _runs(self, lane: Lane) -> bool:
        return any(work.wait.lane is lane for work in self._running.values())

    def is_idle(self) -> bool:
        """True while no worker is busy with such work."""
        return not self._running

    def finished(self, event: JobFinished) -> bool:
        """Take in the end of a job; True if it was one of these, and its request goes on."""
        work = self._running.pop(event.token, None)
        if work is None:
            return False
        self._runnable.wake(work.task, work.result, event.failure)
        return True
