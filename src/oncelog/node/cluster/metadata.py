"""The cluster as this broker knows it: the image of committed metadata, and the configuration derived from it.

Only committed changes, in commit order, advance the image; see ``metadata_log``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.base.units import SECOND_MS
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.topic import TopicConfig, TopicConfigs
from oncelog.core.controller.image.cluster_image import Brokers, ClusterImage, ImageDelta
from oncelog.core.controller.image.model import TopicImage
from oncelog.core.quotas.rates import Windows
from oncelog.core.quotas.replication import ReplicationQuota, is_throttled_replica
from oncelog.node.cluster.client_quotas import ClientQuotas
from oncelog.ports import Entropy

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


class ReplicationThrottle:
    """The replication throttle of one side (KIP-73): the leader's limits what followers fetch here, the follower's what
    this broker fetches. Implements ``handlers.broker.limits.ReplicationLimit``.
    """

    def __init__(self, cluster: Metadata, rate_key: str, replicas_key: str) -> None:
        config = cluster.config
        windows = Windows(
            config.get("replication.quota.window.num"), config.get("replication.quota.window.size.seconds") * SECOND_MS
        )
        self._cluster = cluster
        self._rate_key = rate_key
        self._replicas_key = replicas_key
        self.quota = ReplicationQuota(windows)

    @property
    def limit(self) -> int | None:
        """Bytes per second; None: no limit."""
        limit: int | None = self._cluster.config.get(self._rate_key)
        return limit

    def holds_back(self, partition: TopicPartition, now_ms: int) -> bool:
        limit = self.limit
        return limit is not None and self.quota.is_exceeded(limit, now_ms) and self._names(partition)

    def record(self, partition: TopicPartition, size_bytes: int, now_ms: int) -> None:
        if size_bytes and self.limit is not None and self._names(partition):
            self.quota.record(size_bytes, now_ms)

    def _names(self, partition: TopicPartition) -> bool:
        topic = self._cluster.image.topics.get(partition.topic)
        replicas = "" if topic is None else topic.configs.get(self._replicas_key, "")
        return is_throttled_replica(replicas, partition.partition, self._cluster.broker_id)


CHECK_AGAIN_MS: Final = 100


class Metadata:
    """Implements ``handlers.broker.ports.ClusterView``."""

    def __init__(
        self, broker_id: BrokerId, image: ClusterImage, position: int, config: BrokerConfig, entropy: Entropy
    ) -> None:
        self.broker_id = broker_id
        self.image = image
        self.position = position
        """Position of the image's last change in commit order."""
        self.config = config.with_dynamic(*image.dynamic_broker_configs(broker_id))
        self.quotas = ClientQuotas(self.config, image)
        self.failed_brokers: frozenset[BrokerId] = frozenset()
        """See ``handlers.broker.ports.ClusterView``; maintained by ``node.cluster.failed_brokers``."""
        self.departed_brokers: Brokers = MappingProxyType({})
        """Likewise."""
        self.requests_postponed = False
        """True while this broker does not yet know what happened during a pause (``node.requests.pause_recovery``).
        Meanwhile no client or replica times out; time-outs are checked again after ``CHECK_AGAIN_MS``."""
        self.leader_throttle = ReplicationThrottle(self, LEADER_RATE, LEADER_REPLICAS)
        self.follower_throttle = ReplicationThrottle(self, FOLLOWER_RATE, FOLLOWER_REPLICAS)
        self._entropy = entropy
        self._topic_configs = TopicConfigs(self.config)

    @property
    def cluster_id(self) -> str:
        """The cluster's id: 22 characters."""
        return self.image.cluster_id or ""

    @property
    def broker_epoch(self) -> int:
        broker = self.image.brokers.get(self.broker_id)
        return -1 if broker is None else broker.epoch

    def random_bytes(self, size: int) -> bytes:
        """Random bytes for topic ids and member ids, from the injected entropy."""
        return self._entropy.token(size)

    def topic_config(self, topic: TopicImage) -> TopicConfig:
        """A topic's configuration: the topic's own values, then the broker's."""
        return self._topic_configs.of(topic.configs)

    def apply_change(self, delta: ImageDelta) -> None:
        self.image = delta.image
        if delta.client_entities:
            self.quotas.follow(delta.image, delta.client_entities)
        if delta.broker_configs:
            self.config = self.config.with_dynamic(*self.image.dynamic_broker_configs(self.broker_id))
            self._topic_configs = TopicConfigs(self.config)
