"""Watches the data directory's disk: what the broker does when it fails or is full (KIP-112).

A broker has a single data directory, so taking a directory offline affects all of its replicas:

1. A failed disk (`base.disk_errors`) stops the broker, as the loss of its last directory stops Apache Kafka's: its data
   cannot be trusted, and other leaders are elected at once.
2. A full disk takes the directory offline until it has room (Apache Kafka stops, and must be restarted). The
   registration says so: this broker leads nothing that another in-sync replica can lead, and leaves those in-sync sets.
   Other partitions stay readable here. Retention continues.
3. A disk has room when a hundredth of it is free, at most 1 GiB. If it is soon full again, the next check waits longer
   and longer: free space does not show quotas or a lack of inodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.tree import CommitOutcome
from oncelog.base.units import MINUTE_MS, SECOND_MS
from oncelog.core.controller.replicas.failover import report_full_disk
from oncelog.node.kernel.events import Fatal, Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.base.ids import TopicPartition
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.cluster.metadata_log import MetadataLog
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.kernel.events import Outbox
    from oncelog.ports import DiskErrors

CHECK_MS: Final = 5 * SECOND_MS
"""First pause between checks of a full disk."""
LONGEST_CHECK_MS: Final = 5 * MINUTE_MS
RELAPSE_MS: Final = MINUTE_MS
"""A disk that is full again within this time is checked half as often."""
_MOST_ROOM_BYTES: Final = 1 << 30


class DirectoryHealth:
    def __init__(
        self, errors: DiskErrors, metadata: Metadata, commits: MetadataLog, deadlines: Deadlines, outbox: Outbox
    ) -> None:
        self._errors = errors
        self._metadata = metadata
        self._commits = commits
        self._deadlines = deadlines
        self._outbox = outbox
        self.measure: Callable[[], tuple[int, int]] = lambda: (-1, -1)
        """Returns the disk's size and free bytes, −1 if unknown; set by the runtime."""
        self.is_offline = False
        """True while the disk is full."""
        self._has_failed = False
        self._interval_ms = CHECK_MS
        self._had_room_ms: int | None = None
        self._is_updating = False
        self._next_report_ms = 0

    def check(self) -> None:
        """Act on errors noted during an event."""
        failure, full = self._errors.failure, self._errors.full
        if failure is not None and not self._has_failed:
            self._has_failed = True
            self._outbox.effects.append(Fatal(f"the only log directory, {self._directory}, has failed: {failure}"))
        if full is not None:
            self._errors.full = None
            if not self.is_offline:
                self._take_offline(full)
        unopened, self._errors.unopened = self._errors.unopened, None
        if unopened is not None:
            self._report_trouble(f"no file descriptor is left; raise the limit (ulimit -n): {unopened}")

    def log_not_created(self, partition: TopicPartition, error: OSError) -> None:
        self._report_trouble(f"the log of {partition} cannot be created and is retried: {error}")

    def _report_trouble(self, message: str) -> None:
        """Report a recurring error, at most once a minute."""
        if self._deadlines.now_ms >= self._next_report_ms:
            self._next_report_ms = self._deadlines.now_ms + MINUTE_MS
            self._outbox.effects.append(Report("error", message))

    @property
    def _directory(self) -> str:
        return self._metadata.config.data_directory

    def _take_offline(self, error: OSError) -> None:
        now_ms = self._deadlines.now_ms
        soon = self._had_room_ms is not None and now_ms - self._had_room_ms < RELAPSE_MS
        self._interval_ms = min(2 * self._interval_ms, LONGEST_CHECK_MS) if soon else CHECK_MS
        self.is_offline = True
        self._outbox.effects.append(
            Report("error", f"the disk of {self._directory} is full; no records are accepted: {error}")
        )
        self._update_registration()
        self._deadlines.at(now_ms + self._interval_ms, self._check)

    def _check(self, now_ms: int) -> None:
        if self.is_offline and self._has_room():
            self.is_offline, self._had_room_ms = False, now_ms
            self._outbox.effects.append(Report("info", f"the disk of {self._directory} has room again"))
        self._update_registration()
        if self.is_offline or self._is_registered_full():
            self._deadlines.at(now_ms + self._interval_ms, self._check)

    def _has_room(self) -> bool:
        total, usable = self.measure()
        return total < 0 or usable >= min(total // 100, _MOST_ROOM_BYTES)

    def _is_registered_full(self) -> bool:
        own = self._metadata.image.brokers.get(self._metadata.broker_id)
        return own is not None and own.has_full_disk

    def _update_registration(self) -> None:
        """After a refusal the next check tries again."""
        if self._is_updating:
            return
        operations = report_full_disk(
            self._metadata.image, self._metadata.broker_id, self._deadlines.now_ms, full=self.is_offline
        )
        if operations:
            self._is_updating = True
            self._commits.commit(operations, self._registration_written)

    def _registration_written(self, _outcome: CommitOutcome) -> None:
        self._is_updating = False
