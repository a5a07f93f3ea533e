"""Truncates a follower's log: removes the records that its leader does not have.

The caller decides where to cut (KIP-101, KIP-279), never below the high watermark except after an unclean election.
docs/internals/storage.md numbers the steps. After a crash between two of them, recovery opens a prefix of the old log
(after a full truncation: an empty one); removed records cannot return once others are written in their place.
"""

from __future__ import annotations

from oncelog.base.ids import Offset
from oncelog.base.invariant import invariant
from oncelog.storage.checkpoints import Sync
from oncelog.storage.file_names import TEMPORARY
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.rolling import roll_over_gap
from oncelog.storage.producer_snapshots import rebuild_producers
from oncelog.storage.segment.segment import Segment


def truncate_to(log: PartitionLog, offset: int, now_ms: int) -> bool:
    """Cut the log to end at ``offset``, or at the start of the batch that contains it; False if it ends there or
    earlier.

    A log that begins after ``offset`` starts over there, empty. Raises OSError: the disk is failing, and the log must
    be reopened.
    """
    invariant(not log.closed, "truncation of a closed log", partition=log.partition)
    invariant(offset >= 0, "truncation to a negative offset", partition=log.partition, offset=offset)
    if offset >= log.log_end_offset:
        # An epoch that began at the log's end and has no records is dropped in any case (KAFKA-10706).
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        log.write_leader_epochs(Sync.ALL)
        return False
    index = log.segments.floor(offset)
    if index < 0:
        truncate_fully_and_start_at(log, offset, now_ms)
        return True
    cut = log.segments[index].find(offset)
    end = offset if cut is None else min(offset, cut[1].base_offset)
    lower_start = end if end < log.log_start_offset else None
    durable, watermark = min(log.durable_offset, end), min(log.high_watermark, end)
    # Step 1: a recovery checks everything that is written after the new end.
    log.checkpoints.before_truncation(log.partition, durable, watermark, lower_start)
    _cut_segments(log, index, end, now_ms)
    _move_end(log, end)
    _roll_back_producers(log, now_ms)
    _sync_directory(log)
    if log.segments.active.next_offset() < end:
        # Compaction removed the records before the end: only a segment's name can mark the end now.
        roll_over_gap(log, end, now_ms)
        log.files.sync_directory(log.directory)
    return True


def truncate_fully_and_start_at(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Remove all records and producer state, and start over at ``offset``. Raises OSError as :func:`truncate_to`."""
    invariant(not log.closed, "truncation of a closed log", partition=log.partition)
    new = Segment(log.files, log.directory, offset, 0, log.budget, TEMPORARY)
    new.begin(now_ms)
    durable, watermark = min(log.durable_offset, offset), min(log.high_watermark, offset)
    log.checkpoints.before_truncation(log.partition, durable, watermark, offset)
    log.mark_replicated()
    log.truncations += 1
    for snapshot in reversed(log.snapshots.offsets[:]):
        log.snapshots.remove(snapshot)
    old = list(log.segments)
    log.retire(reversed(old), now_ms)
    new.rename("")
    log.segments.replace(old, new)
    log.log_start_offset = log.log_end_offset = Offset(offset)
    log.cleaned_offset = offset
    log.leader_epochs.truncate_from_end(0)
    log.producers.load((), offset)
    log.durable_offset = log.high_watermark = Offset(offset)
    log.transactions.restore(log)
    _sync_directory(log)


def _cut_segments(log: PartitionLog, index: int, end: int, now_ms: int) -> None:
    """Steps 2 and 3."""
    log.mark_replicated()
    log.truncations += 1
    removed = [log.segments[later] for later in range(index + 1, len(log.segments))]
    log.segments.remove(removed)
    log.retire(reversed(removed), now_ms)
    old = log.segments.active
    # A new object: jobs that run on the old one are discarded.
    log.segments.replace([old], old.cut(end, log.config.index_interval_bytes, now_ms))


def _move_end(log: PartitionLog, end: int) -> None:
    log.log_end_offset = Offset(end)
    log.log_start_offset = min(log.log_start_offset, log.log_end_offset)
    log.high_watermark = min(log.high_watermark, log.log_end_offset)
    log.durable_offset = min(log.durable_offset, log.log_end_offset)
    log.cleaned_offset = min(log.cleaned_offset, end)
    log.leader_epochs.truncate_from_end(end)


def _roll_back_producers(log: PartitionLog, now_ms: int) -> None:
    """Step 4, and the open transactions as of the new end."""
    producers = log.producers
    end = log.log_end_offset
    # Decided transactions whose marker is still there and above the high watermark stay unreplicated.
    unreplicated = {first: last for first, last in producers.unreplicated.items() if last < end}
    expired_before = now_ms - log.storage.producer_id_expiration_ms
    first_offset = log.segments[0].base_offset
    rebuild_producers(producers, log.snapshots, list(log.segments), first_offset, end, expired_before)
    producers.unreplicated.update(unreplicated)
    producers.high_watermark_moved(log.high_watermark)
    log.transactions.restore(log)


def _sync_directory(log: PartitionLog) -> None:
    """Steps 5 and 6."""
    if log.leader_epochs.changed:
        log.write_leader_epochs(Sync.CONTENT)
    log.files.sync_directory(log.directory)
    log.tail.clear()
    log.unsynced.truncated(log.log_end_offset)
