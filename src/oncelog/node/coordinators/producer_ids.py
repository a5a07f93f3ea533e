"""Drives the producer id allocator: asks for blocks, parks those who come while there is none (KIP-730).

The first block is asked for by the first producer, not at start: a broker that only consumers use takes no ids.
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
    """Producer ids of this broker."""

    def __init__(self, broker_id: BrokerId, metadata: Metadata, commits: MetadataLog, runnable: Runnable) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._commits = commits
        self._runnable = runnable
        self._allocator = producer_ids.ProducerIds()
        self._waiting: deque[Callable[[ProducerId | None], None]] = deque()
        self._in_use = False

    def park(self, task: Task, _wait: UntilProducerId) -> None:
        """Wake ``task`` with an id as soon as there is one."""
        self.when_available(lambda taken: self._runnable.wake(task, taken))

    def when_available(self, take: Callable[[ProducerId | None], None]) -> None:
        """Call ``take`` with an id as soon as there is one; with None when there never will be."""
        self._in_use = True
        self._waiting.append(take)
        self._serve()

    def prefetch(self, effects: list[Effect]) -> None:
        """Ask for a block if one will be wanted soon."""
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
            taken = self._allocator.take()
            if taken is None:
                return
            self._waiting.popleft()(taken)

    def _refuse_all(self) -> None:
        while self._waiting:
            self._waiting.popleft()(None)
