"""One partition's log: its segments, its offsets, its producers, and its unsynced files.

Operations are functions over a :class:`PartitionLog`, one module each. Nothing waits here: syncing, deleting and
compacting are handed out, and their completion is reported back. Invariants:

1. log start ≤ high watermark ≤ log end; last stable ≤ high watermark; durable ≤ log end.
2. Batches lie in the segments in the order of their offsets; only the last segment grows.
3. ``producers.end_offset`` is the log end offset.
4. Everything below ``durable_offset`` is on disk; the checkpointed recovery point never lies above it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from oncelog.base.ids import NO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition
from oncelog.base.invariant import invariant
from oncelog.core.producers.state import ProducerState
from oncelog.ports import Files, OpenFile
from oncelog.storage.checkpoints import Sync, write_leader_epochs, write_topic_id
from oncelog.storage.file_names import DELETED, PARTITION_METADATA
from oncelog.storage.leader_epochs import LeaderEpochs
from oncelog.storage.log import record_validation
from oncelog.storage.log.record_validation import ValidatedRecords
from oncelog.storage.log.tail import TailPositions
from oncelog.storage.log.unsynced_files import UnsyncedFiles
from oncelog.storage.log_config import LogConfig, StorageConfig
from oncelog.storage.producer_snapshots import Snapshots
from oncelog.storage.segment.index_budget import IndexBudget
from oncelog.storage.segment.segment import Segment
from oncelog.storage.segment.segments import Segments
from oncelog.storage.transactions.open_transactions import OpenTransactions


class Checkpoints(Protocol):
    """The data directory's checkpoints that a log has to write before it goes on. Methods raise OSError."""

    def logs_may_have_gaps(self) -> None:
        """Record which logs may have gaps from compaction; durable on return."""

    def before_truncation(
        self, partition: TopicPartition, recovery_point: int, high_watermark: int, log_start_offset: int | None
    ) -> None:
        """Lower the offsets of a log before its truncation (None: the log start stays); durable on return."""


@dataclass(frozen=True, slots=True)
class SharedByLogs:
    files: Files
    storage: StorageConfig
    budget: IndexBudget
    transactions: OpenTransactions
    checkpoints: Checkpoints
    room: memoryview
    """Scratch buffer for one batch's decompressed records; valid until the next batch."""


class RecoveredLog(NamedTuple):
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
    """The log's end now, if durable records beyond it are damaged or missing."""


class PartitionLog:
    """Cluster metadata decide between leader and follower appends."""

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
        """The open transactions of all logs of the directory."""
        self.segments = recovered.segments
        self.producers = recovered.producers
        self.snapshots = recovered.snapshots
        self.leader_epochs = recovered.leader_epochs
        self.log_start_offset = Offset(recovered.log_start_offset)
        self.log_end_offset = Offset(recovered.log_end_offset)
        self.durable_offset = Offset(recovered.durable_offset)
        self.high_watermark = Offset(recovered.log_start_offset)
        """The end of the committed records, from the checkpoint or the leader; other replicas may lack records on this
        disk."""
        self.cleaned_offset = recovered.cleaned_offset
        """Compaction has covered everything before it; the rest is dirty."""
        self.ever_cleaned = recovered.ever_cleaned
        """True once compaction may have left gaps; persisted (``cleaner-offset-checkpoint``) before the first one."""
        self.closed = False
        self.has_replicas = False
        """True once this run has followed a leader, or begun a leader epoch for others to follow."""
        self.truncations = 0
        """Number of truncations; a job that began before one must discard its result."""
        self.retired: list[tuple[int, Segment]] = []
        """(time at which its files may be removed, segment that has left the log), in order."""
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

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """−1 without a leader that wrote or was elected here."""
        return LeaderEpoch(self.leader_epochs.latest)

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def starts_inside_segment(self) -> bool:
        """True if the first segment's name does not give the log start offset."""
        return self.log_start_offset > self.segments[0].base_offset

    @property
    def last_stable_offset(self) -> Offset:
        """The end of the decided records, for read_committed."""
        unstable = self.producers.first_unstable_offset()
        if unstable is None:
            return self.high_watermark
        return Offset(min(self.high_watermark, max(unstable, self.log_start_offset)))

    def set_high_watermark(self, offset: int) -> bool:
        """Advance the high watermark within the log; True if it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = Offset(offset)
        self.producers.high_watermark_moved(offset)
        return True

    def raise_log_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = Offset(offset)
            self.leader_epochs.truncate_from_start(offset)
            self.producers.log_start_moved(offset)
            self.high_watermark = Offset(max(self.high_watermark, offset))

    def follow(self, high_watermark: int, log_start_offset: int) -> bool:
        """Adopt both offsets from the leader's response, within this log; True if the high watermark moved."""
        moved = self.set_high_watermark(high_watermark)
        # The log start never passes the high watermark: a follower behind the leader's log start is refused at its next
        # fetch and starts over there (truncate_fully_and_start_at).
        self.raise_log_start(min(log_start_offset, self.high_watermark))
        return moved

    def validate_records(self, data: memoryview | bytearray, now_ms: int) -> Generator[None, None, ValidatedRecords]:
        """Validate a batch's records in steps that touch no log, for a worker; ``append_batch`` takes the result, or
        validates at once."""
        limit = self.storage.max_decompressed_bytes
        return record_validation.validate_records(data, self.config, now_ms, limit, self.partition)

    def begin_epoch(self, epoch: int) -> None:
        """Record at election that ``epoch`` begins at the log's end, before any record (KIP-101).

        Followers learn from it where to cut an epoch that this log never had.
        """
        self.mark_replicated()
        # In memory only: an epoch without records separates no logs, and the batches of later ones carry it.
        self.leader_epochs.assign(epoch, self.log_end_offset)

    def epoch_end_offset(self, epoch: int, leader_epoch: int) -> tuple[int, int]:
        """Like :meth:`LeaderEpochs.end_offset`; ``leader_epoch`` may have no records yet."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset, leader_epoch)

    def epoch_of(self, offset: int) -> int:
        return self.leader_epochs.epoch_of(offset)

    def files_to_sync(self) -> tuple[list[OpenFile], Offset]:
        """The files to sync for everything up to the returned offset, the log's end, to be durable."""
        self.unsynced.start_sync()
        return self.unsynced.files(self.segments.active), self.log_end_offset

    @property
    def has_unsynced_segments(self) -> bool:
        """True if sealed segments wait for a sync; they stay open until then, even if deleted."""
        return self.unsynced.has_sealed

    def synced(self, upto: Offset) -> None:
        """Report a sync of the files of :meth:`files_to_sync`; a truncation meanwhile lowers its effect."""
        upto = Offset(self.unsynced.still_valid_end(upto))
        if upto >= self.durable_offset:
            self.durable_offset = Offset(min(upto, self.log_end_offset))
            self.unsynced.synced(upto)

    def mark_replicated(self) -> None:
        """Other brokers have replicas of this log: the file of its topic id becomes durable with its first records."""
        if not self.has_replicas:
            self.has_replicas = True
            # Without the file, the records could be taken for those of a new topic of the same name.
            if self.unsynced.is_new:
                with contextlib.suppress(FileNotFoundError):
                    self.unsynced.topic_file = self.files.open(f"{self.directory}/{PARTITION_METADATA}")
                    # Closed until the sync, which may never come: thousands of logs need the descriptors.
                    self.unsynced.topic_file.close()

    def files_of(self, segment: Segment, end_offset: int) -> list[OpenFile]:
        """The files of a sealed segment to sync: its records, and the producer snapshot at its end."""
        # Once older segments are deleted, only the snapshot knows the producers of their records.
        snapshot = self.snapshots.file_at(end_offset)
        return segment.files_with_data() + ([] if snapshot is None else [snapshot])

    def retire(self, segments: Iterable[Segment], now_ms: int, replaced_by: Segment | None = None) -> None:
        """Mark the files of removed segments as deleted, in the given order."""
        # Renamed at once and removed after a delay, as in Apache Kafka: readers go on in the open files.
        for segment in segments:
            self.budget.forget(segment)
            segment.rename(DELETED)
            # A replacement still begins with the snapshot.
            if replaced_by is None or segment.base_offset != replaced_by.base_offset:
                self.snapshots.remove(segment.base_offset)
            self.retired.append((now_ms + self.config.file_delete_delay_ms, segment))

    def write_leader_epochs(self, sync: Sync | None = None) -> None:
        """Write the leader epochs if they changed: at a roll and at the end. Recovery reads the active segment's epochs
        from its batches."""
        if self.leader_epochs.changed:
            # Synced if replicas rely on them, now or later: older segments' epochs are recorded nowhere else.
            must_sync = self.has_replicas or len(self.leader_epochs.entries) > 1
            sync = sync or (Sync.CONTENT if must_sync else Sync.NOTHING)
            write_leader_epochs(self.files, self.directory, self.leader_epochs.entries, sync)
            self.leader_epochs.changed = False

    def expire_producers(self, now_ms: int) -> None:
        self.producers.expire(now_ms, self.storage.producer_id_expiration_ms)

    def set_topic_id(self, topic_id: TopicId) -> None:
        if self.topic_id == NO_TOPIC_ID:
            self.topic_id = topic_id
            write_topic_id(self.files, self.directory, topic_id)

    def close(self) -> None:
        """Clean shutdown: sync the records, and write the files that spare the next start from reading them."""
        invariant(not self.closed, "log closed twice", partition=self.partition)
        if self.durable_offset < self.log_end_offset:
            files, upto = self.files_to_sync()
            for file in files:
                file.sync()
            self.synced(upto)
        self.segments.active.write_indexes()
        self.snapshots.take(self.producers, self.log_start_offset)
        self.write_leader_epochs()
        self.transactions.write_ids(self)
        self.closed = True

    def moved_to(self, directory: str) -> None:
        self.directory = directory
        self.snapshots.moved_to(directory)
        for segment in self.segments:
            segment.moved_to(directory)
