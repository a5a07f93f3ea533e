"""Changes of cluster facts: written by a worker in order, applied to the image when they are durable.

Invariants:
1. The image changes only by what the tree has committed, in the order of the commits.
2. A conflict changes nothing; whoever asked decides again on the image as it is then.
3. A tree that cannot be written (its disk is full or gone) ends the node: its view of the cluster would rot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncelog.base.tree import Operation
from oncelog.node.events import Effect, Fatal, MetadataWritten, WriteMetadata


class MetadataCommits:
    """Commits under way."""

    def __init__(self, apply: Callable[[Sequence[Operation]], None]) -> None:
        self._apply = apply
        self._pending: dict[int, tuple[Sequence[Operation], Callable[[bool], None]]] = {}
        self._next_token = 1

    def commit(self, operations: Sequence[Operation], done: Callable[[bool], None], effects: list[Effect]) -> None:
        """Write ``operations``; call ``done`` with whether they were committed, after the image has them."""
        token = self._next_token
        self._next_token += 1
        self._pending[token] = (operations, done)
        effects.append(WriteMetadata(token, operations))

    def written(self, event: MetadataWritten, effects: list[Effect]) -> None:
        """A write came back."""
        operations, done = self._pending.pop(event.token)
        if event.failure is not None:
            effects.append(Fatal(f"could not write the cluster's facts: {event.failure}"))
            return
        if not event.conflict:
            self._apply(operations)
        done(not event.conflict)

    def is_idle(self) -> bool:
        """Whether no write is under way."""
        return not self._pending
