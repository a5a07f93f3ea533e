"""Requests to a broker that has stood still, postponed until it knows what it slept through.

A process that is stopped, swapped out or suspended for as long as its session with the tree lasts is taken for dead:
others lead what it led. When it goes on, the requests that wait in its sockets come before the news. What it would
answer is what it remembers: committed offsets that are no longer the last ones, which send a transactional consumer
back over records it has processed; and records written with acks=1, which nobody copies any more. So its first requests
wait until the metadata have been read anew, in a new session where the old one has ended. Apache Kafka answers them.

The same holds where only the session was lost: the tree has said so, and can be reached. One that cannot be reached
does not end a broker that serves: requests are postponed for ``LONGEST_MS`` at most. What clients and followers are
judged by, the time-outs of members and transactions and the lag of replicas, waits as long
(``Metadata.requests_postponed``): the requests that keep them alive are among those that wait.
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

LONGEST_MS: Final = 2_000


class PauseRecovery:
    """Postpones requests from the moment in which this broker may have been replaced until it has read the metadata."""

    def __init__(
        self, metadata: Metadata, metadata_log: MetadataLog, deadlines: Deadlines, requests: Requests, outbox: Outbox
    ) -> None:
        self._metadata = metadata
        self._outbox = outbox
        self._metadata_log = metadata_log
        self._deadlines = deadlines
        self._requests = requests
        self._end: Alarm | None = None
        metadata_log.on_session_lost.append(self._begin)

    def process_paused(self, event: StoodStill) -> None:
        """The process has stood still for long enough to have been replaced."""
        message = (
            f"this process stood still for {event.milliseconds / SECOND_MS:.1f} s (stopped, starved, or its machine "
            "asleep); it answers when it has read the metadata"
        )
        self._outbox.effects.append(Report("warning", message))
        self._begin()
        self._metadata_log.reload()

    def metadata_loaded(self, event: MetadataLoaded) -> None:
        if event.nodes is not None and self._metadata_log.is_current():
            self.end()

    def end(self) -> None:
        """Let the requests go on, if they wait."""
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
        self._metadata.requests_postponed = True
