"""Damaged records in a led partition's log: detected, then replaced by copies from another replica.

A follower rejects a batch with a wrong checksum and fetches it again and again, so its leader checks the records there.
If they are damaged, the leader leaves the in-sync set and hands the leadership to another member (``withdrawal``); as a
follower it cuts its log before the damaged batch and copies the rest. If no other replica may lead, it stays leader and
serves the undamaged records.
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

SUSPICIOUS_REPEATS: Final = 3
"""Repeated fetches of an offset after which the leader checks its records."""
RETRY_MS: Final = 1_000
"""Pause before a refused hand-over is retried."""


class DamagedReplicas:
    def __init__(self, metadata: Metadata, metadata_log: MetadataLog, deadlines: Deadlines, outbox: Outbox) -> None:
        self._metadata = metadata
        self._metadata_log = metadata_log
        self._deadlines = deadlines
        self._outbox = outbox
        # The offset from which a partition's log is to be copied, once another broker leads.
        self._damaged: dict[TopicPartition, Offset] = {}

    def check(self, leader: LeaderLog, offset: Offset) -> None:
        """A follower does not get past ``offset``: hand the partition over if its records are damaged there."""
        from oncelog.storage.log.read import first_damaged  # imported late: a broker without logs does not need it

        if leader.partition in self._damaged:
            return
        max_bytes = max(MIB, int(self._metadata.config.get("replica.fetch.max.bytes")))
        try:
            damaged = first_damaged(leader.log, offset, max_bytes)
        except (OffsetOutOfRange, OSError):
            return  # the records are gone; a failing disk is noticed elsewhere
        if damaged is not None:
            self._damaged[leader.partition] = damaged
            self._report(leader, damaged)
            self._hand_over(leader, 0)

    def follows(self, partition: TopicPartition, log: PartitionLog, image: PartitionImage) -> None:
        """Another broker leads: cut the log before the damaged records, before anything is appended after them."""
        damaged = self._damaged.pop(partition, None)
        # An in-sync member must keep its log, damaged or not: the cluster counts on its records.
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
            self._retry_later(leader)

    def _handed_over(self, leader: LeaderLog, outcome: CommitOutcome) -> None:
        if outcome is not CommitOutcome.COMMITTED:
            self._retry_later(leader)

    def _retry_later(self, leader: LeaderLog) -> None:
        """Retry while this leadership lasts: another replica may be in sync by then."""
        image = self._metadata.image.partition(leader.partition)
        if image is not None and image.leader_epoch == leader.leader_epoch:
            self._deadlines.at(self._deadlines.now_ms + RETRY_MS, partial(self._hand_over, leader))
        elif image is None or image.leader == self._metadata.broker_id:
            self._damaged.pop(leader.partition, None)

    def _report(self, leader: LeaderLog, damaged: Offset) -> None:
        text = f"records of {leader.partition} at offset {damaged} are damaged on this broker's disk"
        others = [member for member in leader.replicas.in_sync if member != self._metadata.broker_id]
        consequence = (
            "another replica in sync will lead, and they are copied from it"
            if others
            else "no other replica is in sync"
        )
        self._outbox.effects.append(Report("error", f"{text}: {consequence}"))
