"""The plan of an audit: the segments to read, the files beside each, and every partition's primary replica.

``directories`` builds the plan; ``segments`` and the engines execute it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog.base.ids import NO_TOPIC_ID, TopicPartition
from oncelog.storage.file_names import LOG, SNAPSHOT


@dataclass(frozen=True, slots=True)
class SegmentTask:
    topic: str
    partition: int
    replica: int
    base_offset: int
    path: str
    size_bytes: int
    # Base offset of the next segment; −1 for the last.
    next_base_offset: int
    # Extensions of the index files that exist.
    beside: tuple[str, ...] = ()
    # Offsets of the producer snapshots within this segment, its base offset included.
    snapshots: tuple[int, ...] = ()
    # True if a checkpoint or the topic's name shows that the topic is compacted.
    cleaned: bool = False

    def beside_path(self, extension: str) -> str:
        return self.path.removesuffix(LOG) + extension

    def snapshot_path(self, offset: int) -> str:
        return f"{os.path.dirname(self.path)}/{offset:020d}{SNAPSHOT}"


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    replica: int
    directory: str
    # The lowest offset that may exist.
    log_start: int
    cleaned: bool
    topic_id: bytes = NO_TOPIC_ID
    # Leader epochs and their first offsets.
    epochs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    log_directories: tuple[str, ...]
    tasks: tuple[SegmentTask, ...]
    partitions: Mapping[TopicPartition, PartitionPlace] = field(default_factory=dict)
    # (directory, reason) for each directory that could not be listed.
    unreadable: tuple[tuple[str, str], ...] = ()
    # True if every broker shut down cleanly.
    stopped: bool = False
    # Partitions of ``__transaction_state``; None if no directory declares their number.
    transaction_partitions: int | None = None

    @property
    def size_bytes(self) -> int:
        return sum(task.size_bytes for task in self.tasks)
