"""What has to be done from time to time: retention, compaction, expiry of producer state, checkpoints.

Jobs run one after the other in a worker, so that they never take more than one core from the loop; what they made is
applied on the loop. A pass over the logs only collects jobs; with many thousand logs it goes in slices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import TopicPartition
from oncelog.node.deadlines import Deadlines
from oncelog.node.events import Effect, JobFinished, Report, RunJob

if TYPE_CHECKING:
    from oncelog.node.cluster import Cluster
    from oncelog.node.readers import Readers
    from oncelog.storage.directory import LogDirectory
    from oncelog.storage.jobs import Job

LOGS_PER_SLICE: Final = 500
SLICE_PAUSE_MS: Final = 10


class Maintenance:
    """Schedules the jobs of all logs of a directory."""

    def __init__(self, logs: LogDirectory, cluster: Cluster, readers: Readers, deadlines: Deadlines) -> None:
        self._logs = logs
        self._cluster = cluster
        self._readers = readers
        self._deadlines = deadlines
        self._waiting: deque[Job] = deque()
        self._running: tuple[int, Job] | None = None
        self._queued: set[tuple[str, TopicPartition]] = set()
        self._next_token = 1

    def start(self, now_ms: int) -> None:
        """Set the first passes."""
        self._deadlines.at(now_ms + self._interval_ms(), self._begin_pass)
        self._deadlines.at(now_ms + self._checkpoint_interval_ms(), self._checkpoint)
        for job in self._logs.startup_jobs():
            self.add(job)

    def _interval_ms(self) -> int:
        """Retention and compaction share their passes: the shorter of Kafka's two intervals."""
        config = self._cluster.config
        return max(
            1,
            min(int(config.get("log.retention.check.interval.ms")), int(config.get("log.cleaner.backoff.ms"))),
        )

    def _checkpoint_interval_ms(self) -> int:
        return max(1, int(self._cluster.config.get("log.flush.offset.checkpoint.interval.ms")))

    def _begin_pass(self, now_ms: int) -> None:
        self._go_on(iter(list(self._logs.logs)), now_ms)

    def _go_on(self, partitions: Iterator[TopicPartition], now_ms: int) -> None:
        for _ in range(LOGS_PER_SLICE):
            partition = next(partitions, None)
            if partition is None:
                self._deadlines.at(now_ms + self._interval_ms(), self._begin_pass)
                return
            self._collect(partition, now_ms)
        self._deadlines.at(now_ms + SLICE_PAUSE_MS, lambda later_ms: self._go_on(partitions, later_ms))

    def _collect(self, partition: TopicPartition, now_ms: int) -> None:
        log = self._logs.logs.get(partition)
        if log is None:
            return
        start_offset = log.log_start_offset
        for job in log.due_jobs(now_ms):
            self.add(job)
        if log.log_start_offset != start_offset:
            self._readers.changed(partition)

    def add(self, job: Job) -> None:
        """Run a job when those before it are done; one of a kind for each log."""
        key = (job.name, job.partition)
        if key not in self._queued:
            self._queued.add(key)
            self._waiting.append(job)

    def start_jobs(self, effects: list[Effect]) -> None:
        """Start the next job if none is running."""
        if self._running is None and self._waiting:
            job = self._waiting.popleft()
            token = self._next_token
            self._next_token += 1
            self._running = (token, job)
            effects.append(RunJob(token, job.run()))

    def job_finished(self, event: JobFinished, effects: list[Effect]) -> None:
        """A job came to its end: take over what it made."""
        if self._running is None or self._running[0] != event.token:
            return
        job = self._running[1]
        self._running = None
        self._queued.discard((job.name, job.partition))
        if event.failure is None:
            job.apply()
            self._readers.changed(job.partition)
        else:
            job.abandon()
            effects.append(Report("error", f"{job.name} of {job.partition} failed: {event.failure}"))

    def _checkpoint(self, now_ms: int) -> None:
        self._logs.checkpoints()
        self._deadlines.at(now_ms + self._checkpoint_interval_ms(), self._checkpoint)
