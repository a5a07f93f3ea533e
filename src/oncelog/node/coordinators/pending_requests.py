"""Requests that wait for a decision of a coordinator shard: one request for one decision, or for several at once.

A token stands for one decision; its request is told the reply, or why there is none. A request that asks several shards
goes on when the last has answered, so that a transaction that is parked holds up nothing but that answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oncelog.base.errors import ErrorCode
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.node.kernel.tasks import Runnable, Task

if TYPE_CHECKING:
    from oncelog.node.kernel.deadlines import Alarm

Decide = Callable[[Any, int, int], Any]
"""(shard, token, now_ms) → decision."""


class PendingRequest:
    """Waits for one decision, first for its shard to be loaded, then for the reply."""

    __slots__ = ("alarm", "answer", "decide", "name", "token")

    def __init__(self, name: str, decide: Decide, answer: Callable[[Any], None]) -> None:
        self.name = name
        """The group or transactional id that it is about."""
        self.decide = decide
        self.answer = answer
        """Takes the reply, or a CoordinatorRefusal."""
        self.token: int | None = None
        """The token by which the reply is released, once its shard has decided."""
        self.alarm: Alarm | None = None

    def refuse(self, error_code: ErrorCode) -> None:
        """Resume the handler with an error instead of a reply."""
        self.answer(CoordinatorRefusal(error_code))


def for_one(task: Task, runnable: Runnable, name: str, decide: Decide) -> PendingRequest:
    """Wakes ``task`` with the reply, or raises the refusal in it."""

    def answer(reply: object) -> None:
        if isinstance(reply, CoordinatorRefusal):
            runnable.wake(task, error=reply)
        else:
            runnable.wake(task, reply)

    return PendingRequest(name, decide, answer)


def for_each(task: Task, runnable: Runnable, asked: Sequence[tuple[str, Decide]]) -> list[PendingRequest]:
    """One for each decision; the last answer wakes ``task`` with all replies and refusals, in order."""
    answers: list[object] = [None] * len(asked)
    missing = set(range(len(asked)))

    def pending(index: int, name: str, decide: Decide) -> PendingRequest:
        def answer(reply: object) -> None:
            answers[index] = reply
            missing.discard(index)
            if not missing:
                runnable.wake(task, answers)

        return PendingRequest(name, decide, answer)

    return [pending(index, name, decide) for index, (name, decide) in enumerate(asked)]
