"""Requests of handlers to the share coordinators of many partitions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from oncelog.core.share_state.model import DeleteState, InitializeState
from oncelog.node.kernel.tasks import Runnable, Task

if TYPE_CHECKING:
    from oncelog.base.ids import LeaderEpoch, Offset
    from oncelog.core.share_state.model import ShareKey, SummarizeState
    from oncelog.handlers.broker.waits import PersistShareStates

Cancel = Callable[[], object]


class Persister(Protocol):
    """The way to the share coordinators; ``done`` gets the outcome, once."""

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: Offset, done: Callable[[Any], None]
    ) -> Cancel: ...

    def delete(self, key: ShareKey, done: Callable[[Any], None]) -> Cancel: ...

    def summary(self, key: ShareKey, leader_epoch: LeaderEpoch, done: Callable[[Any], None]) -> Cancel: ...


class ShareStateRequests:
    """Parks requests until every share coordinator has answered."""

    def __init__(self, persister: Callable[[], Persister], runnable: Runnable) -> None:
        self._persister = persister
        self._runnable = runnable

    def park(self, task: Task, wait: PersistShareStates) -> None:
        results: list[object] = [None] * len(wait.requests)
        left = len(results)

        def done(index: int, result: object) -> None:
            nonlocal left
            results[index] = result
            left -= 1
            if not left:
                self._runnable.wake(task, results)

        for index, request in enumerate(wait.requests):
            self._send(request, partial(done, index))
        if not results:
            self._runnable.wake(task, results)

    def _send(self, request: InitializeState | DeleteState | SummarizeState, done: Callable[[object], None]) -> None:
        persister = self._persister()
        if isinstance(request, InitializeState):
            persister.initialize(request.key, request.state_epoch, request.start_offset, done)
        elif isinstance(request, DeleteState):
            persister.delete(request.key, done)
        else:
            persister.summary(request.key, request.leader_epoch, done)
