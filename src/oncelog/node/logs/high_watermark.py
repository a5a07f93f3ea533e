"""High watermarks of the partitions that this broker leads, asked of their replicas (``core.replicas.leader``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.base.ids import BrokerId, Offset, TopicPartition
from oncelog.core.replicas.leader import LeaderReplicas

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog


class HighWatermarks:
    """Replicas by partition, led partitions only: a follower's high watermark is what its leader says."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self._replicas: dict[TopicPartition, LeaderReplicas] = {}

    def lead(self, partition: TopicPartition, replicas: LeaderReplicas) -> None:
        """Move the partition's high watermark by these replicas from now on."""
        self._replicas[partition] = replicas

    def resign(self, partition: TopicPartition) -> None:
        """Move it no more."""
        self._replicas.pop(partition, None)

    def has_followers(self, partition: TopicPartition) -> bool:
        """True if the partition is led here and copied by other brokers."""
        replicas = self._replicas.get(partition)
        return replicas is not None and replicas.has_followers

    def vouch(self, log: PartitionLog, end: Offset) -> bool:
        """Note that this broker vouches for all of ``log`` before ``end``; True if the high watermark has moved."""
        replicas = self._replicas.get(log.partition)
        return replicas is not None and log.set_high_watermark(replicas.advance(self._broker_id, end))

    def settle(self, log: PartitionLog) -> bool:
        """Move the high watermark of ``log`` by what its replicas have fetched; True if it has moved."""
        replicas = self._replicas.get(log.partition)
        return replicas is not None and log.set_high_watermark(replicas.settle())
