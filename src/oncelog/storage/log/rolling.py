"""Rolls a log: decides when the active segment is full or old enough, and begins the next one."""

from __future__ import annotations

from zlib import crc32

from oncelog.base.ids import Offset
from oncelog.base.units import INT32_MAX
from oncelog.storage.errors import SyncFailed
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.segment.segment import Segment


def must_roll(log: PartitionLog, active: Segment, size: int, timestamp: int, last_offset: int, now_ms: int) -> bool:
    """True if the next batch (``size`` bytes, largest ``timestamp``, ``last_offset``) needs a new segment."""
    if not active.size_bytes:
        return False
    config = log.config
    if active.is_full(size, config.segment_bytes, config.segment_index_bytes):
        return True
    if last_offset - active.base_offset > INT32_MAX:
        return True
    return is_too_old(log, active, active.first_batch_timestamp(), timestamp, now_ms)


def is_too_old(log: PartitionLog, active: Segment, first_timestamp: int, timestamp: int, now_ms: int) -> bool:
    """True if a batch of ``timestamp`` is ``segment.ms`` later than the segment's first (by the clock without
    timestamps). A compacted log rolls after ``max.compaction.lag.ms`` at the latest (KIP-354)."""
    config = log.config
    age_ms = timestamp - first_timestamp if first_timestamp >= 0 and timestamp >= 0 else now_ms - active.created_ms
    limit = min(config.segment_ms, config.max_compaction_lag_ms) if config.compact else config.segment_ms
    if config.segment_jitter_ms > 0:
        limit -= _jitter(log, active, config.segment_jitter_ms)
    return age_ms > limit


def _jitter(log: PartitionLog, segment: Segment, limit_ms: int) -> int:
    text = f"{log.storage.jitter_seed}:{log.partition}:{segment.base_offset}"
    return crc32(text.encode()) % min(limit_ms, log.config.segment_ms)


def roll_over_gap(log: PartitionLog, base_offset: int, now_ms: int) -> Segment:
    """Begin a new segment at ``base_offset``, which becomes the log's end: everything between is compacted away."""
    sync_all(log)
    # Recovery treats a gap between segments as a loss, unless the log is recorded as one that may have gaps.
    if not log.ever_cleaned:
        log.ever_cleaned = True
        log.checkpoints.logs_may_have_gaps()
    return roll(log, now_ms, base_offset)


def sync_before_roll(log: PartitionLog) -> None:
    """Sync a replicated log before it begins a segment, if recovery could not detect a loss in the previous one. Raises
    SyncFailed."""
    # A power cut that takes the end of a segment shows as a gap before the next, except in a log with gaps of its own:
    # replicas would then differ at the same offsets.
    if log.config.compact or log.ever_cleaned:
        sync_all(log)


def sync_all(log: PartitionLog) -> None:
    """Sync everything of a log that may not be on disk yet. Raises SyncFailed."""
    if log.durable_offset < log.log_end_offset:
        try:
            for file in log.unsynced.files(log.segments.active):
                file.sync()
        except OSError as error:
            raise SyncFailed(f"sync of {log.partition} failed: {error.strerror}") from error


def roll(log: PartitionLog, now_ms: int, base_offset: int | None = None) -> Segment:
    """Seal the active segment and begin a new one at the log's end. Raises OSError; then nothing has changed."""
    old = log.segments.active
    base = log.log_end_offset if base_offset is None else Offset(base_offset)
    if old.base_offset == base:
        return old
    new = Segment(log.files, log.directory, base, 0, log.budget)
    log.producers.end_offset = base
    log.snapshots.take(log.producers, log.log_start_offset)
    log.write_leader_epochs()
    try:
        old.seal()
        files = log.files_of(old, base)
        new.begin(now_ms)
    except OSError:
        old.unseal()
        log.producers.end_offset = log.log_end_offset
        raise
    log.log_end_offset = base
    log.unsynced.sealed(files, base)
    log.unsynced.file_appeared(base)
    log.segments.add(new)
    log.tail.clear()
    return new
