"""R4 and R6: records below a high watermark that a client has seen are on the disk of every electable replica.

Electable are the in-sync set in the tree, and the members that left it when it fell below the minimum (``elr``,
KIP-966), which stops the high watermark. With ``log.sync.policy=commit`` a record counts once it is synced; with
``none`` disks are not compared.

A replica that lost its disk, or unsynced records, is exempt until it has registered again and the tree lists it in
neither set: a fetch from before the loss may still make it a member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.base.ids import BrokerId, TopicId, TopicPartition
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import UNKNOWN_BROKER_EPOCH
from oncelog.sim.checkers.cluster.durable_ends import DurableEnds
from oncelog.sim.checkers.cluster.tree_journal import Report, TreeJournal
from oncelog.sim.virtual.files import MemoryFiles

MISSING: Final = "R6 not on the disk of every member"


class InSyncReplicas:
    """High watermarks seen by clients, and the replicas that must hold the records below."""

    def __init__(
        self, journal: TreeJournal, disks: Mapping[BrokerId, MemoryFiles], report: Report, *, synced: bool = True
    ) -> None:
        self._journal = journal
        self._synced = synced
        self._ends = {broker: DurableEnds(files) for broker, files in disks.items()}
        self._report = report
        self._told: dict[tuple[TopicPartition, TopicId], int] = {}
        # Partitions that each broker has lost, though the in-sync set may still list it.
        self._emptied: dict[BrokerId, set[TopicPartition]] = {}
        # The registration epoch in which each broker lost them.
        self._ended: dict[BrokerId, int] = {}
        journal.on_change.append(self._changed)

    def record_watermark(self, partition: TopicPartition, topic_id: TopicId, offset: int) -> None:
        key = partition, topic_id
        self._told[key] = max(self._told.get(key, 0), offset)

    def high_watermark(self, partition: TopicPartition) -> int:
        topic = self._journal.image.topics.get(partition.topic)
        return 0 if topic is None else self._told.get((partition, topic.topic_id), 0)

    def lost_disk(self, broker: BrokerId, files: MemoryFiles) -> None:
        self._ends[broker] = DurableEnds(files)
        self._lost(broker)

    def lost_power(self, broker: BrokerId) -> None:
        # A broker's machine is down. Without syncs, the surviving records are unknown.
        if not self._synced:
            self._lost(broker)

    def damaged(self, broker: BrokerId, partition: TopicPartition) -> None:
        # A broker's records of a partition are damaged: it lacks them from the moment it notices.
        self._emptied.setdefault(broker, set()).add(partition)
        self._ended[broker] = _epoch(self._journal.image, broker)

    def _lost(self, broker: BrokerId) -> None:
        self._emptied[broker] = {name for name, state in self._journal.partitions() if broker in state.replicas}
        self._ended[broker] = _epoch(self._journal.image, broker)

    def members(self, partition: TopicPartition) -> Sequence[BrokerId]:
        state = self._journal.image.partition(partition)
        if state is None:
            return ()
        return [member for member in (*state.isr, *state.elr) if partition not in self._emptied.get(member, ())]

    def check(self, partition: TopicPartition) -> None:
        high_watermark = self.high_watermark(partition)
        if not high_watermark or not self._synced:
            return
        for member in self.members(partition):
            ends = self._ends[member]
            end = ends.end(partition)
            if end < high_watermark and ends.end_before_changes(partition) < high_watermark:
                detail = f"{high_watermark} was shown, broker {member} has {end} on its disk"
                self._report(MISSING, f"{partition}: {detail}: members {list(self.members(partition))}")

    def check_all(self) -> None:
        for partition, _ in list(self._journal.partitions()):
            self.check(partition)

    def _changed(self, before: ClusterImage, after: ClusterImage) -> None:
        for broker, partitions in self._emptied.items():
            if partitions and _epoch(after, broker) == self._ended[broker]:
                continue
            for partition in list(partitions):
                # The loss ends with a new registration in which the broker is no member yet.
                state = after.partition(partition)
                if state is None or broker not in (*state.isr, *state.elr):
                    partitions.discard(partition)


def _epoch(image: ClusterImage, broker: BrokerId) -> int:
    record = image.broker_records.get(broker)
    return UNKNOWN_BROKER_EPOCH if record is None else record.epoch
