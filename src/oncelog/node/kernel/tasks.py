"""A request under way, the queue of those that can go on, and the work that a worker does for them."""

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
    """The place of one response in its connection's order."""

    __slots__ = ("chunks", "held")

    def __init__(self) -> None:
        self.chunks: Sequence[Chunk] | None = None
        self.held = False
        """True while the request behind this slot holds the connection."""


@dataclass(slots=True, eq=False)
class RequestTask(Generic[C]):
    """One request whose handler waits. The first to wake it clears ``waiting``: what others hold is stale then."""

    steps: Steps[Any]
    api: Api
    correlation_id: int
    context: Context
    connection: C
    slot: Slot
    started_ms: int
    waiting: bool = False
    wait: Wait | None = None
    """The last wait it was parked for."""
    alarm: Alarm | None = None
    resumes: int = 0
    """Times it went on since others had their turn."""
    forget: Callable[[], object] | None = None
    """Takes the task out of what it waits in, where that could keep it for long."""

    finish: Callable[[], object] | None = None
    """Ends the wait of a fetch: it answers with what is there."""

    nudge: Callable[[], object] | None = None
    """Ends what the task waits for, where its client may ask for that by sending another request."""

    @property
    def request_bytes(self) -> int:
        return self.context.request_bytes

    def give_way(self) -> None:
        """Go on, if the task waits for something that gives way to its client's next request."""
        if self.waiting and self.nudge is not None:
            self.nudge()

    def client_closed(self, *, may_read: bool) -> None:
        """End a wait after which only the answer is left to do; a client that ``may_read`` gets one if it can be given
        now. Any other request is carried out to its end."""
        if not (self.waiting and getattr(self.wait, "ends_with_client", False)):
            return
        if not may_read:
            self.abandon()
        elif self.finish is not None:
            self.finish()
        elif isinstance(self.wait, Coordinate):  # others of its group may take minutes; all other waits are short
            self.abandon()

    def abandon(self) -> None:
        """End the task where it waits, without an answer."""
        self.waiting = False
        if self.forget is not None:
            self.forget()
        self.steps.close()
        self.slot.chunks, self.slot.held = (), False


Task = RequestTask[Any]
"""A request under way, for parts of the node that know nothing of connections."""


class Runnable:
    """Tasks that can go on, each with the value or error it is resumed with: those woken in this event, drained before
    ``handle`` returns, and those whose next slice comes when other events had their turn.

    A queue and not a call, so that an append deep inside one handler never runs another handler's code."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Task, object, Exception | None]] = deque()
        self._slices: deque[tuple[Task, object, Exception | None]] = deque()

    def wake(self, task: Task, value: object = None, error: Exception | None = None) -> None:
        """Let ``task`` go on with ``value``, or with ``error`` raised at its yield. Nothing happens if it was woken."""
        if task.waiting:
            task.waiting = False
            self._queue.append((task, value, error))

    def take(self) -> tuple[Task, object, Exception | None] | None:
        """The next one to run."""
        return self._queue.popleft() if self._queue else None

    def is_empty(self) -> bool:
        return not self._queue

    def park(self, task: Task, _wait: NextSlice) -> None:
        """Let ``task`` go on when others had their turn."""
        self.wait_for_slice(task)

    def wait_for_slice(self, task: Task, value: object = None, error: Exception | None = None) -> None:
        """Let ``task`` go on when others had their turn."""
        task.waiting, task.resumes = True, 0
        self._slices.append((task, value, error))

    def has_slices(self) -> bool:
        """True while a task waits for its next slice."""
        return bool(self._slices)

    def next_slice(self) -> None:
        """Let one task go on after others had their turn: a hundred large requests must not take a hundred slices."""
        while self._slices:
            task, value, error = self._slices.popleft()
            if task.waiting:  # or its client has gone
                self.wake(task, value, error)
                return


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
    """Work of requests that is too much for the loop: a worker does it, one request's of each lane at a time.

    A client that leaves is not waited for, but its work is, up to its next pause: the worker has what it holds until
    then. Tokens are negative: those of other jobs count upwards.
    """

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
