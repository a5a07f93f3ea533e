"""The maintenance of one log: retention, and due jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.rolling import roll
from oncelog.storage.maintenance.jobs import COMPACTION, Job, JobOwner
from oncelog.storage.segment.batch_scan import SCAN_CHUNK, iter_batches
from oncelog.storage.segment.index_builder import IndexBuilder
from oncelog.storage.segment.segment import Segment

if TYPE_CHECKING:
    from oncelog.storage.maintenance.compaction import Compact


class LogMaintenance:
    __slots__ = ("_busy", "_compacted_with", "_log", "_uncleanable")

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._busy: set[str] = set()
        """Names of the running jobs."""
        self._uncleanable = False
        # Compaction found unreadable data. It is retried after a restart, or with another limit: a record that was too
        # large may pass.
        self._compacted_with = 0

    def due_jobs(self, now_ms: int, *, retention: bool = True) -> list[Job]:
        """Apply retention and return the due jobs, at most one of each kind. Raises OSError."""
        jobs: list[Job] = []
        if retention:
            doubtful = self._apply_retention(now_ms)
            if doubtful is not None and CheckTimestamps.name not in self._busy:
                jobs.append(CheckTimestamps(self._log, self, doubtful))
        # Before retired segments are handed to a job, for compaction may raise.
        compaction = self._compaction(now_ms)
        retired = self._log.retired
        if retired and retired[0][0] <= now_ms and RemoveSegments.name not in self._busy:
            jobs.append(self._removal(now_ms))
        if RebuildIndexes.name not in self._busy:
            damaged = next((segment for segment in self._log.segments.sealed() if segment.needs_index), None)
            if damaged is not None:
                jobs.append(RebuildIndexes(self._log, self, damaged))
        if compaction is not None:
            jobs.append(compaction)
        self._busy.update(job.name for job in jobs)
        return jobs

    def _compaction(self, now_ms: int) -> Compact | None:
        log = self._log
        limit = log.config.max_decompressed_message_bytes
        uncleanable = self._uncleanable and limit == self._compacted_with
        if uncleanable or COMPACTION in self._busy or not log.storage.cleaner_enable or not log.config.compact:
            return None
        # Imported for the first compacted log: most brokers start without one.
        from oncelog.storage.maintenance.compaction import Compact
        from oncelog.storage.maintenance.dirty_section import cleanable

        dirty = cleanable(log, now_ms)
        if dirty is None:
            return None
        if not log.ever_cleaned:
            log.checkpoints.logs_may_have_gaps()
            log.ever_cleaned = True
        self._uncleanable, self._compacted_with = False, limit
        return Compact(log, self, dirty, now_ms)

    def finished(self, job: Job, *, failed: bool = False) -> None:
        self._busy.discard(job.name)
        if failed and job.name == COMPACTION:
            self._uncleanable = True

    def _apply_retention(self, now_ms: int) -> Segment | None:
        """Delete segments that are too old or too much. Returns the first segment whose age is uncertain."""
        log = self._log
        expired, doubtful = self._deletable(now_ms)
        if not expired:
            return doubtful
        if len(expired) == len(log.segments):
            roll(log, now_ms)
        index = log.segments.floor(expired[-1].base_offset)
        log.raise_log_start(log.segments[index + 1].base_offset)
        self.delete_segments(expired, now_ms)
        return doubtful

    def _deletable(self, now_ms: int) -> tuple[list[Segment], Segment | None]:
        """The oldest segments that are before the log start, too old, or too much; and the next one if its timestamps
        must be checked first."""
        log = self._log
        config = log.config
        surplus = log.size_bytes - config.retention_bytes if config.delete and config.retention_bytes >= 0 else -1
        expired_before = now_ms - config.retention_ms if config.delete and config.retention_ms >= 0 else None
        expired: list[Segment] = []
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
            if expired_before is not None and not (before_start or too_much) and segment.may_hide(expired_before):
                return expired, segment
            surplus -= segment.size_bytes
            expired.append(segment)
        return expired, None

    def delete_segments(self, segments: list[Segment], now_ms: int) -> None:
        """Remove segments from the log; their files follow after the delay."""
        self._log.segments.remove(segments)
        self._log.retire(segments, now_ms)

    def _removal(self, now_ms: int) -> Job:
        retired = self._log.retired
        self._log.retired = [(due_ms, segment) for due_ms, segment in retired if due_ms > now_ms]
        return RemoveSegments(self._log, self, [segment for due_ms, segment in retired if due_ms <= now_ms])


class CheckTimestamps:
    """Reads the largest timestamp of a segment that seems expired, but was written recently. Retention decides again
    afterwards."""

    # Headers that an older version believed may hide newer records (latest_timestamp).
    name = "check-timestamps"

    def __init__(self, log: PartitionLog, owner: JobOwner, segment: Segment) -> None:
        self.partition = log.partition
        self._log = log
        self._owner = owner
        self._segment = segment
        self._latest = segment.max_timestamp

    def run(self) -> Iterator[None]:
        self._latest = yield from self._segment.true_max_timestamp(self._log.storage.max_decompressed_bytes)

    def apply(self) -> None:
        self._owner.finished(self)
        self._segment.set_true_max_timestamp(self._latest)

    def abandon(self) -> None:
        self._owner.finished(self)


class RemoveSegments:
    """Removes the files of deleted segments, one segment a slice."""

    name = "delete"

    def __init__(self, log: PartitionLog, owner: JobOwner, segments: list[Segment]) -> None:
        self.partition = log.partition
        self._owner = owner
        self._files = log.files
        self._directory = log.directory
        self._segments = segments

    def run(self) -> Iterator[None]:
        # Their replacements must be durable before they are removed.
        self._files.sync_directory(self._directory)
        yield
        for segment in self._segments:
            segment.remove()
            yield

    def apply(self) -> None:
        self._owner.finished(self)

    def abandon(self) -> None:
        """The rest is removed when the log is next opened."""
        self._owner.finished(self)


class RebuildIndexes:
    """Rebuilds the indexes of a sealed segment from its batches, some megabytes a slice."""

    name = "rebuild-indexes"

    def __init__(self, log: PartitionLog, owner: JobOwner, segment: Segment) -> None:
        self.partition = log.partition
        self._log = log
        self._owner = owner
        self._segment = segment
        self._file = segment.file
        self._end = segment.size_bytes
        self._indexes = IndexBuilder(segment.base_offset, log.config.index_interval_bytes)

    def run(self) -> Iterator[None]:
        since_yield = 0
        for position, header in iter_batches(self._file, 0, self._end, SCAN_CHUNK):
            self._indexes.add(position, header)
            since_yield += header.size_bytes
            if since_yield >= SCAN_CHUNK:
                since_yield = 0
                yield
        self._indexes.seal()
        yield

    def apply(self) -> None:
        self._owner.finished(self)
        if not self._log.closed and self._segment in self._log.segments:
            self._segment.replace_indexes(self._indexes.offsets, self._indexes.times)

    def abandon(self) -> None:
        self._owner.finished(self)
