"""Controlled shutdown: a broker that stops has its leaderships moved away first, so that nobody waits for an election.

It says so in its registration; the controller elects others and takes it out of the in-sync sets where others remain.
Until then it serves on. It does not wait for longer than it is given, nor where nobody could take over.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from oncelog.base.tree import CommitOutcome
from oncelog.core.controller.replicas.failover import begin_controlled_shutdown, may_stop

if TYPE_CHECKING:
    from oncelog.core.controller.image.model import TopicImage
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.cluster.metadata_log import MetadataLog
    from oncelog.node.kernel.deadlines import Deadlines

_SHARE: Final = 0.6
"""Share of the time until the broker has to be gone; the rest is for what is in flight, and the disk."""


class _State(Enum):
    SERVING = "serving"
    ASKED = "asked"
    """True once the broker has said that it stops, or is about to."""
    DONE = "done"


class ControlledShutdown:
    """The end of a broker that asks the controller to move its leaderships away, and waits for it."""

    def __init__(self, metadata: Metadata, commits: MetadataLog, deadlines: Deadlines) -> None:
        self._metadata = metadata
        self._commits = commits
        self._deadlines = deadlines
        self._state = _State.SERVING
        self._said = False

    @property
    def is_done(self) -> bool:
        """True once the broker may stop serving."""
        return self._state is _State.DONE

    def begin(self, deadline_ms: int) -> None:
        """Ask that leaderships be moved away; give up in time for the rest of the shutdown."""
        if self._state is not _State.SERVING:
            return
        self._state = _State.ASKED
        if not self._metadata.config.get("controlled.shutdown.enable"):
            self._state = _State.DONE
            return
        now_ms = self._deadlines.now_ms
        self._deadlines.at(now_ms + int((deadline_ms - now_ms) * _SHARE), self._give_up)
        self._ask()

    def follow(self) -> None:
        """Look whether a change of the image was the last one waited for."""
        waits = self._state is _State.ASKED and self._said
        if waits and may_stop(self._metadata.image, self._metadata.broker_id, self._is_unclean):
            self._state = _State.DONE

    def _ask(self) -> None:
        operations = begin_controlled_shutdown(self._metadata.image, self._metadata.broker_id, self._deadlines.now_ms)
        if operations:
            self._commits.commit(operations, self._asked)
        else:
            self._state = _State.DONE

    def _asked(self, outcome: CommitOutcome) -> None:
        if outcome is CommitOutcome.COMMITTED:
            self._said = True
            self.follow()
        elif outcome is CommitOutcome.CONFLICT:
            self._ask()
        else:
            self._state = _State.DONE

    def _give_up(self, _now_ms: int) -> None:
        self._state = _State.DONE

    def _is_unclean(self, topic: TopicImage) -> bool:
        return self._metadata.topic_config(topic).unclean_leader_election
