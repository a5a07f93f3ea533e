"""The cluster as this broker knows it: the image of committed metadata, and the configuration that it implies.

Nothing but committed changes, in the order of their commits, moves the image on; see ``metadata_log``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from oncelog.base.ids import BrokerId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.topic import TopicConfig, TopicConfigs
from oncelog.core.controller.image.cluster_image import Brokers, ClusterImage, ImageDelta
from oncelog.core.controller.image.model import TopicImage
from oncelog.node.cluster.client_quotas import ClientQuotas
from oncelog.node.cluster.replication_throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ReplicationThrottle,
)
from oncelog.ports import Entropy

CHECK_AGAIN_MS: Final = 100


class Metadata:
    """Implements ``handlers.broker.ports.ClusterView``."""

    def __init__(
        self, broker_id: BrokerId, image: ClusterImage, position: int, config: BrokerConfig, entropy: Entropy
    ) -> None:
        self.broker_id = broker_id
        self.image = image
        self.position = position
        """Position of the last change that the image has, in the order of all commits."""
        self.config = config.with_dynamic(*image.dynamic_broker_configs(broker_id))
        self.quotas = ClientQuotas(self.config, image)
        self.lost_brokers: frozenset[BrokerId] = frozenset()
        """See ``handlers.broker.ports.ClusterView``; kept by ``node.cluster.lost_brokers``."""
        self.departed_brokers: Brokers = MappingProxyType({})
        """The same."""
        self.requests_wait = False
        """True while this broker has yet to find out what it slept through (``node.requests.standstill``). Time-outs of
        clients and replicas have no effect meanwhile; they are checked again after ``CHECK_AGAIN_MS``."""
        self.leader_throttle = ReplicationThrottle(self, LEADER_RATE, LEADER_REPLICAS)
        self.follower_throttle = ReplicationThrottle(self, FOLLOWER_RATE, FOLLOWER_REPLICAS)
        self._entropy = entropy
        self._topic_configs = TopicConfigs(self.config)

    @property
    def cluster_id(self) -> str:
        """The cluster's id, 22 characters."""
        return self.image.cluster_id or ""

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration, −1 when it has none."""
        broker = self.image.brokers.get(self.broker_id)
        return -1 if broker is None else broker.epoch

    def random_bytes(self, size: int) -> bytes:
        """Random bytes from the injected entropy, for topic ids and member ids."""
        return self._entropy.token(size)

    def topic_config(self, topic: TopicImage) -> TopicConfig:
        """A topic's configuration: its own over the broker's."""
        return self._topic_configs.of(topic.configs)

    def take_over(self, delta: ImageDelta) -> None:
        """Go on with the next image."""
        self.image = delta.image
        if delta.client_entities:
            self.quotas.follow(delta.image, delta.client_entities)
        if delta.broker_configs:
            self.config = self.config.with_dynamic(*self.image.dynamic_broker_configs(self.broker_id))
            self._topic_configs = TopicConfigs(self.config)
