"""The plan of an audit: the segments to read, each with the files beside it, and the primary replica of a partition.

``directories`` makes it, ``segments`` and the engines carry it out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog.base.ids import NO_TOPIC_ID, TopicPartition
from oncelog.storage.file_names import LOG, SNAPSHOT


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment to read, with its neighbours and the files beside it."""

    topic: str
    partition: int
    replica: int
    base_offset: int
    path: str
    size_bytes: int
    next_base_offset: int
    """Base offset of the next segment; −1 for the last."""
    beside: tuple[str, ...] = ()
    """Extensions of the index files that are there."""
    snapshots: tuple[int, ...] = ()
    """Offsets of the producer snapshots that lie in this segment, its base offset included."""
    cleaned: bool = False
    """A checkpoint or its name says that the topic is compacted."""

    def beside_path(self, extension: str) -> str:
        """Path of a file of the same name with another extension."""
        return self.path.removesuffix(LOG) + extension

    def snapshot_path(self, offset: int) -> str:
        """Path of a producer snapshot."""
        return f"{os.path.dirname(self.path)}/{offset:020d}{SNAPSHOT}"


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """A partition's primary replica."""

    replica: int
    directory: str
    log_start: int
    """The first offset there can be."""
    cleaned: bool
    topic_id: bytes = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class Plan:
    """All segments to read, by partition and replica."""

    log_directories: tuple[str, ...]
    tasks: tuple[SegmentTask, ...]
    partitions: Mapping[TopicPartition, PartitionPlace] = field(default_factory=dict)
    unreadable: tuple[tuple[str, str], ...] = ()
    """Directories that could not be listed, and why."""
    stopped: bool = False
    """Every broker closed its directory itself."""
    transaction_partitions: int | None = None
    """Partitions of ``__transaction_state``, where a directory says."""

    @property
    def size_bytes(self) -> int:
        """Size of all segments."""
        return sum(task.size_bytes for task in self.tasks)
