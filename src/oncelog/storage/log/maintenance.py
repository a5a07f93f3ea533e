"""What a log does on its own: when to roll, which segments retention takes, which jobs are due.

Deleting a segment happens in two steps, as in Apache Kafka: the files are renamed to ``.deleted`` and the segment
leaves the log at once; ``file.delete.delay.ms`` later a job removes them. A reader that has a range of it reads on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from zlib import crc32

from oncelog.base.units import INT32_MAX
from oncelog.storage.compaction.job import Compact
from oncelog.storage.compaction.selection import cleanable
from oncelog.storage.file_names import DELETED
from oncelog.storage.index.offset_index import OffsetIndex
from oncelog.storage.index.time_index import NO_TIMESTAMP, TimeIndex
from oncelog.storage.jobs import Job
from oncelog.storage.segment.batch_scan import SCAN_CHUNK, iter_batches
from oncelog.storage.segment.segment import Segment

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog


class Maintenance:
    """Belongs to one log."""

    __slots__ = ("_busy", "_doomed", "_log", "_uncleanable")

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._doomed: list[tuple[int, Segment]] = []
        """(when to remove, segment) in order."""
        self._busy: set[str] = set()
        """Names of jobs that are under way."""
        self._uncleanable = False
        """Compaction met something it cannot read; it is not tried again before the next start."""

    def must_roll(self, active: Segment, size: int, timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether the next batch belongs into a new segment."""
        if not active.size_bytes:
            return False
        config = self._log.config
        if active.is_full(size, config.segment_bytes, config.segment_index_bytes):
            return True
        if last_offset - active.base_offset > INT32_MAX:
            return True
        first = active.first_batch_timestamp()
        waited = timestamp - first if first >= 0 and timestamp >= 0 else now_ms - active.created_ms
        limit = min(config.segment_ms, config.max_compaction_lag_ms) if config.compact else config.segment_ms
        return waited > limit - self._jitter(active, config.segment_jitter_ms)

    def _jitter(self, segment: Segment, limit_ms: int) -> int:
        if limit_ms <= 0:
            return 0
        text = f"{self._log.storage.jitter_seed}:{self._log.partition}:{segment.base_offset}"
        return crc32(text.encode()) % min(limit_ms, self._log.config.segment_ms)

    def due_jobs(self, now_ms: int, *, retention: bool = True) -> list[Job]:
        """Apply retention (if it is due) and return the jobs that are due, compaction included."""
        jobs = self.housekeeping(now_ms, retention=retention)
        if (compaction := self.compaction(now_ms)) is not None:
            self.started(compaction)
            jobs.append(compaction)
        return jobs

    def housekeeping(self, now_ms: int, *, retention: bool = True) -> list[Job]:
        """As :meth:`due_jobs`, without compaction."""
        if retention:
            self._apply_retention(now_ms)
        jobs: list[Job] = []
        if self._doomed and self._doomed[0][0] <= now_ms and RemoveSegments.name not in self._busy:
            jobs.append(self._removal(now_ms))
            self._busy.add(RemoveSegments.name)
        if RebuildIndexes.name not in self._busy:
            damaged = next((segment for segment in self._log.segments.sealed() if segment.needs_index), None)
            if damaged is not None:
                jobs.append(RebuildIndexes(self._log, damaged))
                self._busy.add(RebuildIndexes.name)
        return jobs

    def compaction(self, now_ms: int) -> Compact | None:
        """A compaction that would be worth while now, not started yet."""
        if self._uncleanable or Compact.name in self._busy or not self._log.storage.cleaner_enable:
            return None
        what = cleanable(self._log, now_ms)
        return None if what is None else Compact(self._log, what, now_ms)

    def started(self, job: Job) -> None:
        """``job`` is under way: no other of its kind is due."""
        self._busy.add(job.name)
        if job.name == Compact.name and not self._log.ever_cleaned:
            self._log.before_first_compaction()
            self._log.ever_cleaned = True

    def finished(self, job: Job, *, failed: bool = False) -> None:
        """``job`` came to its end."""
        self._busy.discard(job.name)
        if failed and job.name == Compact.name:
            self._uncleanable = True

    def _apply_retention(self, now_ms: int) -> None:
        log = self._log
        gone = self._deletable(now_ms)
        if not gone:
            return
        if len(gone) == len(log.segments):
            log.roll(now_ms)
        index = log.segments.floor(gone[-1].base_offset)
        log.raise_log_start(log.segments[index + 1].base_offset)
        self.delete_segments(gone, now_ms)

    def _deletable(self, now_ms: int) -> list[Segment]:
        """Segments from the oldest on that are before the log start, too old, or more than may be kept."""
        log = self._log
        config = log.config
        surplus = log.size_bytes - config.retention_bytes if config.delete and config.retention_bytes >= 0 else -1
        expired_before = now_ms - config.retention_ms if config.delete and config.retention_ms >= 0 else None
        gone: list[Segment] = []
        last = len(log.segments) - 1
        for index, segment in enumerate(log.segments):
            end = log.segments.end_of(index, log.log_end_offset)
            if end > log.high_watermark or (index == last and not segment.size_bytes):
                break
            before_start = index != last and end <= log.log_start_offset
            too_much = surplus >= 0 and surplus >= segment.size_bytes
            too_old = expired_before is not None and segment.largest_timestamp() < expired_before
            if not (before_start or too_much or too_old):
                break
            surplus -= segment.size_bytes
            gone.append(segment)
        return gone

    def delete_segments(self, gone: list[Segment], now_ms: int) -> None:
        """Take segments out of the log; their files follow after the delay."""
        self._log.segments.remove(gone)
        self.retire(gone, now_ms)

    def retire(self, gone: list[Segment], now_ms: int, replaced_by: Segment | None = None) -> None:
        """Segments have left the log: mark their files as deleted; keep the snapshot that the new one begins with."""
        log = self._log
        for segment in gone:
            log.budget.forget(segment)
            segment.rename(DELETED)
            if replaced_by is None or segment.base_offset != replaced_by.base_offset:
                log.snapshots.remove(segment.base_offset)
            self._doomed.append((now_ms + log.config.file_delete_delay_ms, segment))

    def _removal(self, now_ms: int) -> Job:
        due = [segment for when, segment in self._doomed if when <= now_ms]
        self._doomed = [(when, segment) for when, segment in self._doomed if when > now_ms]
        return RemoveSegments(self._log, due)


class RemoveSegments:
    """Removes the files of deleted segments, one segment a slice."""

    name = "delete"

    def __init__(self, log: PartitionLog, segments: list[Segment]) -> None:
        self.partition = log.partition
        self._maintenance = log.maintenance
        self._files = log.files
        self._directory = log.directory
        self._segments = segments

    def run(self) -> Iterator[None]:
        # What took their place must be there for good before they go.
        self._files.sync_directory(self._directory)
        yield
        for segment in self._segments:
            segment.remove()
            yield

    def apply(self) -> None:
        self._maintenance.finished(self)

    def abandon(self) -> None:
        """What is left is removed when the log is next opened."""
        self._maintenance.finished(self)


class RebuildIndexes:
    """Builds the indexes of a sealed segment anew from its batches, some megabytes a slice."""

    name = "rebuild-indexes"

    def __init__(self, log: PartitionLog, segment: Segment) -> None:
        self.partition = log.partition
        self._log = log
        self._segment = segment
        self._file = segment.file
        self._end = segment.size_bytes
        self._offsets = OffsetIndex(segment.base_offset)
        self._times = TimeIndex(segment.base_offset)

    def run(self) -> Iterator[None]:
        interval = self._log.config.index_interval_bytes
        since_entry = since_yield = 0
        latest = (NO_TIMESTAMP, self._segment.base_offset)
        for position, header in iter_batches(self._file, 0, self._end, SCAN_CHUNK):
            if header.max_timestamp > latest[0]:
                latest = (header.max_timestamp, header.last_offset)
            if since_entry > interval:
                self._offsets.append(header.last_offset, position)
                self._times.append(*latest)
                since_entry = 0
            since_entry += header.size_bytes
            since_yield += header.size_bytes
            if since_yield >= SCAN_CHUNK:
                since_yield = 0
                yield
        self._times.append(*latest)
        yield

    def apply(self) -> None:
        self._log.maintenance.finished(self)
        if not self._log.closed and self._segment in self._log.segments:
            self._segment.replace_indexes(self._offsets, self._times)

    def abandon(self) -> None:
        self._log.maintenance.finished(self)
