"""Throttles of replication on this broker (KIP-73), as the image and the configuration set them, for one side of it.

The leader's side holds back what followers fetch here, the follower's what this broker fetches. Without a rate nothing
is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from oncelog.base.units import SECOND_MS
from oncelog.core.quotas.rates import Windows
from oncelog.core.quotas.replication import ReplicationQuota, is_throttled_replica

if TYPE_CHECKING:
    from oncelog.base.ids import BrokerId, TopicPartition
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.core.controller.image.cluster_image import ClusterImage

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


class Cluster(Protocol):
    """The cluster as of the last change."""

    @property
    def broker_id(self) -> BrokerId:
        """The id of this broker."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration."""

    @property
    def image(self) -> ClusterImage:
        """Topics and their configs."""


class ReplicationThrottle:
    """One side; implements ``handlers.broker.limits.ReplicationLimit``."""

    def __init__(self, cluster: Cluster, rate_key: str, replicas_key: str) -> None:
        config = cluster.config
        windows = Windows(
            config.get("replication.quota.window.num"),
            config.get("replication.quota.window.size.seconds") * SECOND_MS,
        )
        self._cluster = cluster
        self._rate_key = rate_key
        self._replicas_key = replicas_key
        self.quota = ReplicationQuota(windows)

    @property
    def limit(self) -> int | None:
        """Bytes a second; None: none is set."""
        limit: int | None = self._cluster.config.get(self._rate_key)
        return limit

    def holds_back(self, partition: TopicPartition, now_ms: int) -> bool:
        """True while a replica that is not in sync has to wait."""
        limit = self.limit
        return limit is not None and self.quota.is_exceeded(limit, now_ms) and self._names(partition)

    def record(self, partition: TopicPartition, size_bytes: int, now_ms: int) -> None:
        if size_bytes and self.limit is not None and self._names(partition):
            self.quota.record(size_bytes, now_ms)

    def _names(self, partition: TopicPartition) -> bool:
        topic = self._cluster.image.topics.get(partition.topic)
        replicas = "" if topic is None else topic.configs.get(self._replicas_key, "")
        return is_throttled_replica(replicas, partition.partition, self._cluster.broker_id)
