"""The log of a partition: what a handler is given when it asks for one that this broker leads (KIP-320), or, only to
read from, for one that it copies (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.base.ids import LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from oncelog.core.replicas.leader import LeaderReplicas
    from oncelog.storage.log.partition_log import PartitionLog


class LeaderLog:
    """A partition's log with the epoch in which this broker leads it and its replicas as their leader sees them.

    Held only within one step of the loop: after a wait it has to be asked for again, for leadership may have moved.
    """

    __slots__ = ("leader_epoch", "log", "partition", "replicas")

    def __init__(
        self, partition: TopicPartition, log: PartitionLog, leader_epoch: LeaderEpoch, replicas: LeaderReplicas
    ) -> None:
        self.partition = partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.replicas = replicas

    @property
    def appended_end(self) -> Offset | None:
        """The log end offset while records before it wait for this broker's disk and cannot be read; None as a rule,
        and where other replicas have to have them too, or to come into sync first: acks=1 promises nothing about
        those."""
        log = self.log
        if log.high_watermark >= log.log_end_offset or self.replicas.in_sync_count > 1 or not self.has_enough_in_sync():
            return None
        return log.log_end_offset

    def has_reached_its_epoch(self) -> bool:
        """True once the high watermark has passed the start of the leader's epoch. Until then the end that readers may
        see can be lower than what the leader before has told (KIP-207)."""
        return self.replicas.high_watermark >= self.replicas.epoch_start

    def has_enough_in_sync(self) -> bool:
        """True if acks=all may be acknowledged (``min.insync.replicas``)."""
        return self.replicas.has_enough_in_sync()


class FollowerLog:
    """A partition's log that this broker copies, in the leader epoch in which it does: only ever read, up to the high
    watermark. That is what its leader told last: all before it is committed, and the leader may know more.

    Held only within one step of the loop.
    """

    __slots__ = ("leader_epoch", "log")

    def __init__(self, log: PartitionLog, leader_epoch: LeaderEpoch) -> None:
        self.log = log
        self.leader_epoch = leader_epoch

    @property
    def appended_end(self) -> None:
        """None: what is on its way to the disk here is no concern of readers."""
        return None
