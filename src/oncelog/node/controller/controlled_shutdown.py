"""Controlled shutdown: a stopping broker first has its leaderships moved away, so that no request waits for an
election.

Its registration announces the shutdown; the controller elects other leaders and removes it from in-sync sets that have
other members. It keeps serving until then. It waits no longer than its share of the time, and not for partitions that
no other broker can lead.
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

# Part of the shutdown time spent waiting here; the rest is for requests in flight and the disk.
_SHARE: Final = 0.6


class _State(Enum):
    SERVING = "serving"
    # The broker has announced that it stops, or is about to.
    ANNOUNCING = "asked"
    DONE = "done"


class ControlledShutdown:
    def __init__(self, metadata: Metadata, commits: MetadataLog, deadlines: Deadlines) -> None:
        self._metadata = metadata
        self._commits = commits
        self._deadlines = deadlines
        self._state = _State.SERVING
        self._is_announced = False

    @property
    def is_done(self) -> bool:
        return self._state is _State.DONE

    def begin(self, deadline_ms: int) -> None:
        """Announce the shutdown; give up in time for the rest of it."""
        if self._state is not _State.SERVING:
            return
        self._state = _State.ANNOUNCING
        if not self._metadata.config.get("controlled.shutdown.enable"):
            self._state = _State.DONE
            return
        now_ms = self._deadlines.now_ms
        self._deadlines.at(now_ms + int((deadline_ms - now_ms) * _SHARE), self._give_up)
        self._announce()

    def follow(self) -> None:
        """Check whether a change of the image was the last one awaited."""
        waits = self._state is _State.ANNOUNCING and self._is_announced
        if waits and may_stop(self._metadata.image, self._metadata.broker_id, self._is_unclean):
            self._state = _State.DONE

    def _announce(self) -> None:
        operations = begin_controlled_shutdown(self._metadata.image, self._metadata.broker_id, self._deadlines.now_ms)
        if operations:
            self._commits.commit(operations, self._announced)
        else:
            self._state = _State.DONE

    def _announced(self, outcome: CommitOutcome) -> None:
        if outcome is CommitOutcome.COMMITTED:
            self._is_announced = True
            self.follow()
        elif outcome is CommitOutcome.CONFLICT:
            self._announce()
        else:
            self._state = _State.DONE

    def _give_up(self, _now_ms: int) -> None:
        self._state = _State.DONE

    def _is_unclean(self, topic: TopicImage) -> bool:
        return self._metadata.topic_config(topic).unclean_leader_election
