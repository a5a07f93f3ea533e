"""Periodic maintenance of the logs: retention, compaction, expiry of producer state, checkpoints.

Jobs run one at a time on a worker, taking at most one core; their results are applied on the loop. A pass over the logs
only collects jobs, in slices if there are many thousand logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import TopicPartition
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import Effect, JobFinished, Report, RunJob

if TYPE_CHECKING:
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.logs.delayed_fetches import DelayedFetches
    from oncelog.node.logs.group_commit import GroupCommit
    from oncelog.storage.log_directory import LogDirectory
    from oncelog.storage.maintenance.jobs import Job

LOGS_PER_SLICE: Final = 500
SLICE_PAUSE_MS: Final = 10
FIRST_RETENTION_MS: Final = 30_000
"""Time from the start to the first retention, unless the interval is shorter; Apache Kafka's initial delay."""


class Maintenance:
    def __init__(
        self,
        logs: LogDirectory,
        metadata: Metadata,
        delayed_fetches: DelayedFetches,
        deadlines: Deadlines,
        group_commit: GroupCommit,
    ) -> None:
        self._logs = logs
        self._metadata = metadata
        self._delayed_fetches = delayed_fetches
        self._deadlines = deadlines
        self._group_commit = group_commit
        self._waiting: deque[Job] = deque()
        self._running: tuple[int, Job] | None = None
        self._next_token = 1
        self._reports: list[Report] = []
        self._retention_due_ms = 0

    def start(self, now_ms: int) -> None:
        self._retention_due_ms = now_ms + min(FIRST_RETENTION_MS, self._retention_interval_ms())
        self._deadlines.at(now_ms + self._interval_ms(), self._begin_pass)
        self._deadlines.at(now_ms + self._expiry_interval_ms(), self._begin_expiry)
        self._deadlines.at(now_ms + self._checkpoint_interval_ms(), self._checkpoint)
        for job in self._logs.startup_jobs():
            self.add(job)

    def _interval_ms(self) -> int:
        # Retention and compaction share their passes, at the shorter of Kafka's two intervals. Every pass compacts;
        # retention waits for its own interval, as expired records stay readable until then.
        return max(1, min(self._retention_interval_ms(), int(self._metadata.config.get("log.cleaner.backoff.ms"))))

    def _retention_interval_ms(self) -> int:
        return int(self._metadata.config.get("log.retention.check.interval.ms"))

    def _expiry_interval_ms(self) -> int:
        return int(self._metadata.config.get("producer.id.expiration.check.interval.ms"))

    def _checkpoint_interval_ms(self) -> int:
        return max(1, int(self._metadata.config.get("log.flush.offset.checkpoint.interval.ms")))

    def _begin_pass(self, now_ms: int) -> None:
        retention = now_ms >= self._retention_due_ms
        if retention:
            self._retention_due_ms = now_ms + self._retention_interval_ms()
        self._collect_slice(iter(list(self._logs.logs)), now_ms, retention=retention)

    def _collect_slice(self, partitions: Iterator[TopicPartition], now_ms: int, *, retention: bool) -> None:
        for _ in range(LOGS_PER_SLICE):
            partition = next(partitions, None)
            if partition is None:
                self._deadlines.at(now_ms + self._interval_ms(), self._begin_pass)
                return
            self._collect(partition, now_ms, retention=retention)
        self._deadlines.at(
            now_ms + SLICE_PAUSE_MS, lambda later_ms: self._collect_slice(partitions, later_ms, retention=retention)
        )

    def _collect(self, partition: TopicPartition, now_ms: int, *, retention: bool) -> None:
        log = self._logs.logs.get(partition)
        if log is None:
            return
        start_offset = log.log_start_offset
        try:
            for job in self._logs.due_jobs(partition, now_ms, retention=retention):
                self.add(job)
        except OSError as error:  # a full disk: the next pass may free space, and the other logs must go on
            self._reports.append(Report("error", f"maintenance of {partition} failed: {error}"))
        if log.log_start_offset != start_offset:
            self._delayed_fetches.changed(partition)
        if log.has_unsynced_segments:
            self._group_commit.flush(log)  # retention may have rolled; deleted segments keep their space until then

    def _begin_expiry(self, now_ms: int) -> None:
        # A pass of its own, because its interval is separate.
        self._expire(iter(list(self._logs.logs)), now_ms)

    def _expire(self, partitions: Iterator[TopicPartition], now_ms: int) -> None:
        for _ in range(LOGS_PER_SLICE):
            partition = next(partitions, None)
            if partition is None:
                self._deadlines.at(now_ms + self._expiry_interval_ms(), self._begin_expiry)
                return
            log = self._logs.logs.get(partition)
            if log is not None:
                log.expire_producers(now_ms)
        self._deadlines.at(now_ms + SLICE_PAUSE_MS, lambda later_ms: self._expire(partitions, later_ms))

    def add(self, job: Job) -> None:
        self._waiting.append(job)

    def start_jobs(self, effects: list[Effect]) -> None:
        """Start the next job if none is running, and emit errors from outside jobs."""
        if self._reports:
            effects += self._reports
            self._reports.clear()
        if self._running is None and self._waiting:
            job = self._waiting.popleft()
            token = self._next_token
            self._next_token += 1
            self._running = (token, job)
            effects.append(RunJob(token, job.run()))

    def job_finished(self, event: JobFinished, effects: list[Effect]) -> None:
        """Apply the results of a job that has finished."""
        if self._running is None or self._running[0] != event.token:
            return
        job = self._running[1]
        self._running = None
        if event.failure is None:
            job.apply()
            self._delayed_fetches.changed(job.partition)
            if job.partition not in self._logs.logs:
                self._delayed_fetches.deleted(job.partition)
        else:
            job.abandon()
            effects.append(Report("error", f"{job.name} of {job.partition} failed: {event.failure}"))

    def _checkpoint(self, now_ms: int) -> None:
        try:
            self._logs.checkpoints()
        except OSError as error:  # checkpoints only speed up the next start, and the disk may have room by then
            self._reports.append(Report("error", f"checkpoints could not be written: {error}"))
        self._deadlines.at(now_ms + self._checkpoint_interval_ms(), self._checkpoint)
