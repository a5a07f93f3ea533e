"""Damaged records in the log of a partition that this broker leads: found, given up, copied from another replica.

A follower takes no batch whose checksum is wrong: it asks again and again for what it was given. A leader whose
follower does so looks at what it hands out. If a batch is damaged it leaves the in-sync set and lets another member
lead (``withdrawal``), cuts its log before that batch when it follows, and copies the rest. Where nobody else may lead,
the partition stays as it is, and what is sound is served.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import Offset, TopicPartition
from oncelog.base.tree import CommitOutcome
from oncelog.base.units import MIB
from oncelog.core.controller.replicas.withdrawal import withdrawn
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.cluster.metadata_log import MetadataLog
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import Fatal, Outbox, Report
from oncelog.storage.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from oncelog.core.controller.image.model import PartitionImage
    from oncelog.handlers.broker.ports import LeaderLog
    from oncelog.storage.log.partition_log import PartitionLog

ASKED_AGAIN: Final = 3
"""Times that a follower asks again for what it was given before the leader looks at it."""
AGAIN_MS: Final = 1_000
"""The time after which a hand-over that was refused is tried again."""


class DamagedReplicas:
    """Finds damaged records in led partitions, gives these up, and has the records copied."""

    def __init__(self, metadata: Metadata, metadata_log: MetadataLog, deadlines: Deadlines, outbox: Outbox) -> None:
        self._metadata = metadata
        self._metadata_log = metadata_log
        self._deadlines = deadlines
        self._outbox = outbox
        self._damaged: dict[TopicPartition, Offset] = {}
        """The offset from which the log of a partition is copied anew, once another broker leads it."""

    def look(self, leader: LeaderLog, offset: Offset) -> None:
        """A follower does not get past ``offset``: give the partition up if what is there is damaged."""
        from oncelog.storage.log.read import first_damaged  # reads logs: a broker without any has no need of it

        if leader.partition in self._damaged:
            return
        max_bytes = max(MIB, int(self._metadata.config.get("replica.fetch.max.bytes")))
        try:
            damaged = first_damaged(leader.log, offset, max_bytes)
        except (OffsetOutOfRange, OSError):
            return  # gone meanwhile; a disk that fails is noticed elsewhere
        if damaged is not None:
            self._damaged[leader.partition] = damaged
            self._report(leader, damaged)
            self._hand_over(leader, 0)

    def follows(self, partition: TopicPartition, log: PartitionLog, image: PartitionImage) -> None:
        """Another broker leads the partition: give up what is damaged, before anything is copied behind it. A member of
        the in-sync set is counted on for it all the same: it does not."""
        damaged = self._damaged.pop(partition, None)
        if damaged is None or self._metadata.broker_id in image.isr:
            return
        from oncelog.storage.log.truncate import truncate_to

        try:
            truncate_to(log, damaged, self._deadlines.now_ms)
        except OSError as error:
            self._outbox.effects.append(Fatal(f"could not truncate {partition}: {error}"))

    def _hand_over(self, leader: LeaderLog, _now_ms: int) -> None:
        if leader.partition not in self._damaged:
            return
        operations = withdrawn(self._metadata.image, leader.partition, leader.leader_epoch)
        if operations:
            self._metadata_log.commit(operations, partial(self._handed_over, leader), gives_up=False)
        else:
            self._later(leader)

    def _handed_over(self, leader: LeaderLog, outcome: CommitOutcome) -> None:
        if outcome is not CommitOutcome.COMMITTED:
            self._later(leader)

    def _later(self, leader: LeaderLog) -> None:
        """Try again while this leadership lasts; somebody may be in sync by then."""
        image = self._metadata.image.partition(leader.partition)
        if image is not None and image.leader_epoch == leader.leader_epoch:
            self._deadlines.at(self._deadlines.now_ms + AGAIN_MS, partial(self._hand_over, leader))
        elif image is None or image.leader == self._metadata.broker_id:
            self._damaged.pop(leader.partition, None)

    def _report(self, leader: LeaderLog, damaged: Offset) -> None:
        text = f"records of {leader.partition} at offset {damaged} are damaged on this broker's disk"
        others = [member for member in leader.replicas.in_sync if member != self._metadata.broker_id]
        then = "another one in sync is to lead, and they are copied from it" if others else "no other one is in sync"
        self._outbox.effects.append(Report("error", f"{text}: {then}"))
