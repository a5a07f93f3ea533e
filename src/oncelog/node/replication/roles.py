"""Leads each partition in one epoch, copies it from its leader, or neither, as the image says.

After a restart a broker leads only by elections since its registration: it may have lost records, and would write
others under the same epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.base.ids import NO_BROKER, BrokerId, Offset, TopicPartition
from oncelog.core.controller.image.model import PartitionImage
from oncelog.core.replicas.leader import UNKNOWN_EPOCH, LeaderReplicas
from oncelog.handlers.broker.ports import LeaderLog
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.logs.delayed_fetches import DelayedFetches
from oncelog.node.logs.group_commit import GroupCommit
from oncelog.node.replication.damaged_replicas import SUSPICIOUS_REPEATS, DamagedReplicas
from oncelog.node.replication.followers import Followers
from oncelog.node.replication.in_sync_sets import InSyncSets

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog


class ReplicaRoles:
    """Leads and follows partitions as the image says. ``leaders`` are those led here."""

    def __init__(
        self,
        metadata: Metadata,
        group_commit: GroupCommit,
        delayed_fetches: DelayedFetches,
        deadlines: Deadlines,
        in_sync_sets: InSyncSets,
        followers: Followers,
        damaged: DamagedReplicas,
    ) -> None:
        self.leaders: dict[TopicPartition, LeaderLog] = {}
        self._metadata = metadata
        self._group_commit = group_commit
        self._delayed_fetches = delayed_fetches
        self._deadlines = deadlines
        self._in_sync_sets = in_sync_sets
        self._followers = followers
        self._damaged = damaged

    def leads(self, image: PartitionImage) -> bool:
        """True if this broker leads the partition: elected since it registered, or the only replica."""
        if image.leader != self._metadata.broker_id:
            return False
        return len(image.replicas) == 1 or image.leader_broker_epoch in (UNKNOWN_EPOCH, self._metadata.broker_epoch)

    def take(self, partition: TopicPartition, log: PartitionLog, image: PartitionImage) -> None:
        """Begin or continue the role that the image gives this replica."""
        if self.leads(image):
            self._followers.stop(partition)
            self._lead(partition, log, image)
            return
        if partition in self.leaders:
            self._resign(partition)
            self._damaged.follows(partition, log, image)
        if image.leader not in (NO_BROKER, self._metadata.broker_id):
            self._followers.follow(partition, log, image.leader, image.leader_epoch)
        else:
            self._followers.stop(partition)

    def give_up(self, partition: TopicPartition) -> None:
        """End the replica's role: it is removed. Waiting tasks wake when its log is dropped."""
        self.leaders.pop(partition, None)
        self._in_sync_sets.resign(partition)
        self._followers.stop(partition)

    def _lead(self, partition: TopicPartition, log: PartitionLog, image: PartitionImage) -> None:
        leader = self.leaders.get(partition)
        if leader is not None and leader.leader_epoch == image.leader_epoch:
            leader.replicas.change_in_sync(image.replicas, image.isr, self._deadlines.now_ms)
            self._delayed_fetches.changed(partition)
        else:
            leader = self._begin_to_lead(partition, log, image)
        self._in_sync_sets.lead(leader)
        self._group_commit.replicas_changed(log)

    def _begin_to_lead(self, partition: TopicPartition, log: PartitionLog, image: PartitionImage) -> LeaderLog:
        has_followers = len(image.replicas) > 1
        if has_followers:
            log.begin_epoch(image.leader_epoch)
        replicas = LeaderReplicas(
            image.leader,
            image.replicas,
            image.isr,
            log.high_watermark,
            # Followers join only beyond the start of the epoch; a single replica has nothing to wait for.
            epoch_start=log.log_end_offset if has_followers else log.high_watermark,
            min_insync_replicas=log.config.min_insync_replicas,
            now_ms=self._deadlines.now_ms,
        )
        leader = self.leaders[partition] = LeaderLog(partition, log, image.leader_epoch, replicas)
        self._group_commit.lead(partition, replicas)
        if not has_followers:
            self._group_commit.commit_durable(log)
        if has_followers or log.high_watermark < log.log_end_offset:
            self._group_commit.appended(log)  # commits the existing log without waiting for a new record
        return leader

    def _resign(self, partition: TopicPartition) -> None:
        self.leaders.pop(partition, None)
        self._in_sync_sets.resign(partition)
        self._group_commit.resign(partition)
        self._delayed_fetches.changed(partition)

    def config_changed(self, log: PartitionLog) -> None:
        """Apply a changed ``min.insync.replicas`` to a led partition."""
        leader = self.leaders.get(log.partition)
        if leader is not None and leader.replicas.min_insync_replicas != log.config.min_insync_replicas:
            leader.replicas.min_insync_replicas = log.config.min_insync_replicas
            self._group_commit.replicas_changed(log)

    def replica_fetched(
        self, leader_log: LeaderLog, replica: BrokerId, broker_epoch: int, offset: Offset, log_start_offset: Offset
    ) -> None:
        if leader_log.replicas.record_log_start(replica, log_start_offset):
            self._delayed_fetches.changed(leader_log.partition)
        self._in_sync_sets.fetched(leader_log, replica, broker_epoch, offset)
        follower = leader_log.replicas.follower(replica)
        if follower is not None and follower.repeated_fetches == SUSPICIOUS_REPEATS:
            self._damaged.check(leader_log, offset)

    def report_damage(self, partition: TopicPartition, offset: Offset) -> None:
        """Hand over a partition whose records from ``offset`` on cannot be read here, if another replica may lead."""
        leader_log = self.leaders.get(partition)
        if leader_log is not None:
            self._damaged.check(leader_log, offset)
