"""A request in progress, the queue of requests that can continue, and the work that workers do for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from oncelog.handlers.broker.waits import Coordinate, Lane, Offload
from oncelog.node.kernel.events import Effect, JobFinished, RunJob

if TYPE_CHECKING:
    from oncelog.handlers.api import Api
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.waits import NextSlice, Steps, Wait
    from oncelog.node.kernel.deadlines import Alarm
    from oncelog.wire.chunks import Chunk

C = TypeVar("C")


class Slot:
    __slots__ = ("chunks", "held")

    def __init__(self) -> None:
        self.chunks: Sequence[Chunk] | None = None
        self.held = False
        """True while the request behind this slot holds the connection."""


@dataclass(slots=True, eq=False)
class RequestTask(Generic[C]):
    """A request whose handler waits. The first to wake it clears ``waiting``, so that other references become stale."""

    steps: Steps[Any]
    api: Api
    correlation_id: int
    context: Context
    connection: C
    slot: Slot
    started_ms: int
    is_answered: bool = False
    """True for the rest of a handler whose response was sent before; its slot is none of the connection's."""
    response: Any = None
    """A response to send once the handler has ended."""
    waiting: bool = False
    wait: Wait | None = None
    """The last wait it was parked for."""
    alarm: Alarm | None = None
    resumes: int = 0
    """Resumptions since other events had their turn."""
    forget: Callable[[], object] | None = None
    """Removes the task from the queue it waits in, if it could stay there for long."""

    finish: Callable[[], object] | None = None
    """Ends a fetch's wait: it answers with the data available."""

    nudge: Callable[[], object] | None = None
    """Ends a wait that gives way to the client's next request."""

    @property
    def request_bytes(self) -> int:
        return self.context.request_bytes

    def give_way(self) -> None:
        """Continue, if the task's wait gives way to its client's next request."""
        if self.waiting and self.nudge is not None:
            self.nudge()

    def client_closed(self, *, may_read: bool) -> None:
        """End a wait that only delays the answer; a client that ``may_read`` still gets one if possible."""
        # Any other request is carried out to its end.
        if not (self.waiting and getattr(self.wait, "ends_with_client", False)):
            return
        if not may_read:
            self.abandon()
        elif self.finish is not None:
            self.finish()
        elif isinstance(self.wait, Coordinate):  # may wait minutes for other members; all other waits are short
            self.abandon()

    def abandon(self) -> None:
        self.waiting = False
        if self.forget is not None:
            self.forget()
        self.steps.close()
        self.slot.chunks, self.slot.held = (), False


# A request in progress, for parts of the node that do not know connections.
Task = RequestTask[Any]


class Runnable:
    """Tasks that can continue, with the value or error to resume them with: those woken in this event run before
    ``handle`` returns, those with a next slice after other events. A queue, so that an append deep inside one handler
    never runs another.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[Task, object, Exception | None]] = deque()
        self._slices: deque[tuple[Task, object, Exception | None]] = deque()

    def wake(self, task: Task, value: object = None, error: Exception | None = None) -> None:
        """Let ``task`` continue with ``value``, or with ``error`` raised at its yield. No effect if it was woken
        before."""
        if task.waiting:
            task.waiting = False
            self._queue.append((task, value, error))

    def take(self) -> tuple[Task, object, Exception | None] | None:
        return self._queue.popleft() if self._queue else None

    def is_empty(self) -> bool:
        return not self._queue

    def park(self, task: Task, _wait: NextSlice) -> None:
        self.wait_for_slice(task)

    def wait_for_slice(self, task: Task, value: object = None, error: Exception | None = None) -> None:
        """Let ``task`` continue after other events had their turn."""
        task.waiting, task.resumes = True, 0
        self._slices.append((task, value, error))

    def has_slices(self) -> bool:
        return bool(self._slices)

    def next_slice(self) -> None:
        # One task per turn: a hundred large requests must not take a hundred slices at once.
        while self._slices:
            task, value, error = self._slices.popleft()
            if task.waiting:  # otherwise its client has disconnected
                self.wake(task, value, error)
                return


@dataclass(slots=True, eq=False)
class _Work:
    task: Task
    wait: Offload
    result: Any = None

    def slices(self) -> Iterator[None]:
        """The slices, run by a worker to the end or until the request no longer waits."""
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
    """Work of requests that is too long for the loop; workers run one request's work per lane at a time."""

    def __init__(self, runnable: Runnable) -> None:
        self._runnable = runnable
        # After a client disconnects its work still runs up to the next slice, because the worker holds its data until
        # then.
        self._queues: dict[Lane, deque[_Work]] = {lane: deque() for lane in Lane}
        # Work in progress by token, at most one per lane. Tokens are negative; those of other jobs are positive.
        self._running: dict[int, _Work] = {}
        self._token = 0

    def park(self, task: Task, wait: Offload) -> None:
        self._queues[wait.lane].append(_Work(task, wait))

    def start(self, effects: list[Effect]) -> None:
        """Start the next work of each idle lane; skip work whose client has disconnected."""
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
        return not self._running

    def finished(self, event: JobFinished) -> bool:
        work = self._running.pop(event.token, None)
        if work is None:
            return False
        self._runnable.wake(work.task, work.result, event.failure)
        return True
