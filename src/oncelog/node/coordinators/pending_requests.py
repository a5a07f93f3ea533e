"""Who waits for what coordinator shards decide: one request for one decision, or for several at once.

A token stands for one decision; whoever asked is told its reply, or why there is none. A request that asks several
shards goes on when the last has answered, so that a transaction that is parked holds up nobody but the answer itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.handlers.support.context import CoordinatorRefusal
from oncelog.node.deadlines import Alarm
from oncelog.node.requests.tasks import Runnable, Task


class PendingRequest:
    """Waits for one decision; a task of its own, or one of several that a task waits for."""

    __slots__ = ("alarm", "answer")

    def __init__(self, answer: Callable[[Any], None]) -> None:
        self.answer = answer
        """Takes the reply, or a CoordinatorRefusal."""
        self.alarm: Alarm | None = None

    def refuse(self, error_code: ErrorCode) -> None:
        """There is no reply."""
        self.answer(CoordinatorRefusal(error_code))


def for_one(task: Task, runnable: Runnable) -> PendingRequest:
    """Wakes ``task`` with the reply, or raises the refusal in it."""

    def answer(reply: object) -> None:
        if isinstance(reply, CoordinatorRefusal):
            runnable.wake(task, error=reply)
        else:
            runnable.wake(task, reply)

    return PendingRequest(answer)


def for_each(task: Task, count: int, runnable: Runnable) -> list[PendingRequest]:
    """``count`` askers: when the last is answered they wake ``task`` with all replies and refusals, in order."""
    answers: list[object] = [None] * count
    missing = set(range(count))

    def asker(index: int) -> PendingRequest:
        def answer(reply: object) -> None:
            answers[index] = reply
            missing.discard(index)
            if not missing:
                runnable.wake(task, answers)

        return PendingRequest(answer)

    return [asker(index) for index in range(count)]
