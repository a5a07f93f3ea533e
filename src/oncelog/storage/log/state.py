"""The state of one partition's log: its segments, its offsets, its producers, and what is not on disk yet.

The rule: the modules of this room are functions over a :class:`LogState` (``append``, ``append_replicated``,
``truncate``, ``read``, ``rolling``); ``partition_log`` is the object that other rooms hold. Whatever changes the state
keeps the invariants:

1. log start ≤ high watermark ≤ log end; last stable ≤ high watermark; durable ≤ log end.
2. Batches lie in the segments in the order of their offsets; only the last segment grows.
3. ``producers.end_offset`` is the log end offset.
4. What is below ``durable_offset`` is on disk; the recovery point that is checkpointed never lies above it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from oncelog.base.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from oncelog.core.producers.state import ProducerState
from oncelog.ports import Files, OpenFile
from oncelog.storage.checkpoints import Sync, write_leader_epochs
from oncelog.storage.config import AT_ONCE_BYTES, LogConfig, StorageConfig
from oncelog.storage.file_names import PARTITION_METADATA
from oncelog.storage.leader_epochs import LeaderEpochs
from oncelog.storage.log.tail import TailPositions
from oncelog.storage.log.unsynced_files import UnsyncedFiles
from oncelog.storage.segment.index_budget import IndexBudget
from oncelog.storage.segment.segment import Segment
from oncelog.storage.segment.segments import Segments
from oncelog.storage.snapshots.snapshot_files import Snapshots
from oncelog.storage.transactions.open_transactions import OpenTransactions


class Checkpoints(Protocol):
    """The checkpoints of the data directory, as far as a log relies on them before it goes on. Raises OSError."""

    def logs_may_have_gaps(self) -> None:
        """Write down which logs compaction may have left gaps in; durable when it returns."""

    def before_truncation(
        self, partition: TopicPartition, recovery_point: int, high_watermark: int, log_start_offset: int | None
    ) -> None:
        """Write down the offsets that a truncation is about to leave (None: the log start as it is); durable when it
        returns."""


@dataclass(frozen=True, slots=True)
class SharedByLogs:
    """The collaborators that all logs of one data directory share."""

    files: Files
    storage: StorageConfig
    budget: IndexBudget
    transactions: OpenTransactions
    checkpoints: Checkpoints
    room: memoryview = field(default_factory=lambda: memoryview(bytearray(AT_ONCE_BYTES)))
    """Room for the records of one batch, decompressed; what is in it holds until the next batch."""


class RecoveredLog(NamedTuple):
    """The outcome of recovery, from which a log begins."""

    segments: Segments
    producers: ProducerState
    snapshots: Snapshots
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    durable_offset: int
    cleaned_offset: int = 0
    ever_cleaned: bool = False
    lost_from: int | None = None
    """The log's end now, if it ended later on the disk: records that were durable are damaged or missing."""


class LogState:
    """The state of one log; the invariants are the module's."""

    def __init__(
        self,
        shared: SharedByLogs,
        partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        recovered: RecoveredLog,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.storage = shared.storage
        self.files = shared.files
        self.directory = str(partition)
        self.budget = shared.budget
        self.checkpoints = shared.checkpoints
        self.room = shared.room
        self.transactions = shared.transactions
        """The open transactions of all logs of the directory, this one's among them."""
        self.segments = recovered.segments
        self.producers = recovered.producers
        self.snapshots = recovered.snapshots
        self.leader_epochs = recovered.leader_epochs
        self.log_start_offset = Offset(recovered.log_start_offset)
        self.log_end_offset = Offset(recovered.log_end_offset)
        self.durable_offset = Offset(recovered.durable_offset)
        self.high_watermark = Offset(recovered.log_start_offset)
        """The end of what is committed, by the checkpoint or the leader: others may lack what is on this disk."""
        self.cleaned_offset = recovered.cleaned_offset
        """Compaction has been over everything before it; the rest is dirty."""
        self.ever_cleaned = recovered.ever_cleaned
        """True once compaction may have left gaps; written down (``cleaner-offset-checkpoint``) before the first."""
        self.closed = False
        self.has_replicas = False
        """True once this run has followed a leader here, or begun a leader epoch for others to follow."""
        self.truncations = 0
        """Number of times that the end has moved back: jobs that began before go by records that may be gone."""
        self.retired: list[tuple[int, Segment]] = []
        """(when its files may be removed, segment that has left the log), in order."""
        self.tail = TailPositions()
        self.unsynced = UnsyncedFiles(shared.files, self.directory)
        for index, segment in enumerate(self.segments.sealed()):
            end = self.segments.end_of(index, self.log_end_offset)
            if end > self.durable_offset:
                self.unsynced.sealed(self.files_of(segment, end), end)
        self.producers.high_watermark_moved(self.high_watermark)
        self.transactions.restore(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.partition}, [{self.log_start_offset}, {self.log_end_offset}))"

    # Offsets

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Epoch of the last leader that wrote here, or has begun to lead; −1 when nobody has."""
        return LeaderEpoch(self.leader_epochs.latest)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self.segments.size_bytes

    @property
    def starts_inside_segment(self) -> bool:
        """True if the log start offset cannot be read off the first segment's name."""
        return self.log_start_offset > self.segments[0].base_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Records before it are decided: read_committed reads up to here."""
        unstable = self.producers.first_unstable_offset()
        if unstable is None:
            return self.high_watermark
        return Offset(min(self.high_watermark, max(unstable, self.log_start_offset)))

    def set_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward, within the log; True when it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = Offset(offset)
        self.producers.high_watermark_moved(offset)
        return True

    def raise_log_start(self, offset: int) -> None:
        """Records before ``offset`` are no longer part of the log."""
        if offset > self.log_start_offset:
            self.log_start_offset = Offset(offset)
            self.leader_epochs.truncate_from_start(offset)
            self.producers.log_start_moved(offset)
            self.high_watermark = Offset(max(self.high_watermark, offset))

    def follow(self, high_watermark: int, log_start_offset: int) -> bool:
        """Take over both offsets from the leader's answer, as far as this log goes; True when the high watermark moved.

        The log start never passes the high watermark: a follower that is behind the leader's log start finds out when
        its fetch is refused, and begins anew there (``truncate_fully_and_start_at``).
        """
        moved = self.set_high_watermark(high_watermark)
        self.raise_log_start(min(log_start_offset, self.high_watermark))
        return moved

    # Files

    def note_replicas(self) -> None:
        """Other brokers have replicas of this log: from now on the file of its topic id becomes durable with its first
        records. Without it, a topic made anew under the same name would be taken for the one the records are of."""
        if not self.has_replicas:
            self.has_replicas = True
            if self.unsynced.is_new:
                with contextlib.suppress(FileNotFoundError):
                    self.unsynced.topic_file = self.files.open(f"{self.directory}/{PARTITION_METADATA}")
                    # Opened again for that sync, if there ever is one: thousands of logs need the descriptors.
                    self.unsynced.topic_file.close()

    def files_of(self, segment: Segment, end_offset: int) -> list[OpenFile]:
        """The files of a sealed segment that must be synced: its records, and the producer snapshot at its end. When
        older segments are deleted, that snapshot is all that tells of producers whose records are gone."""
        snapshot = self.snapshots.file_at(end_offset)
        return segment.files_with_data() + ([] if snapshot is None else [snapshot])

    def write_leader_epochs(self, sync: Sync | None = None) -> None:
        """Bring the file of leader epochs up to date: at a roll and at the end, as recovery reads the active segment's
        epochs off its batches. The content is synced where other replicas go by it, or may one day: what is known of
        older segments stands nowhere else."""
        if self.leader_epochs.changed:
            needed = self.has_replicas or len(self.leader_epochs.entries) > 1
            sync = sync or (Sync.CONTENT if needed else Sync.NOTHING)
            write_leader_epochs(self.files, self.directory, self.leader_epochs.entries, sync)
            self.leader_epochs.changed = False
