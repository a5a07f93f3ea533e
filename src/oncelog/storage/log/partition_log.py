"""One partition's log, as other rooms hold it: append, read, truncate, offsets, and what has to be made durable.

The rule: nothing waits here. Syncing, deleting and compacting are handed out (:meth:`PartitionLog.files_to_sync`,
:meth:`PartitionLog.due_jobs`) and their completion is reported back. The state and its invariants are in ``state``;
each operation is a module of this room.
"""

from __future__ import annotations

from collections.abc import Generator

from oncelog.base.ids import NO_TOPIC_ID, Offset, TopicId, TopicPartition
from oncelog.base.invariant import invariant
from oncelog.ports import OpenFile
from oncelog.storage.checkpoints import write_topic_id
from oncelog.storage.config import LogConfig
from oncelog.storage.errors import OffsetOutOfRange
from oncelog.storage.log import append, append_replicated, read, record_validation, rolling, truncate
from oncelog.storage.log.append import Appended as Appended
from oncelog.storage.log.read import Search
from oncelog.storage.log.record_validation import ValidatedRecords
from oncelog.storage.log.state import LogState, RecoveredLog, SharedByLogs
from oncelog.storage.segment.segment import Segment


class PartitionLog(LogState):
    """One partition's log. The cluster's metadata decide whether it is appended to as a leader or as a follower."""

    def __init__(
        self,
        shared: SharedByLogs,
        partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        recovered: RecoveredLog,
    ) -> None:
        super().__init__(shared, partition, topic_id, config, recovered)

    # As the leader

    append = append.append
    """Write one batch at the end and give it its offset."""

    def validate_records(self, data: memoryview | bytearray, now_ms: int) -> Generator[None, None, ValidatedRecords]:
        """Validate the records of a batch in steps, which touch no log: a worker may take them.

        :meth:`append` does the same at once unless it is given the outcome.
        """
        limit = self.storage.max_decompressed_bytes
        return record_validation.validate_records(data, self.config, now_ms, limit, self.partition)

    def begin_epoch(self, epoch: int) -> None:
        """Note that ``epoch`` begins at the log's end: done at election, before any record (KIP-101).

        Followers that have records of an epoch which this log never saw learn from it where theirs must be cut. It is
        not written down before the first record: an epoch without records parts no logs, and the batches say the rest.
        """
        self.note_replicas()
        self.leader_epochs.assign(epoch, self.log_end_offset)

    # As a follower

    append_replicated = append_replicated.append_replicated
    """Write batches that the leader has sent, with the offsets and epochs it gave them."""

    truncate_to = truncate.truncate_to
    """Cut the log so that it ends before an offset."""

    truncate_fully_and_start_at = truncate.truncate_fully_and_start_at
    """Give up all records and begin anew at an offset."""

    # Group commit

    def files_to_sync(self) -> tuple[list[OpenFile], Offset]:
        """The files whose sync makes every record up to the offset durable (it is the log's end)."""
        self.unsynced.sync_begins()
        return self.unsynced.files(self.segments.active), self.log_end_offset

    @property
    def has_unsynced_segments(self) -> bool:
        """True if sealed segments wait for a sync; until then their files stay open, deleted or not."""
        return self.unsynced.has_sealed

    def synced(self, upto: Offset) -> None:
        """Take note that the files which :meth:`files_to_sync` named are on disk; a truncation since then counts."""
        upto = Offset(self.unsynced.still_there(upto))
        if upto >= self.durable_offset:
            self.durable_offset = Offset(min(upto, self.log_end_offset))
            self.unsynced.synced(upto)

    # Reading

    read = read.read
    """Batches from an offset on, as ranges of files."""

    def search_timestamp(self, timestamp: int) -> Search:
        """The first record at or after ``timestamp`` (milliseconds), exact to the record; None when there is none.
        Raises OSError, also when its files have gone between two steps."""
        limit = self.storage.max_decompressed_bytes
        return read.first_at_or_after(self.segments, timestamp, self.log_start_offset, limit)

    def search_max_timestamp(self) -> Search:
        """The first record with the largest timestamp; None when the log is empty. Otherwise as above."""
        return read.latest_timestamp(self.segments, self.storage.max_decompressed_bytes)

    def epoch_end_offset(self, epoch: int, leader_epoch: int) -> tuple[int, int]:
        """The largest leader epoch not above ``epoch`` and the offset after its last record; (−1, −1) if unknown.
        ``leader_epoch`` is the epoch in which the log is led now, written in or not."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset, leader_epoch)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote ``offset``, −1 when unknown."""
        return self.leader_epochs.epoch_of(offset)

    # Keeping

    def delete_records_before(self, offset: int) -> Offset:
        """Raise the log start offset to ``offset`` (−1: the high watermark) and return it.

        Raises OffsetOutOfRange beyond the high watermark or below 0. The files go with the next retention.
        """
        if offset == -1:
            offset = self.high_watermark
        if offset > self.high_watermark or offset < 0:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        self.raise_log_start(offset)
        return self.log_start_offset

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin a new one at the log's end. OSError: nothing has changed."""
        return rolling.roll(self, now_ms)

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
