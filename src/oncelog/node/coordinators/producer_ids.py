"""Drives the producer id allocator: requests blocks of ids, and parks the requests that find none (KIP-730).

The first producer causes the first request: a broker used only by consumers takes no ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.ids import BrokerId, ProducerId
from oncelog.base.tree import CommitOutcome
from oncelog.core.controller import producer_ids
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.cluster.metadata_log import MetadataLog
from oncelog.node.kernel.events import Effect, Report
from oncelog.node.kernel.tasks import Runnable, Task

if TYPE_CHECKING:
    from oncelog.handlers.broker.waits import UntilProducerId


class ProducerIds:
    def __init__(self, broker_id: BrokerId, metadata: Metadata, commits: MetadataLog, runnable: Runnable) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._commits = commits
        self._runnable = runnable
        self._allocator = producer_ids.ProducerIds()
        self._waiting: deque[Callable[[ProducerId | None], None]] = deque()
        self._in_use = False

    def park(self, task: Task, _wait: UntilProducerId) -> None:
        self.when_available(lambda producer_id: self._runnable.wake(task, producer_id))

    def when_available(self, on_id: Callable[[ProducerId | None], None]) -> None:
        """Call ``on_id`` with an id as soon as one is available; with None if the cluster has none left."""
        self._in_use = True
        self._waiting.append(on_id)
        self._serve()

    def prefetch(self, effects: list[Effect]) -> None:
        """Request a block if the present one is nearly used up."""
        if not self._in_use or not self._allocator.wants_block:
            return
        try:
            operation, first = producer_ids.next_block(self._metadata.image, self._broker_id)
        except producer_ids.ProducerIdsExhausted:
            effects.append(Report("error", "no producer ids are left in this cluster"))
            self._refuse_all()
            return
        self._allocator.block_requested()
        self._commits.commit([operation], partial(self._granted, first))

    def _granted(self, first: int, outcome: CommitOutcome) -> None:
        if outcome is CommitOutcome.COMMITTED:
            self._allocator.granted(first)
        else:
            self._allocator.failed()
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            producer_id = self._allocator.take()
            if producer_id is None:
                return
            self._waiting.popleft()(producer_id)

    def _refuse_all(self) -> None:
        while self._waiting:
            self._waiting.popleft()(None)
