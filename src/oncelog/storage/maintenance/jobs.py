"""Work that must not run on the loop: deleting files, compaction, rebuilding indexes.

The rule: :meth:`Job.run` is driven by a worker, slice by slice (every ``next`` is bounded), and touches only sealed
files and what was handed to it; then exactly one of :meth:`Job.apply` and :meth:`Job.abandon` is called on the loop.
``apply`` takes the result over only if the inputs are still there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from oncelog.base.ids import TopicPartition

COMPACTION: Final = "compact"
"""The name of the job that compacts a log."""


class Job(Protocol):
    """One piece of background work on one log; see the module's rule."""

    name: str
    partition: TopicPartition

    def run(self) -> Iterator[None]:
        """The slices; OSError ends the job."""

    def apply(self) -> None:
        """All slices are done: take the result over."""

    def abandon(self) -> None:
        """A slice failed or the node stops: leave no trace that recovery does not clear away."""


class JobOwner(Protocol):
    """Keeps count of the jobs of one log that are under way."""

    def finished(self, job: Job, *, failed: bool = False) -> None:
        """``job`` came to its end."""
