"""Splits the creation and deletion of topics that do not fit one commit (``MAX_COMMIT_BYTES``). Sizes are upper bounds.

Commits have whole topics. A topic too large for one is created with its first partitions and then grown, and deleted by
removing its last partitions first. The cluster is consistent at each point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from oncelog.base.tree import Delete, Operation
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.commits import COMMIT_BYTES
from oncelog.core.controller.fencing import topics_check
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ABSENT, ClusterImage, TopicImage
from oncelog.core.controller.topics.changes import NewTopic

_TOPIC_BYTES: Final = 1024
"""A topic's nodes besides partitions, configs and name."""
_STATE_BYTES: Final = 512
"""A partition's two nodes and its entry in the topic's node, besides name and replicas."""
_REPLICA_BYTES: Final = 36
"""A replica in the topic's node, the in-sync set and the eligible leaders."""
_NAMES_OF_TOPIC: Final = 3
_NAMES_OF_PARTITION: Final = 2

T = TypeVar("T")


def partitions_per_commit(name: str, replication_factor: int) -> int:
    return max(1, COMMIT_BYTES // _partition_bytes(name, replication_factor))


def creation_bytes(config: BrokerConfig, topic: NewTopic) -> int:
    partitions, factor = shape(config, topic)
    configs = sum(len(key) + len(value or "") for key, value in topic.configs)
    names = _NAMES_OF_TOPIC * len(topic.name)
    return _TOPIC_BYTES + names + configs + max(0, partitions) * _partition_bytes(topic.name, factor)


def shape(config: BrokerConfig, topic: NewTopic) -> tuple[int, int]:
    if topic.assignments:
        return len(topic.assignments), max(len(brokers) for _, brokers in topic.assignments)
    partitions = int(config.get("num.partitions")) if topic.partitions == -1 else topic.partitions
    factor = topic.replication_factor
    return partitions, int(config.get("default.replication.factor")) if factor == -1 else factor


def deletion_bytes(topic: TopicImage) -> int:
    """The size of deleting a topic after its last partitions are gone."""
    left = sum(partition.version != ABSENT for partition in topic.partitions)
    names = _NAMES_OF_TOPIC * len(topic.name)
    return min(COMMIT_BYTES, _TOPIC_BYTES + names + left * _partition_bytes(topic.name, 1))


def _partition_bytes(name: str, replication_factor: int) -> int:
    return _STATE_BYTES + _NAMES_OF_PARTITION * len(name) + _REPLICA_BYTES * max(1, replication_factor)


def batches(items: Sequence[T], size_of: Callable[[T], int], most: int) -> Iterator[Sequence[T]]:
    """Batches of at most ``most`` items, in order, that fit one commit; an oversized item is a batch by itself."""
    batch: list[T] = []
    size = 0
    for item in items:
        item_size = size_of(item)
        if batch and (len(batch) == most or size + item_size > COMMIT_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item_size
    if batch:
        yield batch


def first_part(topic: NewTopic, partitions: int) -> NewTopic:
    if topic.assignments:
        first = [(index, brokers) for index, brokers in topic.assignments if index < partitions]
        return NewTopic(topic.name, -1, topic.replication_factor, first, topic.configs)
    return NewTopic(topic.name, partitions, topic.replication_factor, (), topic.configs)


def last_partitions_deleted(image: ClusterImage, topic: TopicImage) -> list[Operation]:
    """Operations that remove some of a deleted topic's last partitions, which then have no leader; empty once the rest
    fits one commit."""
    at_once = partitions_per_commit(topic.name, 1)
    left = [index for index, partition in enumerate(topic.partitions) if partition.version != ABSENT]
    # From the end, so that the rest is a topic with partitions 0 to n.
    gone = left[at_once:][-at_once:]
    if not gone:
        return []
    operations: list[Operation] = [*topics_check(image)]
    for index in gone:
        operations.append(Delete(layout.state_path(topic.name, index), topic.partitions[index].version))
        operations.append(Delete(layout.partition_path(topic.name, index), 0))
    return operations
