"""In-sync sets of led partitions: which followers join, which leave, and the commits of these changes (KIP-497).

A follower joins with the fetch that shows it has caught up; a check twice per ``replica.lag.time.max.ms`` finds those
that lag. A change is a conditional commit of the partition's state, one at a time per partition, and takes effect with
the image. Until its outcome is known, it counts as made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.ids import BrokerId, Offset, TopicPartition
from oncelog.base.tree import CommitOutcome
from oncelog.core.controller.replicas.replica_sets import change_in_sync, may_be_in_sync
from oncelog.node.cluster.metadata import CHECK_AGAIN_MS, Metadata
from oncelog.node.cluster.metadata_log import MetadataLog
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.logs.group_commit import GroupCommit

if TYPE_CHECKING:
    from oncelog.handlers.broker.ports import LeaderLog


class InSyncSets:
    def __init__(
        self, metadata: Metadata, metadata_log: MetadataLog, deadlines: Deadlines, group_commit: GroupCommit
    ) -> None:
        self._metadata = metadata
        self._metadata_log = metadata_log
        self._deadlines = deadlines
        self._group_commit = group_commit
        # Led partitions with followers.
        self._led: dict[TopicPartition, LeaderLog] = {}
        self._is_scheduled = False
        self.shrinks = 0
        self.expansions = 0

    def lead(self, leader: LeaderLog) -> None:
        if leader.replicas.has_followers:
            self._led[leader.partition] = leader
            self._schedule_check()
        else:
            self._led.pop(leader.partition, None)

    def resign(self, partition: TopicPartition) -> None:
        self._led.pop(partition, None)

    def fetched(self, leader: LeaderLog, replica: BrokerId, broker_epoch: int, offset: Offset) -> None:
        """A follower fetched from ``offset``: it has all earlier records, as durable as the sync policy promises."""
        replicas, log, now_ms = leader.replicas, leader.log, self._deadlines.now_ms
        follower = replicas.follower(replica)
        if follower is None:
            return
        before = (follower.end, follower.is_joining)
        follower.fetched(offset, log.log_end_offset, broker_epoch, now_ms)
        is_member = replica in replicas.in_sync
        eligible = not is_member and may_be_in_sync(self._metadata.image, replica, broker_epoch)
        follower.is_joining = eligible and follower.is_caught_up(log.log_end_offset, now_ms, self._lag_ms())
        if (follower.end, follower.is_joining) != before:  # most fetches repeat the last position
            self._group_commit.replicas_changed(log)
        if eligible and not replicas.has_proposed and replicas.may_join(replica):
            self._propose(leader, (*replicas.in_sync, replica))

    def under_replicated_count(self) -> int:
        """Led partitions whose in-sync set lacks a replica (Kafka's UnderReplicatedPartitions)."""
        return sum(len(leader.replicas.in_sync) < len(leader.replicas.assigned) for leader in self._led.values())

    def under_min_in_sync_count(self) -> int:
        """Led partitions that refuse acks=all (Kafka's UnderMinIsrPartitionCount)."""
        return sum(not leader.replicas.has_enough_in_sync() for leader in self._led.values())

    def at_min_in_sync_count(self) -> int:
        """Led partitions that would refuse acks=all with one replica less (Kafka's AtMinIsrPartitionCount)."""
        sets = (leader.replicas for leader in self._led.values())
        return sum(len(replicas.in_sync) == replicas.min_in_sync() for replicas in sets)

    def _lag_ms(self) -> int:
        return int(self._metadata.config.get("replica.lag.time.max.ms"))

    def _schedule_check(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._deadlines.at(self._deadlines.now_ms + max(1, self._lag_ms() // 2), self._check_lag)

    def _check_lag(self, now_ms: int) -> None:
        # Followers whose fetches are postponed must not count as lagging.
        if self._metadata.requests_postponed:
            self._deadlines.at(now_ms + CHECK_AGAIN_MS, self._check_lag)
            return
        self._is_scheduled = False
        lag_ms = self._lag_ms()
        for leader in list(self._led.values()):
            replicas, end = leader.replicas, leader.log.log_end_offset
            if replicas.drop_stalled_joiners(end, now_ms, lag_ms):
                self._group_commit.replicas_changed(leader.log)
            if replicas.has_proposed:
                continue
            lagging = replicas.lagging(end, now_ms, lag_ms)
            if lagging:
                self._propose(leader, [member for member in replicas.in_sync if member not in lagging])
        if self._led:
            self._schedule_check()

    def _propose(self, leader: LeaderLog, in_sync: Sequence[BrokerId]) -> None:
        operations = change_in_sync(self._metadata.image, leader.partition, in_sync, leader.leader_epoch)
        if operations is None:
            return  # the image has a newer leadership, which is applied later in this event
        is_expansion = len(in_sync) > len(leader.replicas.in_sync)
        leader.replicas.propose(in_sync)
        settled = partial(self._settled, leader, is_expansion=is_expansion)
        self._metadata_log.commit(operations, settled, gives_up=False)

    def _settled(self, leader: LeaderLog, outcome: CommitOutcome, *, is_expansion: bool) -> None:
        if outcome is CommitOutcome.COMMITTED:
            self.expansions += is_expansion
            self.shrinks += not is_expansion
        leader.replicas.withdraw()
        # A committed change is already in the image. After a refusal the next fetch or check proposes again.
        if self._led.get(leader.partition) is leader:
            self._group_commit.replicas_changed(leader.log)
