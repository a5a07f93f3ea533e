"""R4 and R6: what is below a high watermark that anybody was told is on the disk of every replica that may be elected.

These are the members of the in-sync set, by the tree at the moment, and those that left it when it became too small, as
the high watermark stands still then (``elr``, KIP-966). With ``log.sync.policy=commit`` a record counts from its sync
on, so that a power cut of all machines at once takes nothing that was acknowledged or read; with ``none`` disks are not
looked at. A replica whose disk was lost, or what it had not synced, does not count until it is registered anew and has
been no member: what it has asked for before may arrive after its end, and make it one.
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
    """High watermarks told, and the replicas that must have what is below. ``disks``: by broker id."""

    def __init__(
        self, journal: TreeJournal, disks: Mapping[BrokerId, MemoryFiles], report: Report, *, synced: bool = True
    ) -> None:
        self._journal = journal
        self._synced = synced
        self._ends = {broker: DurableEnds(files) for broker, files in disks.items()}
        self._report = report
        self._told: dict[tuple[TopicPartition, TopicId], int] = {}
        self._emptied: dict[BrokerId, set[TopicPartition]] = {}
        """Partitions of which a broker may count as a member, though it has lost what it had."""
        self._ended: dict[BrokerId, int] = {}
        """The epoch of the registration in which that happened."""
        journal.on_change.append(self._changed)

    def told(self, partition: TopicPartition, topic_id: TopicId, offset: int) -> None:
        key = partition, topic_id
        self._told[key] = max(self._told.get(key, 0), offset)

    def high(self, partition: TopicPartition) -> int:
        topic = self._journal.image.topics.get(partition.topic)
        return 0 if topic is None else self._told.get((partition, topic.topic_id), 0)

    def lost_disk(self, broker: BrokerId, files: MemoryFiles) -> None:
        self._ends[broker] = DurableEnds(files)
        self._lost(broker)

    def lost_power(self, broker: BrokerId) -> None:
        """A broker's machine is down; without syncs nobody knows what it has kept."""
        if not self._synced:
            self._lost(broker)

    def damaged(self, broker: BrokerId, partition: TopicPartition) -> None:
        """Records of a partition are damaged on a broker's disk: from when it notices, it lacks them."""
        self._emptied.setdefault(broker, set()).add(partition)
        self._ended[broker] = _epoch(self._journal.image, broker)

    def _lost(self, broker: BrokerId) -> None:
        self._emptied[broker] = {name for name, state in self._journal.partitions() if broker in state.replicas}
        self._ended[broker] = _epoch(self._journal.image, broker)

    def members(self, partition: TopicPartition) -> Sequence[BrokerId]:
        """The replicas of a partition that may be elected, and so have to have everything."""
        state = self._journal.image.partition(partition)
        if state is None:
            return ()
        return [member for member in (*state.isr, *state.elr) if partition not in self._emptied.get(member, ())]

    def check(self, partition: TopicPartition) -> None:
        told = self.high(partition)
        if not told or not self._synced:
            return
        for member in self.members(partition):
            ends = self._ends[member]
            end = ends.end(partition)
            if end < told and ends.end_before_changes(partition) < told:
                what = f"{told} was told, broker {member} has {end} on its disk"
                self._report(MISSING, f"{partition}: {what}: members {list(self.members(partition))}")

    def check_all(self) -> None:
        for partition, _ in list(self._journal.partitions()):
            self.check(partition)

    def _changed(self, before: ClusterImage, after: ClusterImage) -> None:
        for broker, partitions in self._emptied.items():
            if partitions and _epoch(after, broker) == self._ended[broker]:
                continue
            for partition in list(partitions):
                state = after.partition(partition)
                if state is None or broker not in (*state.isr, *state.elr):
                    partitions.discard(partition)


def _epoch(image: ClusterImage, broker: BrokerId) -> int:
    """The epoch of a broker's last registration."""
    record = image.broker_records.get(broker)
    return UNKNOWN_BROKER_EPOCH if record is None else record.epoch
