"""The data directory: all logs of a broker, their checkpoints, and the marker of a clean shutdown.

Partition directories lie directly in it, named ``topic-partition``. An unclean start trusts nothing but the segments
(``recovery``); checkpoints only save work. A directory of an unexpected topic is set aside, not deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import NO_TOPIC_ID, Offset, TopicId, TopicName, TopicPartition, partition_of_directory
from oncelog.base.invariant import invariant
from oncelog.ports import Files
from oncelog.storage.checkpoints import (
    Sync,
    read_file,
    read_offsets,
    read_topic_id,
    replace_file,
    write_offsets,
    write_topic_id,
)
from oncelog.storage.errors import UnknownVersion, UnusableDirectory
from oncelog.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    DELETE_DIRECTORY,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    STRAY_DIRECTORY,
    TEMPORARY,
    is_marked_directory,
    marked_directory,
)
from oncelog.storage.log_config import INLINE_VALIDATION_BYTES, LogConfig, StorageConfig
from oncelog.storage.segment.index_budget import IndexBudget
from oncelog.storage.transactions.open_transactions import OpenTransactions

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog, SharedByLogs
    from oncelog.storage.maintenance.jobs import Job
    from oncelog.storage.maintenance.log_maintenance import LogMaintenance
    from oncelog.storage.recovery import Checkpointed

CLEAN_SHUTDOWN_VERSION: Final = 0
ConfigOf = Callable[[TopicPartition], LogConfig]


class LogDirectory:
    """``was_clean``: the last run ended with :meth:`close`."""

    def __init__(self, files: Files, storage: StorageConfig | None = None) -> None:
        self.files = files
        files.errors.forget()
        self.storage = storage or StorageConfig()
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.was_clean = False
        self.lost_from: dict[TopicPartition, Offset] = {}
        """Logs that have lost durable records since the last run, with their ends (a missing one: its start)."""
        self.truncations = 0
        """Truncations of logs in this run."""
        self.broker_epoch = -1
        """The broker epoch in the clean-shutdown file; −1 if unknown."""
        self._budget = IndexBudget()
        self._doomed: list[str] = []
        self._loaded: dict[str, Mapping[TopicPartition, int]] = {}
        """Checkpoints loaded at the start."""
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        """Checkpoints last written; written again only after a change."""
        self._maintenance: dict[TopicPartition, LogMaintenance] = {}
        self.transactions = OpenTransactions()

    @staticmethod
    def open(files: Files, *, config_of: ConfigOf, now_ms: int, storage: StorageConfig | None = None) -> LogDirectory:
        """Open every log at once; see :meth:`opening` for slices."""
        directory = LogDirectory(files, storage)
        for _ in directory.opening(config_of=config_of, now_ms=now_ms):
            pass
        return directory

    def opening(self, *, config_of: ConfigOf, now_ms: int) -> Iterator[TopicPartition]:
        """Yields each partition that is ready."""
        names = self.files.list("")
        # First: a refusal of their versions leaves the directory as it is.
        recovery_points = read_offsets(self.files, RECOVERY_POINTS)
        log_starts = read_offsets(self.files, LOG_START_OFFSETS)
        high_watermarks = read_offsets(self.files, HIGH_WATERMARKS)
        cleaned = read_offsets(self.files, CLEANER_OFFSETS)
        self.was_clean = CLEAN_SHUTDOWN in names
        marker = b""
        if self.was_clean:
            marker = read_file(self.files, CLEAN_SHUTDOWN) or b""
            self.broker_epoch = _broker_epoch(marker)
            self.files.remove(CLEAN_SHUTDOWN)
            self.files.sync_directory("")
        self._loaded = {RECOVERY_POINTS: recovery_points, HIGH_WATERMARKS: high_watermarks}
        for name in names:
            if is_marked_directory(name):
                if name.endswith(DELETE_DIRECTORY):
                    self._doomed.append(name)
                continue
            partition = partition_of_directory(name)
            if partition is None or str(partition) != name:
                if name.endswith(TEMPORARY):
                    self.files.remove(name)
                continue
            # The modules of a log are imported by the first log: a new broker starts without them.
            from oncelog.storage.recovery import Checkpointed

            checkpointed = Checkpointed(
                self.was_clean,
                recovery_points.get(partition, 0),
                log_starts.get(partition, 0),
                cleaned.get(partition),
            )
            try:
                log = self._open_log(partition, config_of(partition), checkpointed, now_ms)
            except NotADirectoryError:
                continue
            except UnusableDirectory:
                # The version that wrote the files starts on them as after its clean stop, unless damage was found here.
                if self.was_clean and not self.lost_from:
                    replace_file(self.files, CLEAN_SHUTDOWN, marker)
                raise
            log.set_high_watermark(min(high_watermarks.get(partition, 0), log.durable_offset))
            self.logs[partition] = log
            yield partition
        for partition, recovery_point in recovery_points.items():
            log_start = log_starts.get(partition, 0)
            # The directory was moved away, or a deletion died before the next checkpoint: the tree knows which.
            if partition not in self.logs and recovery_point > log_start:
                self.lost_from[partition] = Offset(log_start)

    def _open_log(
        self, partition: TopicPartition, config: LogConfig, checkpointed: Checkpointed, now_ms: int
    ) -> PartitionLog:
        from oncelog.storage.log.partition_log import PartitionLog
        from oncelog.storage.recovery import Recovery

        directory = str(partition)
        names = self.files.list(directory)
        topic_id = read_topic_id(self.files, directory) if PARTITION_METADATA in names else NO_TOPIC_ID
        recovered = Recovery(self.files, directory, config, self.storage, self._budget, now_ms).run(names, checkpointed)
        if recovered.lost_from is not None:
            self.lost_from[partition] = Offset(recovered.lost_from)
        return PartitionLog(self._shared(), partition, topic_id, config, recovered)

    def lost(self) -> tuple[TopicPartition, ...]:
        """The logs that may lack records which were durable here: other replicas are to be preferred."""
        return tuple(sorted(self.lost_from.keys() | self.unidentified()))

    def unidentified(self) -> set[TopicPartition]:
        """The logs with records but without a topic id, after an unclean shutdown."""
        if self.was_clean:
            return set()
        # A power cut may have taken the file, and the name may be another topic's by now.
        return {
            partition for partition, log in self.logs.items() if log.topic_id == NO_TOPIC_ID and log.log_end_offset > 0
        }

    def create(self, partition: TopicPartition, topic_id: TopicId, config: LogConfig, *, now_ms: int) -> PartitionLog:
        from oncelog.storage.log.partition_log import PartitionLog
        from oncelog.storage.recovery import Checkpointed, Recovery

        invariant(partition not in self.logs, "log exists", partition=partition)
        self._forget_former(partition)
        directory = str(partition)
        self.files.make_directory(directory)
        write_topic_id(self.files, directory, topic_id, Sync.NOTHING)
        recovery = Recovery(self.files, directory, config, self.storage, self._budget, now_ms)
        log = PartitionLog(self._shared(), partition, topic_id, config, recovery.run([], Checkpointed(clean=True)))
        self.logs[partition] = log
        return log

    def _forget_former(self, partition: TopicPartition) -> None:
        """Remove a deleted log of the same name from the checkpoints: its offsets do not apply to the new one."""
        for path in (RECOVERY_POINTS, HIGH_WATERMARKS):
            written = self._written.get(path, self._loaded.get(path, {}))
            if partition in written:
                self._write(path, {other: offset for other, offset in written.items() if other != partition})

    def _shared(self) -> SharedByLogs:
        from oncelog.storage.log.partition_log import SharedByLogs

        return SharedByLogs(self.files, self.storage, self._budget, self.transactions, self, self._room)

    @cached_property
    def _room(self) -> memoryview:
        return memoryview(bytearray(INLINE_VALIDATION_BYTES))

    def delete(self, partition: TopicPartition, token: bytes) -> Job:
        """Remove a log: its directory is renamed at once, and the returned job removes it. ``token``: 16 random
        bytes."""
        return RemoveDirectories(self.files, partition, [self._put_aside(partition, token, DELETE_DIRECTORY)])

    def set_aside(self, partition: TopicPartition, token: bytes) -> str:
        """Rename the directory of a log that belongs to no known topic; only the operator removes it. Returns the new
        name."""
        return self._put_aside(partition, token, STRAY_DIRECTORY)

    def _put_aside(self, partition: TopicPartition, token: bytes, mark: str) -> str:
        log = self.logs.pop(partition)
        self._maintenance.pop(partition, None)
        new = marked_directory(partition, token.hex(), mark)
        self.files.rename(log.directory, new)
        log.moved_to(new)
        self.transactions.dropped(partition)
        log.closed = True
        return new

    def startup_jobs(self) -> list[Job]:
        """Jobs that remove the directories of earlier deletions."""
        doomed, self._doomed = self._doomed, []
        return [RemoveDirectories(self.files, _NOWHERE, doomed)] if doomed else []

    def due_jobs(self, partition: TopicPartition, now_ms: int, *, retention: bool = True) -> list[Job]:
        """Apply retention to a log and return its due jobs. Raises OSError, for a full disk."""
        maintenance = self._maintenance.get(partition)
        if maintenance is None:
            from oncelog.storage.maintenance.log_maintenance import LogMaintenance

            maintenance = self._maintenance[partition] = LogMaintenance(self.logs[partition])
        return maintenance.due_jobs(now_ms, retention=retention)

    def checkpoints(self) -> None:
        """Write recovery points, log starts, high watermarks and cleaned offsets. Syncs a handful of files."""
        self._write(RECOVERY_POINTS, {log.partition: log.durable_offset for log in self.logs.values()})
        self._write(HIGH_WATERMARKS, {log.partition: log.high_watermark for log in self.logs.values()})
        self.checkpoint_log_starts()
        self._write_cleaned()

    def checkpoint_log_starts(self, rising: Mapping[TopicPartition, Offset] = MappingProxyType({})) -> None:
        """Write log starts that lie inside a segment, and the future ones of ``rising``; durable on return."""
        starts = {p: log.log_start_offset for p, log in self.logs.items() if log.starts_inside_segment}
        self._write(LOG_START_OFFSETS, {**starts, **rising})

    def before_truncation(
        self, partition: TopicPartition, recovery_point: int, high_watermark: int, log_start_offset: int | None
    ) -> None:
        self.truncations += 1
        logs = self.logs.values()
        # A recovery point above the new end would make recovery trust later records there; a high watermark above it
        # would make the log start with that offset.
        if self._may_exceed(RECOVERY_POINTS, partition, recovery_point):
            self._write(
                RECOVERY_POINTS, {log.partition: log.durable_offset for log in logs} | {partition: recovery_point}
            )
        if self._may_exceed(HIGH_WATERMARKS, partition, high_watermark):
            self._write(
                HIGH_WATERMARKS, {log.partition: log.high_watermark for log in logs} | {partition: high_watermark}
            )
        if log_start_offset is not None and self._written.get(LOG_START_OFFSETS, {}).get(partition) != log_start_offset:
            self.checkpoint_log_starts({partition: Offset(log_start_offset)})

    def _may_exceed(self, path: str, partition: TopicPartition, offset: int) -> bool:
        """True unless this run has checkpointed the log at or below ``offset``."""
        written = self._written.get(path)
        return written is None or written.get(partition, 0) > offset

    def logs_may_have_gaps(self) -> None:
        """Record for recovery that all logs with compaction may have gaps from now on."""
        for log in self.logs.values():
            if log.config.compact:
                log.ever_cleaned = True
        self._write_cleaned()

    def _write_cleaned(self) -> None:
        self._write(CLEANER_OFFSETS, {p: log.cleaned_offset for p, log in self.logs.items() if log.ever_cleaned})

    def _write(self, path: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self._written.get(path) != offsets:
            write_offsets(self.files, path, offsets)
            self._written[path] = offsets

    def close(self, broker_epoch: int = -1) -> None:
        """Clean shutdown: sync everything, then write the marker."""
        for log in self.logs.values():
            log.close()
        # The marker vouches for the checkpoints: they come first.
        self.checkpoints()
        content = json.dumps({"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        replace_file(self.files, CLEAN_SHUTDOWN, content.encode())


_NOWHERE = TopicPartition(TopicName(""), -1)


class RemoveDirectories:
    """Removes partition directories of deleted topics, one a slice."""

    name = "delete"

    def __init__(self, files: Files, partition: TopicPartition, directories: list[str]) -> None:
        self.partition = partition
        self._files = files
        self._directories = directories

    def run(self) -> Iterator[None]:
        for directory in self._directories:
            self._files.remove(directory)
            yield

    def apply(self) -> None: ...

    def abandon(self) -> None:
        """The rest is removed at the next start."""


def _broker_epoch(content: bytes | None) -> int:
    """Raises UnknownVersion."""
    try:
        fields = json.loads(content or b"")
        version, broker_epoch = fields["version"], int(fields["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1
    if version != CLEAN_SHUTDOWN_VERSION:
        raise UnknownVersion(
            CLEAN_SHUTDOWN, version, CLEAN_SHUTDOWN_VERSION, "the logs are then checked as after a crash"
        )
    return broker_epoch
