"""R14: what DeleteRecords has removed is on no member of the in-sync set that lives, and stays away.

The answer waits for the replicas that live: a leader that is elected later would show the records again. Each of them
has written down where its log begins before it tells, so it begins there after a restart, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.ids import BrokerId, TopicId, TopicPartition
from oncelog.sim.checkers.cluster.tree_journal import Report

STILL_THERE: Final = "R14 deleted records are there"


class LogStarts:
    """The offsets up to which records were deleted, and the replicas whose logs begin there or later."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._deleted: dict[BrokerId, dict[tuple[TopicPartition, TopicId], int]] = {}

    def deleted(
        self, partition: TopicPartition, topic_id: TopicId, before: int, starts: Mapping[BrokerId, int]
    ) -> None:
        """DeleteRecords was answered: nothing before an offset is there. ``starts``: of the logs of live members."""
        for broker, start in starts.items():
            if start < before:
                self._report(STILL_THERE, f"{partition} was deleted up to {before}, broker {broker} begins at {start}")
            known = self._deleted.setdefault(broker, {})
            known[partition, topic_id] = max(before, known.get((partition, topic_id), 0))

    def lost_disk(self, broker: BrokerId) -> None:
        """A broker has an empty disk now."""
        self._deleted.pop(broker, None)

    def started(self, broker: BrokerId, starts: Mapping[tuple[TopicPartition, TopicId], int]) -> None:
        """A broker has started. ``starts``: of the logs of which it is a member."""
        for key, before in self._deleted.get(broker, {}).items():
            start = starts.get(key, before)
            if start < before:
                what = f"broker {broker} begins at {start} after its start"
                self._report(STILL_THERE, f"{key[0]} was deleted up to {before}, {what}")
