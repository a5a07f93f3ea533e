"""Appends as a follower: the leader's batches, with the offsets and leader epochs that it assigned.

The rules are those of Apache Kafka's ``appendAsFollower``:

1. Offsets rise and begin at or after the log's end, with gaps from the leader's compaction. Only the first batch of an
   empty log may begin earlier, if it contains the log's start.
2. Every batch is whole and its checksum correct. A batch cut off at the end of the response is ignored.
3. Sequences, epochs and markers are taken unchecked.
4. A batch with a later leader epoch than the fetch's ends the response (KAFKA-18723): the sender had lost the
   leadership.

Everything is validated before anything is written. Files do not depend on the boundaries of responses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.invariant import invariant
from oncelog.base.units import INT32_MAX
from oncelog.core.producers.state import Update
from oncelog.ports import Buffer
from oncelog.records.batch import BatchHeader, CorruptBatch, TruncatedBatch, crc_matches, iter_headers
from oncelog.records.latest_timestamp import hides_timestamps
from oncelog.storage.errors import AppendRefused, UnexpectedOffset
from oncelog.storage.log.append import apply_append, index_aborted, track_transaction
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.rolling import is_too_old, must_roll, roll, roll_over_gap, sync_before_roll
from oncelog.storage.log.truncate import truncate_fully_and_start_at
from oncelog.storage.segment.segment import Segment
from oncelog.storage.transactions.producer_updates import Marker, prepare_marker, read_marker


class Replicated(NamedTuple):
    """The part of the leader's response that was appended, from its beginning."""

    batch_count: int
    size_bytes: int


class _Batch(NamedTuple):
    position: int
    header: BatchHeader
    marker: Marker | None

    @property
    def ends_abort(self) -> bool:
        return self.marker is not None and not self.marker.committed


def append_replicated(
    log: PartitionLog, data: memoryview | bytearray | bytes, *, now_ms: int, leader_epoch: int
) -> Replicated:
    """Write the batches of ``data``, fetched from the log's end in ``leader_epoch``.

    Raises AppendRefused (UnexpectedOffset if they do not follow) before it writes. Raises OSError if the disk refuses:
    the log then ends after one of the batches, or as before. Raises SyncFailed.
    """
    invariant(not log.closed, "append to a closed log", partition=log.partition)
    log.mark_replicated()
    batches = list(_validated(log, data, leader_epoch))
    if not batches:
        return Replicated(0, 0)
    start = log.log_start_offset
    first = batches[0].header
    # An empty log whose start lies inside the first batch (records before it were deleted) begins with that batch.
    if first.base_offset < log.log_end_offset:
        truncate_fully_and_start_at(log, first.base_offset, now_ms)
    view = memoryview(data)
    done = 0
    while done < len(batches):
        done = _append_run(log, view, batches, done, now_ms)
    log.raise_log_start(start)
    last = batches[-1]
    return Replicated(len(batches), last.position + last.header.size_bytes)


def _validated(log: PartitionLog, data: Buffer, leader_epoch: int) -> Iterator[_Batch]:
    """The batches that may be appended by rules 1 to 4. Raises AppendRefused."""
    expected = int(log.log_end_offset)
    for position, header in _whole_batches(log, data):
        if header.partition_leader_epoch > leader_epoch:
            return
        if header.size_bytes > log.config.largest_batch_bytes:
            raise AppendRefused(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The batch at offset {header.base_offset} of {log.partition} has {header.size_bytes} bytes; "
                f"no segment here takes more than {log.config.largest_batch_bytes}",
            )
        if header.last_offset_delta < 0 or not crc_matches(data, position, header):
            raise _corrupt(log, f"Record is corrupt (stored crc = {header.crc})")
        if header.base_offset < expected and not _begins_empty_log(log, position, header):
            raise UnexpectedOffset(str(log.partition), header.base_offset, header.last_offset, expected)
        expected = header.next_offset
        yield _Batch(position, header, _marker(log, data, position, header))


def _whole_batches(log: PartitionLog, data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    try:
        yield from iter_headers(data)
    except TruncatedBatch:
        return
    except CorruptBatch as error:
        raise _corrupt(log, str(error)) from None


def _begins_empty_log(log: PartitionLog, position: int, header: BatchHeader) -> bool:
    """True if the batch is the exception of rule 1."""
    empty = log.log_start_offset == log.log_end_offset
    return position == 0 and empty and header.base_offset < log.log_end_offset <= header.last_offset


def _marker(log: PartitionLog, data: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """The marker in a producer's control batch; None for data, and for a batch that compaction has emptied."""
    if not header.is_control or header.producer_id < 0 or header.record_count == 0:
        return None
    try:
        return read_marker(header, data, position)
    except CorruptBatch as error:
        raise _corrupt(log, str(error)) from None


def _corrupt(log: PartitionLog, message: str) -> AppendRefused:
    return AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"{message} in the leader's answer for {log.partition}")


def _append_run(log: PartitionLog, data: memoryview, batches: list[_Batch], first: int, now_ms: int) -> int:
    """Write batches from index ``first`` on in one call. Returns the index of the first unwritten one."""
    begin = batches[first]
    active = _segment_for(log, begin.header, now_ms)
    end = _end_of_run(log, active, batches, first, now_ms)
    if begin.header.partition_leader_epoch != log.leader_epochs.latest:
        # Persisted at the next roll, as a leader's: after a crash all later batches are read again.
        log.leader_epochs.assign(begin.header.partition_leader_epoch, begin.header.base_offset)
    aborted = _update(log, begin) if begin.ends_abort else None
    is_indexed = aborted is not None and index_aborted(log, active, aborted)
    last = batches[end - 1]
    try:
        position = active.file.append((data[begin.position : last.position + last.header.size_bytes],))
    except OSError:
        if is_indexed:
            active.remove_last_aborted()
        raise
    for batch in batches[first:end]:
        _apply(log, active, batch, position + batch.position - begin.position, now_ms)
    return end


def _segment_for(log: PartitionLog, header: BatchHeader, now_ms: int) -> Segment:
    """The active segment, after a roll if the batch needs one."""
    active = log.segments.active
    if must_roll(log, active, header.size_bytes, header.max_timestamp, header.last_offset, now_ms):
        sync_before_roll(log)
        active = roll(log, now_ms)
    if header.last_offset - active.base_offset > INT32_MAX:
        active = roll_over_gap(log, header.base_offset, now_ms)
    return active


def _end_of_run(log: PartitionLog, active: Segment, batches: list[_Batch], first: int, now_ms: int) -> int:
    """The index after the last batch that can be written together with ``first``."""
    config = log.config
    begin = batches[first].header
    first_timestamp = active.first_batch_timestamp() if active.size_bytes else begin.max_timestamp
    room = config.segment_bytes - active.size_bytes - begin.size_bytes
    index = first + 1
    while index < len(batches):
        header = batches[index].header
        room -= header.size_bytes
        # A batch starts a run of its own if it rolls the log or may fill an index, begins a leader epoch, or aborts a
        # transaction, which has to be in the transaction index before its marker is in the log.
        if (
            room < 0
            or header.partition_leader_epoch != begin.partition_leader_epoch
            or batches[index].ends_abort
            or header.last_offset - active.base_offset > INT32_MAX
            or not active.has_room_in_indexes(index - first, config.segment_index_bytes)
            or is_too_old(log, active, first_timestamp, header.max_timestamp, now_ms)
        ):
            break
        index += 1
    return index


def _apply(log: PartitionLog, active: Segment, batch: _Batch, position: int, now_ms: int) -> None:
    header = batch.header
    size = header.size_bytes
    active.index_appended(position, size, header.last_offset, header.max_timestamp, log.config.index_interval_bytes)
    if hides_timestamps(header):
        active.timestamps_checked = False  # a worker checks them before they matter: it may take long
    log.segments.size_bytes += size
    if header.base_offset != log.log_end_offset:
        log.tail.clear()  # its positions must be contiguous
    log.tail.add(header.base_offset, position)
    update = _update(log, batch)
    apply_append(log, update, header.next_offset)
    if update is not None:
        track_transaction(log, update, now_ms, None)


def _update(log: PartitionLog, batch: _Batch) -> Update | None:
    header, marker = batch.header, batch.marker
    if header.producer_id < 0:
        return None
    if marker is not None:
        return prepare_marker(log.producers, header, marker, header.base_offset, check=False)
    return None if header.is_control else log.producers.prepare_data(header, header.base_offset, check=False)
