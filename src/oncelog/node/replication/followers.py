"""The partitions that this broker copies, by leader.

A fetcher is imported for the first leader that is followed: a single broker follows none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.base.ids import BrokerId, LeaderEpoch, TopicPartition
from oncelog.node.replication.services import ReplicationServices

if TYPE_CHECKING:
    from oncelog.node.replication.fetcher import LeaderFetcher
    from oncelog.storage.log.partition_log import PartitionLog


class Followers:
    """One fetcher for each leader; see ``fetcher``."""

    def __init__(self, services: ReplicationServices) -> None:
        self._services = services
        self._fetchers: dict[BrokerId, LeaderFetcher] = {}
        self._leaders: dict[TopicPartition, BrokerId] = {}

    def follow(self, partition: TopicPartition, log: PartitionLog, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        if self._leaders.get(partition) not in (None, leader):
            self.stop(partition)
        self._leaders[partition] = leader
        self._fetcher(leader).follow(partition, log, leader_epoch)

    def _fetcher(self, leader: BrokerId) -> LeaderFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            from oncelog.node.replication.fetcher import LeaderFetcher

            fetcher = self._fetchers[leader] = LeaderFetcher(leader, self._services)
        return fetcher

    def stop(self, partition: TopicPartition) -> None:
        leader = self._leaders.pop(partition, None)
        if leader is not None:
            self._fetchers[leader].stop(partition)

    def leader_of(self, partition: TopicPartition) -> BrokerId | None:
        return self._leaders.get(partition)

    def fetch(self) -> None:
        """Send the fetches that are due; called at the end of each event."""
        for fetcher in self._fetchers.values():
            fetcher.fetch()

    def max_lag(self) -> int:
        """The most records that a copy lacks of what its leader last reported (Kafka's MaxLag)."""
        return max((fetcher.max_lag() for fetcher in self._fetchers.values()), default=0)
