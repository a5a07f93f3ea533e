"""Changes of the cluster's metadata: written by a worker in order, applied to the image when they are durable.

Invariants:
1. The image changes only by what the tree has committed, in the order of the commits.
2. A conflict changes nothing; whoever asked decides again on the image as it is then.
3. A tree that cannot be written (its disk is full or gone) ends the node: its view of the cluster would rot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.tree import Operation
from oncelog.core.controller.image import ImageDelta, changes_of
from oncelog.node.events import Fatal, MetadataWritten, WriteMetadata
from oncelog.node.metadata import Metadata
from oncelog.node.outbox import Outbox
from oncelog.node.requests.tasks import Runnable, Task

if TYPE_CHECKING:
    from oncelog.handlers.support.waits import CommitMetadata


class MetadataLog:
    """Commits under way. ``apply`` is told of every change of the image."""

    def __init__(
        self, metadata: Metadata, outbox: Outbox, runnable: Runnable, apply: Callable[[ImageDelta], None]
    ) -> None:
        self._metadata = metadata
        self._outbox = outbox
        self._runnable = runnable
        self._apply = apply
        self._pending: dict[int, tuple[Sequence[Operation], Callable[[bool], None]]] = {}
        self._next_token = 1

    def park(self, task: Task, wait: CommitMetadata) -> None:
        """Keep ``task`` until its commit has an outcome."""
        self.commit(wait.operations, partial(self._runnable.wake, task))

    def commit(self, operations: Sequence[Operation], done: Callable[[bool], None]) -> None:
        """Write ``operations``; call ``done`` with True if they were committed, after the image has them."""
        token = self._next_token
        self._next_token += 1
        self._pending[token] = (operations, done)
        self._outbox.effects.append(WriteMetadata(token, operations))

    def written(self, event: MetadataWritten) -> None:
        """Take in the outcome of a write."""
        operations, done = self._pending.pop(event.token)
        if event.failure is not None:
            self._outbox.effects.append(Fatal(f"could not write the cluster's facts: {event.failure}"))
            return
        if not event.conflict:
            self._apply(self._metadata.image.apply(changes_of(operations)))
        done(not event.conflict)

    def is_idle(self) -> bool:
        """True while no write is under way."""
        return not self._pending
