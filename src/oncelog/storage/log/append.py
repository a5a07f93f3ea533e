"""Append as the leader: one batch of a client or coordinator, or a marker, at the end of the log.

A batch is validated into provisional values and written in one call; only then do log and producer state change,
together.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset
from oncelog.base.invariant import invariant
from oncelog.core.producers.checks import ProducerRefusal
from oncelog.core.producers.state import Update
from oncelog.core.producers.verification import Guard
from oncelog.records.batch import BatchHeader, CorruptBatch, set_base_offset_and_leader_epoch, set_timestamp_type
from oncelog.storage.errors import AppendRefused
from oncelog.storage.index.transaction_index import AbortedTransaction
from oncelog.storage.log.batch_validation import Checked, check_client_batch, check_internal_batch
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.record_validation import ValidatedRecords
from oncelog.storage.log.rolling import must_roll, roll, sync_before_roll
from oncelog.storage.segment.segment import Segment
from oncelog.storage.transactions.open_transactions import OpenTransaction
from oncelog.storage.transactions.producer_updates import Marker, prepare_marker, read_marker
from oncelog.storage.transactions.transactional_ids import MAX_ID_BYTES

NO_TIMESTAMP = -1


class Appended(NamedTuple):
    """The place of a batch in the log; of a duplicate, the place and time of the original."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """−1 unless the broker sets timestamps; of a duplicate the original's max timestamp."""
    log_start_offset: Offset
    duplicate: bool
    record_count: int
    size_bytes: int
    inspected_bytes: int = 0
    """Bytes of records inspected within the append, decompressed."""


def append_batch(
    log: PartitionLog,
    data: memoryview | bytearray,
    *,
    now_ms: int,
    leader_epoch: int,
    internal: bool = False,
    verified: bool = False,
    guard: Guard | None = None,
    transaction_version: int = 0,
    marker: Marker | None = None,
    transactional_id: str | None = None,
    validated: ValidatedRecords | None = None,
    bounded: bool = False,
) -> Appended:
    """Write one batch at the end of the log; ``data`` is changed in place (offsets, leader epoch, time).

    - ``internal``: made by this broker (coordinator records, markers), so not validated as a client's.
    - ``verified``: the coordinator knows the producer's transaction here, without which a client cannot begin one
      (KIP-890); a stale ``guard`` voids it.
    - ``transaction_version``: the rules for a marker's epoch; ``marker``: its content, if known.
    - ``validated``: the result of ``validate_records``, needed after TooMuchWork; ``bounded``: raise it for slow work.

    Raises AppendRefused, TooMuchWork, and OSError if the disk refuses; then nothing has changed.
    """
    invariant(not log.closed, "append to a closed log", partition=log.partition)
    config = log.config
    log_append_time = config.log_append_time
    if internal:
        data, header, inspected = *check_internal_batch(data, config, log.partition), 0
    else:
        data, header, inspected = _check_client_batch(log, data, now_ms, validated, bounded=bounded)
    size = len(data)
    if size > config.segment_bytes:
        raise _too_large(log, size)
    base_offset = log.log_end_offset
    if log_append_time:
        header = header._replace(max_timestamp=now_ms)
    update = None
    if header.producer_id >= 0:
        if not internal and (original := log.producers.duplicate(header)) is not None:
            first, last, time_ms = Offset(original.first_offset), Offset(original.last_offset), original.timestamp
            return Appended(first, last, time_ms, log.log_start_offset, True, header.record_count, size, inspected)
        _check_verified(log, header, verified or internal, guard)
        if header.is_control:
            marker = marker or _read_marker(log, header, data)
        update = _prepare(log, header, base_offset, marker, transaction_version, sequences=not internal)
    set_base_offset_and_leader_epoch(data, 0, base_offset, leader_epoch)
    if log_append_time:
        set_timestamp_type(data, 0, now_ms, by_broker=True)
    last_offset = base_offset + header.last_offset_delta
    _write(log, data, base_offset, last_offset, header.max_timestamp, now_ms, update)
    log.leader_epochs.assign(leader_epoch, base_offset)
    apply_append(log, update, last_offset + 1)
    if update is not None:
        track_transaction(log, update, now_ms, transactional_id)
    last, time_ms = Offset(last_offset), now_ms if log_append_time else NO_TIMESTAMP
    return Appended(base_offset, last, time_ms, log.log_start_offset, False, header.record_count, size, inspected)


def _check_client_batch(
    log: PartitionLog, data: memoryview | bytearray, now_ms: int, validated: ValidatedRecords | None, *, bounded: bool
) -> Checked:
    room = log.room if bounded else None
    return check_client_batch(data, log.config, log.storage, now_ms, log.partition, validated, room)


def _too_large(log: PartitionLog, size: int) -> AppendRefused:
    return AppendRefused(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"Message batch size is {size} bytes in append to partition {log.partition}, which exceeds the "
        f"maximum configured segment size of {log.config.segment_bytes}.",
    )


def _check_verified(log: PartitionLog, header: BatchHeader, verified: bool, guard: Guard | None) -> None:
    """Refuse a batch that begins a transaction here unverified, or after a marker that ended the transaction
    (KIP-890)."""
    producers = log.producers
    if not header.is_transactional or producers.has_open_transaction(header.producer_id):
        return
    if not verified or (guard is not None and not producers.verifications.is_current(guard)):
        raise AppendRefused(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")


def _read_marker(log: PartitionLog, header: BatchHeader, data: memoryview | bytearray) -> Marker:
    try:
        return read_marker(header, data)
    except CorruptBatch as error:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{error} in {log.partition}") from None


def _prepare(
    log: PartitionLog,
    header: BatchHeader,
    base_offset: int,
    marker: Marker | None,
    transaction_version: int,
    *,
    sequences: bool,
) -> Update:
    producers = log.producers
    try:
        if marker is None:
            return producers.prepare_data(header, base_offset, sequences=sequences)
        return prepare_marker(
            producers, header, marker, base_offset, check=True, transaction_version=transaction_version
        )
    except ProducerRefusal as refusal:
        raise AppendRefused(refusal.error_code, f"{refusal.message} in {log.partition}") from None


def _write(
    log: PartitionLog,
    data: memoryview | bytearray,
    base_offset: int,
    last_offset: int,
    timestamp: int,
    now_ms: int,
    update: Update | None,
) -> None:
    """Do everything that a full disk may refuse; after a refusal nothing has changed."""
    active = log.segments.active
    if must_roll(log, active, len(data), timestamp, last_offset, now_ms):
        if log.has_replicas:
            sync_before_roll(log)
        active = roll(log, now_ms)
    is_indexed = update is not None and index_aborted(log, active, update)
    try:
        position = active.append(data, last_offset, timestamp, log.config.index_interval_bytes)
    except OSError:
        if is_indexed:
            active.remove_last_aborted()
        raise
    log.segments.size_bytes += len(data)
    log.tail.add(base_offset, position)


# Steps of a follower's append, too


def index_aborted(log: PartitionLog, active: Segment, update: Update) -> bool:
    """True if ``update`` was an abort."""
    completed = update.completed
    if completed is None or not completed.aborted:
        return False
    stable = log.producers.stable_after(completed)
    producer_id, first_offset, last_offset, _ = completed
    # Before its marker is in the log: after a clean shutdown the index is trusted, so it must not lack one.
    if active.add_aborted(AbortedTransaction(producer_id, first_offset, last_offset, stable)):
        log.unsynced.file_appeared(last_offset)
    return True


def apply_append(log: PartitionLog, update: Update | None, log_end_offset: int) -> None:
    """Log end offset and producer state advance together, once the bytes are in the log."""
    log.log_end_offset = Offset(log_end_offset)
    log.producers.end_offset = log_end_offset
    if update is not None:
        log.producers.commit(update)


def track_transaction(log: PartitionLog, update: Update, now_ms: int, transactional_id: str | None) -> None:
    """Update the directory's open transactions: a batch began or ended one here, or names its owner."""
    entry = update.entry
    if transactional_id is not None and len(transactional_id) > MAX_ID_BYTES:
        transactional_id = None
    if update.started_at is not None:
        begun = OpenTransaction(
            log.partition, entry.producer_id, entry.epoch, update.started_at, now_ms, transactional_id
        )
        log.transactions.began(begun)
    elif update.completed is not None:
        log.transactions.ended(log.partition, entry.producer_id)
    elif transactional_id is not None and entry.transaction_first_offset is not None:
        log.transactions.named(log.partition, entry.producer_id, transactional_id)
