"""Messages that wait to share a request, by the broker they are for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId

M = TypeVar("M")
Answered = Callable[[Any], None]


@dataclass(slots=True, eq=False)
class Queued(Generic[M]):
    """A message and who is told of its answer; None once nobody waits for it."""

    message: M
    answered: Answered | None

    def answer(self, answer: object) -> None:
        """Tell whoever waits, once."""
        answered, self.answered = self.answered, None
        if answered is not None:
            answered(answer)

    def forget(self) -> None:
        """Forget the answer: nobody waits for it any more."""
        self.answered = None


class Queues(Generic[M]):
    """First in, first out, for each broker."""

    def __init__(self) -> None:
        self._queues: dict[BrokerId, deque[Queued[M]]] = {}

    def add(self, broker_id: BrokerId, message: M, answered: Answered) -> Queued[M]:
        """Queue a message."""
        queued = Queued(message, answered)
        self._queues.setdefault(broker_id, deque()).append(queued)
        return queued

    def __bool__(self) -> bool:
        """True while messages wait."""
        return bool(self._queues)

    def brokers(self) -> list[BrokerId]:
        """The brokers that messages wait for."""
        return list(self._queues)

    def take(self, broker_id: BrokerId, fits: Callable[[M], bool]) -> list[Queued[M]]:
        """Take the first messages for a broker, up to the first that does not fit; forgotten ones are left out."""
        queue = self._queues[broker_id]
        taken: list[Queued[M]] = []
        while queue and (queue[0].answered is None or fits(queue[0].message)):
            queued = queue.popleft()
            if queued.answered is not None:
                taken.append(queued)
        if not queue:
            del self._queues[broker_id]
        return taken

    def __iter__(self) -> Iterator[Queued[M]]:
        for queue in self._queues.values():
            yield from queue


def error_code_of(number: int) -> ErrorCode:
    """The error code of a response; UNKNOWN_SERVER_ERROR for one that this version does not know: never NONE."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
