"""The broker's internal topics: their replication factor, and their growth when brokers join.

A cluster starts with one broker and internal topics with one replica. Unless the operator has configured a number, they
grow to Apache Kafka's default of three by ordinary reassignments. The transaction log then also gets its default
min.insync.replicas, and so does the log of share groups' state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from oncelog.base.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, BrokerId, TopicName
from oncelog.base.tree import Operation
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.commits import COMMIT_BYTES, commits_of
from oncelog.core.controller.fencing import controller_check, topics_check
from oncelog.core.controller.image.cluster_image import ClusterImage, PartitionImage, TopicImage
from oncelog.core.controller.replicas.placement import more_replicas
from oncelog.core.controller.replicas.reassignments import begun
from oncelog.core.controller.resources import MIN_INSYNC_REPLICAS, ConfigResourceType, Resource, current, write_configs

REPLICATION_FACTOR_KEYS: Final[Mapping[TopicName, str]] = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.replication.factor",
}
MIN_ISR_KEYS: Final[Mapping[TopicName, str]] = {
    TRANSACTION_STATE: "transaction.state.log.min.isr",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.min.isr",
}


def replication_factor(image: ClusterImage, config: BrokerConfig, topic: TopicName) -> int:
    """Replicas of a new internal topic: as configured, or else as many as there are brokers, up to the default."""
    key = REPLICATION_FACTOR_KEYS[topic]
    factor = int(config.get(key))
    return factor if config.is_set(key) else min(factor, max(1, _live_broker_count(image)))


def min_isr(image: ClusterImage, config: BrokerConfig, topic: TopicName) -> int:
    """``min.insync.replicas`` of a new internal topic that has a default of its own."""
    key = MIN_ISR_KEYS[topic]
    return int(config.get(key)) if config.is_set(key) or _live_broker_count(image) > 1 else 1


def grow(image: ClusterImage, config: BrokerConfig, limit_bytes: int = COMMIT_BYTES) -> list[list[Operation]]:
    """Commits that add missing replicas of internal topics."""
    changes: dict[TopicName, dict[int, PartitionImage]] = {}
    for name, key in REPLICATION_FACTOR_KEYS.items():
        topic = image.topics.get(name)
        if topic is not None:
            grown = _grown(image, topic, min(int(config.get(key)), _live_broker_count(image)))
            if grown:
                changes[name] = grown
    rights = [*controller_check(image), *topics_check(image)]
    commits = commits_of(image, changes, rights, limit_bytes)
    # Only once no replica is missing: before, acks=all would fail.
    grown_min_isrs = [operation for name in MIN_ISR_KEYS for operation in _grown_min_isr(image, config, name)]
    return commits if commits or not grown_min_isrs else [[*rights, *grown_min_isrs]]


def _grown(image: ClusterImage, topic: TopicImage, factor: int) -> dict[int, PartitionImage]:
    grown = {}
    first_of = Counter[BrokerId]()
    for index, partition in enumerate(topic.partitions):
        replicas = partition.replicas
        if len(replicas) < factor and not partition.adding and not partition.removing:
            more = more_replicas(image, replicas, index, factor)
            # Preferred leaders go round the brokers: otherwise the first broker would stay the coordinator of
            # everything.
            first = min(more, key=first_of.__getitem__)
            replicas = (first, *(replica for replica in more if replica != first))
            grown[index] = begun(partition, replicas)
        first_of[replicas[0]] += 1
    return grown


def _grown_min_isr(image: ClusterImage, config: BrokerConfig, name: TopicName) -> list[Operation]:
    """Raises an internal topic's min.insync.replicas after its growth from one broker."""
    topic = image.topics.get(name)
    required = int(config.get(MIN_ISR_KEYS[name]))
    if topic is None or topic.configs.get(MIN_INSYNC_REPLICAS) != "1" or required == 1:
        return []
    if any(
        len(partition.replicas) <= required or partition.adding or partition.removing for partition in topic.partitions
    ):
        return []
    now = current(image, Resource(ConfigResourceType.TOPIC, topic.name))
    return [write_configs(now, {**now.configs, MIN_INSYNC_REPLICAS: str(required)})]


def _live_broker_count(image: ClusterImage) -> int:
    return sum(broker.may_lead for broker in image.brokers.values())
