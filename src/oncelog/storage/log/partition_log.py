"""One partition's log: append, read, offsets, and what has to be made durable.

The rule: a batch is validated into provisional values, written in one call, and only then do the log and the producer
state change, together; a refused batch leaves no trace. Nothing waits here: syncing, deleting and compacting are handed
out (:meth:`files_to_sync`, :meth:`due_jobs`) and their completion is reported back.

Invariants:
1. log start ≤ high watermark ≤ log end; last stable ≤ high watermark; durable ≤ log end.
2. Batches lie in the segments in the order of their offsets; only the last segment grows.
3. ``producers.end_offset`` is the log end offset.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition
from oncelog.base.invariant import invariant
from oncelog.base.units import INT32_MAX
from oncelog.core.producers.refusal import ProducerRefusal
from oncelog.core.producers.state import ProducerState, Update
from oncelog.core.producers.verification import Guard
from oncelog.ports import Files, OpenFile
from oncelog.records.batch import BatchHeader, CorruptBatch, set_base_offset_and_leader_epoch, set_log_append_time
from oncelog.records.control import end_transaction_marker_of
from oncelog.records.record import read_records
from oncelog.storage.checkpoints import write_leader_epochs, write_topic_id
from oncelog.storage.config import LogConfig, StorageConfig
from oncelog.storage.errors import AppendRefused, OffsetOutOfRange
from oncelog.storage.file_range import FileRange
from oncelog.storage.index.transaction_index import AbortedTransaction
from oncelog.storage.jobs import Job
from oncelog.storage.log import maintenance, read, record_validation
from oncelog.storage.log.batch_validation import check_client_batch, check_internal_batch
from oncelog.storage.log.leader_epochs import LeaderEpochs
from oncelog.storage.log.read import Read, Search
from oncelog.storage.log.record_validation import ValidatedRecords
from oncelog.storage.log.segments import Segments
from oncelog.storage.log.tail import TailPositions
from oncelog.storage.log.unsynced_files import UnsyncedFiles
from oncelog.storage.segment.segment import IndexBudget, Segment
from oncelog.storage.snapshots.snapshot_files import Snapshots
from oncelog.storage.transactions.open_transactions import OpenTransaction, OpenTransactions
from oncelog.storage.transactions.transactional_ids import MAX_ID_BYTES

NO_TIMESTAMP = -1


class Appended(NamedTuple):
    """Where a batch went; of a duplicate, where the original went and when."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """−1 unless the broker sets timestamps (or it is a duplicate: then the original's max timestamp)."""
    log_start_offset: Offset
    duplicate: bool
    record_count: int
    size_bytes: int


class LogState(NamedTuple):
    """What recovery found, from which a log begins."""

    segments: Segments
    producers: ProducerState
    snapshots: Snapshots
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    durable_offset: int
    cleaned_offset: int = 0
    ever_cleaned: bool = False


class PartitionLog:
    """See the module's rule and invariants."""

    def __init__(
        self,
        files: Files,
        partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        storage: StorageConfig,
        budget: IndexBudget,
        state: LogState,
        directory: str = "",
        transactions: OpenTransactions | None = None,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.storage = storage
        self.files = files
        self.directory = directory or str(partition)
        self.budget = budget
        self.segments = state.segments
        self.producers = state.producers
        self.snapshots = state.snapshots
        self.leader_epochs = state.leader_epochs
        self.log_start_offset = Offset(state.log_start_offset)
        self.log_end_offset = Offset(state.log_end_offset)
        self.durable_offset = Offset(state.durable_offset)
        self.high_watermark = Offset(max(state.log_start_offset, state.durable_offset))
        self.cleaned_offset = state.cleaned_offset
        """Up to here compaction has been: the rest is dirty."""
        self.ever_cleaned = state.ever_cleaned
        """Compaction may have left gaps; written down (``cleaner-offset-checkpoint``) before the first one."""
        self.before_first_compaction: Callable[[], None] = lambda: None
        """What writes it down."""
        self.transactions = OpenTransactions() if transactions is None else transactions
        """The open transactions of all logs of the directory, this one's among them."""
        self.closed = False
        self.maintenance = maintenance.Maintenance(self)
        self._tail = TailPositions()
        self._unsynced = UnsyncedFiles(files, self.directory)
        for index, segment in enumerate(self.segments.sealed()):
            end = self.segments.end_of(index, self.log_end_offset)
            if end > self.durable_offset:
                self._unsynced.sealed(self._files_of(segment, end), end)
        self.producers.high_watermark_moved(self.high_watermark)
        self.transactions.restore(self)

    def __repr__(self) -> str:
        return f"PartitionLog({self.partition}, [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Epoch of the last leader that wrote here, −1 when nobody has."""
        return LeaderEpoch(self.leader_epochs.latest)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self.segments.size_bytes

    @property
    def starts_inside_segment(self) -> bool:
        """Whether the log start offset cannot be read off the first segment's name."""
        return self.log_start_offset > self.segments[0].base_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Records before it are decided: read_committed reads up to here."""
        unstable = self.producers.first_unstable_offset()
        if unstable is None:
            return self.high_watermark
        return Offset(min(self.high_watermark, max(unstable, self.log_start_offset)))

    # Appending

    def needs_record_validation(self, data: memoryview | bytearray, now_ms: int) -> bool:
        """Whether :meth:`append` would look into the records of such a batch, or build it anew."""
        return record_validation.needs_record_validation(data, self.config, now_ms)

    def validate_records(self, data: memoryview | bytearray, now_ms: int) -> Generator[None, None, ValidatedRecords]:
        """What :meth:`append` would do about the records all at once, in steps, which touch no log: a worker may take
        them. The outcome is for :meth:`append`."""
        limit = self.storage.max_decompressed_bytes
        return record_validation.validate_records(data, self.config, now_ms, limit, self.partition)

    def append(
        self,
        data: memoryview | bytearray,
        *,
        now_ms: int,
        leader_epoch: int,
        internal: bool = False,
        verified: bool = False,
        guard: Guard | None = None,
        transaction_version: int = 0,
        transactional_id: str | None = None,
        validated: ValidatedRecords | None = None,
    ) -> Appended:
        """Write one batch at the end. ``data`` is changed in place (offsets, leader epoch, time).

        ``internal``: made by this broker (coordinator records, markers), so not validated as a client's.
        ``verified``: the transaction coordinator knows of this producer's transaction here (KIP-890); without that a
        client cannot begin one; under ``guard``, if there is one: when it is stale the coordinator's word does not
        count any more. ``transaction_version`` says by which rules a marker's epoch is checked.
        ``transactional_id``: whose transaction it is, as the request said. ``validated``: by :meth:`validate_records`.
        Raises AppendRefused, or OSError when the disk refuses; either way nothing has changed.
        """
        invariant(not self.closed, "append to a closed log", partition=self.partition)
        config = self.config
        if internal:
            data, header = check_internal_batch(data, config, self.partition)
        else:
            limit = self.storage.max_decompressed_bytes
            data, header = check_client_batch(data, config, now_ms, limit, self.partition, validated)
        size = len(data)
        self._check_fits(size)
        base_offset = self.log_end_offset
        if config.log_append_time:
            header = header._replace(max_timestamp=now_ms)
        update = None
        if header.producer_id >= 0:
            if not internal and (original := self.producers.duplicate(header)) is not None:
                first, last = Offset(original.first_offset), Offset(original.last_offset)
                return Appended(first, last, original.timestamp, self.log_start_offset, True, header.record_count, size)
            self._check_verified(header, verified or internal, guard)
            update = self._prepare(header, data, base_offset, internal, transaction_version)
        set_base_offset_and_leader_epoch(data, 0, base_offset, leader_epoch)
        if config.log_append_time:
            set_log_append_time(data, 0, now_ms)
        last_offset = base_offset + header.last_offset_delta
        self._write(data, base_offset, last_offset, header.max_timestamp, now_ms, update)
        self.leader_epochs.assign(leader_epoch, base_offset)
        self._commit(update, last_offset + 1)
        if update is not None:
            self._note_transaction(update, now_ms, transactional_id)
        return Appended(
            base_offset,
            Offset(last_offset),
            now_ms if config.log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            False,
            header.record_count,
            size,
        )

    def _check_fits(self, size: int) -> None:
        limit = self.config.segment_bytes
        if size > limit:
            raise AppendRefused(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self.partition}, which exceeds the "
                f"maximum configured segment size of {limit}.",
            )

    def _check_verified(self, header: BatchHeader, verified: bool, guard: Guard | None) -> None:
        """KIP-890: what begins a transaction here was verified, and nothing has ended that transaction since."""
        producers = self.producers
        if not header.is_transactional or producers.has_open_transaction(header.producer_id):
            return
        if not verified or (guard is not None and not producers.verifications.is_current(guard)):
            raise AppendRefused(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def _prepare(
        self,
        header: BatchHeader,
        data: memoryview | bytearray,
        base_offset: int,
        internal: bool,
        transaction_version: int,
    ) -> Update:
        producers = self.producers
        try:
            if not header.is_control:
                return producers.prepare_data(header, base_offset, sequences=not internal)
            return prepare_marker(
                producers, header, data, base_offset, check=True, transaction_version=transaction_version
            )
        except ProducerRefusal as refusal:
            raise AppendRefused(refusal.error_code, f"{refusal.message} in {self.partition}") from None
        except CorruptBatch as error:
            raise AppendRefused(ErrorCode.INVALID_RECORD, f"{error} in {self.partition}") from None

    def _write(
        self,
        data: memoryview | bytearray,
        base_offset: int,
        last_offset: int,
        timestamp: int,
        now_ms: int,
        update: Update | None,
    ) -> None:
        """Everything that a full disk may refuse; whatever it refuses, nothing has changed."""
        active = self.segments.active
        if self.maintenance.must_roll(active, len(data), timestamp, last_offset, now_ms):
            active = self.roll(now_ms)
        noted = update is not None and self._note_aborted(active, update)
        try:
            position = active.append(data, last_offset, timestamp, self.config.index_interval_bytes)
        except OSError:
            if noted:
                active.take_back_aborted()
            raise
        self.segments.size_bytes += len(data)
        self._tail.note(base_offset, position)

    def _note_aborted(self, active: Segment, update: Update) -> bool:
        """An abort goes into the transaction index before its marker into the log: after a clean stop the index is
        believed, so it may not lack one. Whether it was one."""
        completed = update.completed
        if completed is None or not completed.aborted:
            return False
        stable = self.producers.stable_after(completed)
        producer_id, first_offset, last_offset, _ = completed
        if active.add_aborted(AbortedTransaction(producer_id, first_offset, last_offset, stable)):
            self._unsynced.file_appeared(last_offset)
        return True

    def _commit(self, update: Update | None, log_end_offset: int) -> None:
        self.log_end_offset = Offset(log_end_offset)
        self.producers.end_offset = log_end_offset
        if update is not None:
            self.producers.commit(update)

    def _note_transaction(self, update: Update, now_ms: int, transactional_id: str | None) -> None:
        entry = update.entry
        if transactional_id is not None and len(transactional_id) > MAX_ID_BYTES:
            transactional_id = None
        if update.started_at is not None:
            begun = OpenTransaction(
                self.partition, entry.producer_id, entry.epoch, update.started_at, now_ms, transactional_id
            )
            self.transactions.began(begun)
        elif update.completed is not None:
            self.transactions.ended(self.partition, entry.producer_id)
        elif transactional_id is not None and entry.transaction_first_offset is not None:
            self.transactions.named(self.partition, entry.producer_id, transactional_id)

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin a new one at the log's end. OSError: nothing has changed."""
        old = self.segments.active
        if old.base_offset == self.log_end_offset:
            return old
        new = Segment(self.files, self.directory, self.log_end_offset, 0, self.budget)
        self.producers.end_offset = self.log_end_offset
        self.snapshots.take(self.producers, self.log_start_offset)
        self.write_leader_epochs()
        try:
            old.seal()
            files = self._files_of(old, new.base_offset)
            new.begin(now_ms)
        except OSError:
            old.unseal()
            raise
        self._unsynced.sealed(files, new.base_offset)
        self._unsynced.file_appeared(new.base_offset)
        self.segments.add(new)
        self._tail.clear()
        return new

    def _files_of(self, segment: Segment, end_offset: int) -> list[OpenFile]:
        """A sealed segment's records and the producer state at its end: when older segments are deleted, that snapshot
        is all that tells of producers whose records are gone."""
        snapshot = self.snapshots.file_at(end_offset)
        return segment.files_with_data() + ([] if snapshot is None else [snapshot])

    # GroupCommit

    def files_to_sync(self) -> tuple[list[OpenFile], Offset]:
        """The files whose sync makes every record up to the offset durable (it is the log's end)."""
        return self._unsynced.files(self.segments.active), self.log_end_offset

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether sealed segments wait for a sync; until then their files stay open, deleted or not."""
        return self._unsynced.has_sealed

    def synced(self, upto: Offset) -> None:
        """What :meth:`files_to_sync` named is on disk."""
        if upto >= self.durable_offset:
            self.durable_offset = Offset(min(upto, self.log_end_offset))
            self._unsynced.synced(upto)

    def set_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward, within the log; True when it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = Offset(offset)
        self.producers.high_watermark_moved(offset)
        return True

    # Reading

    def read(
        self, offset: int, *, max_bytes: int, isolation_read_committed: bool = False, minimum_one: bool = True
    ) -> Read:
        """Batches from the one with ``offset`` on, in one segment, below the high watermark (or last stable offset).

        At least one whole batch when ``minimum_one``, however large. Raises OffsetOutOfRange.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        stable = self.last_stable_offset
        upper = stable if isolation_read_committed else self.high_watermark
        result = Read([], 0, self.high_watermark, stable, self.log_start_offset)
        if offset >= upper:
            return result
        place = read.locate(self.segments, self._tail, offset, upper, self.log_end_offset)
        if place is None:
            return result
        wanted = max(max_bytes, place.first_batch_size) if minimum_one else max_bytes
        size = min(wanted, place.end - place.position)
        if size > 0:
            result.chunks.append(FileRange(self.segments[place.segment].file, place.position, size))
            result.size_bytes = size
            result.first_batch_cut = size < place.first_batch_size
        if isolation_read_committed:
            result.aborted = read.aborted_in(self.segments, place, offset, size, self.log_end_offset)
        return result

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

    # Shortening and keeping

    def delete_records_before(self, offset: int) -> Offset:
        """Raise the log start offset to ``offset`` (−1: the high watermark) and return it.

        Raises OffsetOutOfRange beyond the high watermark or below 0. The files go later, by :meth:`due_jobs`.
        """
        if offset == -1:
            offset = self.high_watermark
        if offset > self.high_watermark or offset < 0:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        self.raise_log_start(offset)
        return self.log_start_offset

    def raise_log_start(self, offset: int) -> None:
        """Records before ``offset`` are no longer part of the log."""
        if offset > self.log_start_offset:
            self.log_start_offset = Offset(offset)
            self.leader_epochs.truncate_from_start(offset)
            self.producers.log_start_moved(offset)
            self.high_watermark = Offset(max(self.high_watermark, offset))

    def due_jobs(self, now_ms: int, *, retention: bool = True) -> list[Job]:
        """Retention and compaction that are due; see ``jobs`` for what to do with them."""
        return self.maintenance.due_jobs(now_ms, retention=retention)

    def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that were idle for ``producer.id.expiration.ms`` and have nothing open."""
        self.producers.expire(now_ms, self.storage.producer_id_expiration_ms)

    def set_topic_id(self, topic_id: TopicId) -> None:
        """Say to which topic the log belongs, if it is not known."""
        if self.topic_id == NO_TOPIC_ID:
            self.topic_id = topic_id
            write_topic_id(self.files, self.directory, topic_id)

    def write_leader_epochs(self) -> None:
        """Bring the file of leader epochs up to date: at a roll and at the end, as recovery reads the active segment's
        epochs off its batches. Not synced, for the same reason."""
        if self.leader_epochs.changed:
            write_leader_epochs(self.files, self.directory, self.leader_epochs.entries)
            self.leader_epochs.changed = False

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
        """The partition's directory was renamed."""
        self.directory = directory
        self.snapshots.moved_to(directory)
        for segment in self.segments:
            segment.moved_to(directory)


def prepare_marker(
    producers: ProducerState,
    header: BatchHeader,
    data: memoryview | bytearray | bytes,
    base_offset: int,
    *,
    check: bool,
    position: int = 0,
    transaction_version: int = 0,
) -> Update:
    """The update for a batch with a control record. Raises CorruptBatch when it is not a marker as it should be."""
    for record in read_records(data, position, header, INT32_MAX):
        marker = end_transaction_marker_of(record)
        if marker is None:
            break
        return producers.prepare_marker(
            header,
            base_offset,
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=record.timestamp,
            check=check,
            transaction_version=transaction_version,
        )
    raise CorruptBatch("control batch of a producer without a transaction marker")
