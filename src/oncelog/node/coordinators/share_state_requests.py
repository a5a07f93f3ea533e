"""Requests of handlers to the share coordinators of many partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from oncelog.core.share_state.model import DeleteState, InitializeState
from oncelog.node.kernel.tasks import Runnable, Task

if TYPE_CHECKING:
    from oncelog.base.ids import LeaderEpoch, Offset
    from oncelog.core.share_state.model import ShareKey, SummarizeState
    from oncelog.handlers.broker.waits import PersistShareStates

Cancel = Callable[[], object]


@dataclass(slots=True, eq=False)
class _Parked:
    left: int
    cancels: list[Cancel] = field(default_factory=list)


class Persister(Protocol):
    """The way to the share coordinators; ``done`` gets the outcome, once."""

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: Offset, done: Callable[[Any], None]
    ) -> Cancel: ...

    def delete(self, key: ShareKey, done: Callable[[Any], None]) -> Cancel: ...

    def summary(self, key: ShareKey, leader_epoch: LeaderEpoch, done: Callable[[Any], None]) -> Cancel: ...


REQUESTS_PER_SLICE: Final = 250
"""Requests sent before other connections have their turn: many are decided here, and append a record each."""


class ShareStateRequests:
    """Parks requests until every share coordinator has answered."""

    def __init__(self, persister: Callable[[], Persister], runnable: Runnable) -> None:
        self._persister = persister
        self._runnable = runnable
        # The requests that are parked: how many outcomes are missing, and what ends those that only read.
        self._parked: dict[PersistShareStates, _Parked] = {}

    def park(self, task: Task, wait: PersistShareStates) -> None:
        parked = self._parked.get(wait)
        if parked is None:
            parked = self._parked[wait] = _Parked(len(wait.requests))
        if wait.ends_with_client:
            task.forget = partial(self._forget, wait)
        begin = len(wait.outcomes)
        part = wait.requests[begin : begin + REQUESTS_PER_SLICE]
        wait.outcomes += [None] * len(part)
        for index, request in enumerate(part, begin):
            parked.cancels.append(self._send(request, partial(self._answered, task, wait, index)))
        if len(wait.outcomes) < len(wait.requests):
            self._runnable.wait_for_slice(task)
        elif not wait.requests:
            self._end(task, wait)

    def _answered(self, task: Task, wait: PersistShareStates, index: int, outcome: object) -> None:
        wait.outcomes[index] = outcome
        parked = self._parked[wait]
        parked.left -= 1
        if not parked.left:
            self._end(task, wait)

    def _end(self, task: Task, wait: PersistShareStates) -> None:
        del self._parked[wait]
        self._runnable.wake(task, wait.outcomes)

    def _forget(self, wait: PersistShareStates) -> None:
        for cancel in self._parked.pop(wait).cancels:
            cancel()

    def _send(self, request: InitializeState | DeleteState | SummarizeState, done: Callable[[object], None]) -> Cancel:
        persister = self._persister()
        if isinstance(request, InitializeState):
            return persister.initialize(request.key, request.state_epoch, request.start_offset, done)
        if isinstance(request, DeleteState):
            return persister.delete(request.key, done)
        return persister.summary(request.key, request.leader_epoch, done)
