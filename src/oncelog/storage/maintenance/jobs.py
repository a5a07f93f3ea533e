"""Work that must not run on the loop: deleting files, compaction, rebuilding indexes.

A worker drives :meth:`Job.run` slice by slice (every ``next`` is bounded); it touches only sealed files and its own
data. Then exactly one of :meth:`Job.apply` and :meth:`Job.abandon` is called on the loop. ``apply`` uses the result
only if the inputs still exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from oncelog.base.ids import TopicPartition

COMPACTION: Final = "compact"
"""The name of the compaction job."""


class Job(Protocol):
    """A piece of background work on one log; see the module's rule."""

    name: str
    partition: TopicPartition

    def run(self) -> Iterator[None]:
        """The slices. OSError ends the job."""

    def apply(self) -> None:
        """All slices are done: use the result."""

    def abandon(self) -> None:
        """A slice failed or the node stops: leave nothing behind that recovery does not remove."""


class JobOwner(Protocol):
    """Tracks the running jobs of one log."""

    def finished(self, job: Job, *, failed: bool = False) -> None: ...
