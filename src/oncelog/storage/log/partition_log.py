"""One partition's log: its segments, its offsets, its producers, and what is not on disk yet.

Operations are functions over a :class:`PartitionLog`, a module each: ``append``, ``append_replicated``, ``read``,
``truncate``, ``rolling``. Nothing waits here: syncing, deleting and compacting are handed out, and
their completion is reported back. Every change keeps the invariants:

1. log start ≤ high watermark ≤ log end; last stable ≤ high watermark; durable ≤ log end.
2. Batches lie in the segments in the order of their offsets; only the last segment grows.
3. ``producers.end_offset`` is the log end offset.
4. What is below ``durable_offset`` is on disk; the recovery point that is checkpointed never lies above it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
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
from oncelog.storage.log_config import AT_ONCE_BYTES, LogConfig, StorageConfig
from oncelog.storage.producer_snapshots import Snapshots
from oncelog.storage.segment.index_budget import IndexBudget
from oncelog.storage.segment.segment import Segment
from oncelog.storage.segment.segments import Segments
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


class PartitionLog:
    """One log; the invariants are the module's. Cluster metadata decide if it is appended to as leader or follower."""

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

    def validate_records(self, data: memoryview | bytearray, now_ms: int) -> Generator[None, None, ValidatedRecords]:
        """Validate the records of a batch in steps, which touch no log: a worker may take them.

        ``append_batch`` does the same at once unless it is given the outcome.
        """
        limit = self.storage.max_decompressed_bytes
        return record_validation.validate_records(data, self.config, now_ms, limit, self.partition)

    def begin_epoch(self, epoch: int) -> None:
        """Note that ``epoch`` begins at the log's end: done at election, before any record (KIP-101).

        Followers that have records of an epoch which this log never saw learn from it where theirs must be cut. It is
        not written down before the first record: an epoch without records parts no logs, and the batches say the rest.
        """
        self.mark_replicated()
        self.leader_epochs.assign(epoch, self.log_end_offset)

    def epoch_end_offset(self, epoch: int, leader_epoch: int) -> tuple[int, int]:
        """The largest leader epoch not above ``epoch`` and the offset after its last record; (−1, −1) if unknown.
        ``leader_epoch`` is the epoch in which the log is led now, written in or not."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset, leader_epoch)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote ``offset``, −1 when unknown."""
        return self.leader_epochs.epoch_of(offset)

    # Group commit

    def files_to_sync(self) -> tuple[list[OpenFile], Offset]:
        """The files whose sync makes every record up to the offset durable (it is the log's end)."""
        self.unsynced.start_sync()
        return self.unsynced.files(self.segments.active), self.log_end_offset

    @property
    def has_unsynced_segments(self) -> bool:
        """True if sealed segments wait for a sync; until then their files stay open, deleted or not."""
        return self.unsynced.has_sealed

    def synced(self, upto: Offset) -> None:
        """Take note that the files which :meth:`files_to_sync` named are on disk; a truncation since then counts."""
        upto = Offset(self.unsynced.still_valid_end(upto))
        if upto >= self.durable_offset:
            self.durable_offset = Offset(min(upto, self.log_end_offset))
            self.unsynced.synced(upto)

    # Files

    def mark_replicated(self) -> None:
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

    def retire(self, gone: Iterable[Segment], now_ms: int, replaced_by: Segment | None = None) -> None:
        """Mark the files of segments that have left the log as deleted, in the order given; keep the snapshot that the
        segment in their place begins with."""
        # As in Apache Kafka the files are renamed at once and removed after a delay: a reader in one of them reads on.
        for segment in gone:
            self.budget.forget(segment)
            segment.rename(DELETED)
            if replaced_by is None or segment.base_offset != replaced_by.base_offset:
                self.snapshots.remove(segment.base_offset)
            self.retired.append((now_ms + self.config.file_delete_delay_ms, segment))

    def write_leader_epochs(self, sync: Sync | None = None) -> None:
        """Bring the file of leader epochs up to date: at a roll and at the end, as recovery reads the active segment's
        epochs off its batches. The content is synced where other replicas go by it, or may one day: what is known of
        older segments stands nowhere else."""
        if self.leader_epochs.changed:
            needed = self.has_replicas or len(self.leader_epochs.entries) > 1
            sync = sync or (Sync.CONTENT if needed else Sync.NOTHING)
            write_leader_epochs(self.files, self.directory, self.leader_epochs.entries, sync)
            self.leader_epochs.changed = False

    def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that were idle for ``producer.id.expiration.ms`` and have nothing open."""
        self.producers.expire(now_ms, self.storage.producer_id_expiration_ms)

    def set_topic_id(self, topic_id: TopicId) -> None:
        """Say to which topic the log belongs, if it is not known."""
        if self.topic_id == NO_TOPIC_ID:
            self.topic_id = topic_id
            write_topic_id(self.files, self.directory, topic_id)

    def close(self) -> None:
        """Clean shutdown: sync the records, write what saves the next start from reading them."""
        invariant(not self.closed, "log closed twice", partition=self.partition)
        if self.durable_offset < self.log_end_offset:
            files, upto = self.files_to_sync()
            for file in files:
                file.sync()
            self.synced(upto)
        self.segments.active.write_indexes(seal=True)
        self.snapshots.take(self.producers, self.log_start_offset)
        self.write_leader_epochs()
        self.transactions.write_ids(self)
        self.closed = True

    def moved_to(self, directory: str) -> None:
        """Use the partition's files under the name that their directory has now."""
        self.directory = directory
        self.snapshots.moved_to(directory)
        for segment in self.segments:
            segment.moved_to(directory)
