"""Postpones requests after the process was paused, until the broker has caught up with the cluster's metadata.

A process that is stopped, swapped out or suspended for as long as its session lasts is taken for dead, and others lead
its partitions. When it resumes, the requests in its sockets come before the news. Answered from memory, they would get
old committed offsets, so that a transactional consumer repeats records, or append acks=1 records that no replica
copies. So they wait until the metadata has been read again, in a new session if the old one has ended. Apache Kafka
answers them at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.units import SECOND_MS
from oncelog.node.kernel.events import Report

if TYPE_CHECKING:
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.cluster.metadata_log import MetadataLog
    from oncelog.node.kernel.deadlines import Alarm, Deadlines
    from oncelog.node.kernel.events import MetadataLoaded, Outbox, StoodStill
    from oncelog.node.requests.dispatch import Requests

# An unreachable tree does not stop a serving broker.
LONGEST_MS: Final = 2_000


class PauseRecovery:
    def __init__(
        self, metadata: Metadata, metadata_log: MetadataLog, deadlines: Deadlines, requests: Requests, outbox: Outbox
    ) -> None:
        self._metadata = metadata
        self._outbox = outbox
        self._metadata_log = metadata_log
        self._deadlines = deadlines
        self._requests = requests
        self._end: Alarm | None = None
        # A lost session alone: the tree has said so, and can be reached.
        metadata_log.on_session_lost.append(self._begin)

    def process_paused(self, event: StoodStill) -> None:
        message = (
            f"this process was paused for {event.milliseconds / SECOND_MS:.1f} s (stopped, starved of CPU, or "
            "asleep with its machine); it answers requests again when it has read the metadata"
        )
        self._outbox.effects.append(Report("warning", message))
        self._begin()
        self._metadata_log.reload()

    def metadata_loaded(self, event: MetadataLoaded) -> None:
        if event.nodes is not None and self._metadata_log.is_current():
            self.end()

    def end(self) -> None:
        if self._end is not None:
            self._deadlines.cancel(self._end)
            self._end = None
            self._requests.go_on()
            self._metadata.requests_postponed = False

    def _begin(self) -> None:
        if self._end is not None:
            self._deadlines.cancel(self._end)
        self._end = self._deadlines.at(self._deadlines.now_ms + LONGEST_MS, lambda _now_ms: self.end())
        self._requests.postpone()
        # Suspends time-outs of members and transactions and the lag of replicas: the requests that keep them alive wait
        # too.
        self._metadata.requests_postponed = True
