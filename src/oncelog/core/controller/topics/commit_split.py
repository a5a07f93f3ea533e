"""Topics whose nodes do not fit one commit: what of them does. Pure, and an upper bound rather than a count.

A tree takes commits up to a size (ZooKeeper: ``MAX_COMMIT_BYTES``). Many topics are several commits of whole topics. A
topic that is too large by itself is created with its first partitions and then grown, as CreatePartitions does, and
deleted by taking its last partitions away first: a cluster at each point, though a smaller one than was asked for.
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
"""The nodes of a topic beside its partitions, configs and name."""
_STATE_BYTES: Final = 512
"""The two nodes of a partition and its place in the topic's node, beside the name and the replicas."""
_REPLICA_BYTES: Final = 36
"""A replica in the topic's node, in the in-sync set and among the eligible ones."""
_NAMES_OF_TOPIC: Final = 3
_NAMES_OF_PARTITION: Final = 2

T = TypeVar("T")


def partitions_per_commit(name: str, replication_factor: int) -> int:
    """The number of partitions of a topic that one commit creates."""
    return max(1, COMMIT_BYTES // _partition_bytes(name, replication_factor))


def creation_bytes(config: BrokerConfig, topic: NewTopic) -> int:
    """The size of the creation of a topic."""
    partitions, factor = shape(config, topic)
    configs = sum(len(key) + len(value or "") for key, value in topic.configs)
    names = _NAMES_OF_TOPIC * len(topic.name)
    return _TOPIC_BYTES + names + configs + max(0, partitions) * _partition_bytes(topic.name, factor)


def shape(config: BrokerConfig, topic: NewTopic) -> tuple[int, int]:
    """The number of partitions and replicas that are asked for."""
    if topic.assignments:
        return len(topic.assignments), max(len(brokers) for _, brokers in topic.assignments)
    partitions = int(config.get("num.partitions")) if topic.partitions == -1 else topic.partitions
    factor = topic.replication_factor
    return partitions, int(config.get("default.replication.factor")) if factor == -1 else factor


def deletion_bytes(topic: TopicImage) -> int:
    """The size of the deletion of a topic, its last partitions taken away."""
    left = sum(partition.version != ABSENT for partition in topic.partitions)
    names = _NAMES_OF_TOPIC * len(topic.name)
    return min(COMMIT_BYTES, _TOPIC_BYTES + names + left * _partition_bytes(topic.name, 1))


def _partition_bytes(name: str, replication_factor: int) -> int:
    return _STATE_BYTES + _NAMES_OF_PARTITION * len(name) + _REPLICA_BYTES * max(1, replication_factor)


def batches(items: Sequence[T], size_of: Callable[[T], int], most: int) -> Iterator[Sequence[T]]:
    """The items in order, at most ``most`` at a time, and no more than fit one commit; one that does not fit alone."""
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
    """The topic with its first partitions."""
    if topic.assignments:
        first = [(index, brokers) for index, brokers in topic.assignments if index < partitions]
        return NewTopic(topic.name, -1, topic.replication_factor, first, topic.configs)
    return NewTopic(topic.name, partitions, topic.replication_factor, (), topic.configs)


def last_partitions_deleted(image: ClusterImage, topic: TopicImage) -> list[Operation]:
    """Operations that take some of the last partitions of a topic away that is to be deleted; none once the rest fits
    one commit. They are without a leader from then on."""
    at_once = partitions_per_commit(topic.name, 1)
    left = [index for index, partition in enumerate(topic.partitions) if partition.version != ABSENT]
    gone = left[at_once:][-at_once:]
    if not gone:
        return []
    operations: list[Operation] = [*topics_check(image)]
    for index in gone:
        operations.append(Delete(layout.state_path(topic.name, index), topic.partitions[index].version))
        operations.append(Delete(layout.partition_path(topic.name, index), 0))
    return operations
