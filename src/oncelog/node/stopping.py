"""The clean stop of a node: its leaderships are handed over, then the requests that it has read are answered.

Meanwhile the phases of :class:`Stopping` follow each other: clients are served while leaderships move; then nothing new
is accepted; :class:`Stopped` is reported when the node is idle, or at the deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from oncelog.node.kernel.events import Effect, StopListening, Stopped

if TYPE_CHECKING:
    from oncelog.node.cluster.metadata_log import MetadataLog
    from oncelog.node.controller.controlled_shutdown import ControlledShutdown
    from oncelog.node.controller.duties import ControllerDuties
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.logs.group_commit import GroupCommit
    from oncelog.storage.log_directory import LogDirectory

# The runtime hands in what it has read in its next round; the present round may have begun already.
_ROUNDS: Final = 2


class _Phase(Enum):
    RUNNING = "running"
    HANDING_OVER = "handing over"
    ENDING = "ending"
    STOPPED = "stopped"


class Stopping:
    def __init__(
        self,
        metadata_log: MetadataLog,
        controller: ControllerDuties,
        controlled_shutdown: ControlledShutdown,
        logs: LogDirectory,
        group_commit: GroupCommit,
        deadlines: Deadlines,
        serve_no_more: Callable[[], None],
        is_idle: Callable[[], bool],
    ) -> None:
        """``is_idle``: this broker cannot advance any request that it has read."""
        self._metadata_log = metadata_log
        self._controller = controller
        self._controlled_shutdown = controlled_shutdown
        self._logs = logs
        self._group_commit = group_commit
        self._deadlines = deadlines
        self._serve_no_more = serve_no_more
        self._is_idle = is_idle
        self._phase = _Phase.RUNNING
        self._by_ms = 0
        # Rounds of the loop in which requests read before ``StopListening`` may still arrive.
        self._rounds_left = 0

    def begin(self, deadline_ms: int) -> None:
        self._phase, self._by_ms = _Phase.HANDING_OVER, deadline_ms
        self._deadlines.at(deadline_ms, lambda _now: None)
        self._metadata_log.leave()
        self._controller.end()
        self._controlled_shutdown.begin(deadline_ms)

    def round_ended(self) -> None:
        """A round of the runtime's loop is over."""
        self._rounds_left = max(0, self._rounds_left - 1)

    def end_serving(self, effects: list[Effect]) -> None:
        """Accept nothing new, once all leaderships are handed over. Called before syncs are started."""
        if self._phase is not _Phase.HANDING_OVER or not self._controlled_shutdown.is_done:
            return
        self._phase, self._rounds_left = _Phase.ENDING, _ROUNDS
        effects.append(StopListening())
        self._serve_no_more()
        for log in self._logs.logs.values():
            if log.durable_offset < log.log_end_offset:
                self._group_commit.flush(log)  # in parallel now, instead of one by one when the logs are closed

    def finish(self, effects: list[Effect]) -> bool:
        """Report the end if the node is idle. Returns True if another round has to come first."""
        if self._phase is not _Phase.ENDING:
            return False
        if self._rounds_left:
            return True
        if self._is_idle() or self._deadlines.now_ms >= self._by_ms:
            self._phase = _Phase.STOPPED
            effects.append(Stopped())
        return False
