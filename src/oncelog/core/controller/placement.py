"""Placement of new partitions on brokers, and the nodes that store it.

Partitions go round the live brokers, beginning at a place that the topic's random id decides, so that many small
topics spread evenly. The first replica leads. Manual assignments are checked as Apache Kafka checks them.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from oncelog.base.tree import Create
from oncelog.core.controller import layout
from oncelog.core.controller.image import ClusterImage
from oncelog.core.controller.model import PartitionImage
from oncelog.core.controller.outcomes import Refused

Replicas = tuple[BrokerId, ...]


def place(image: ClusterImage, topic_id: TopicId, first: int, count: int, replication_factor: int) -> list[Replicas]:
    """Replicas of partitions ``first`` to ``first + count``. Raises Refused when there are too few brokers."""
    brokers = sorted(image.brokers)
    if replication_factor > len(brokers):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered or some "
            "brokers have all their log directories cordoned.",
        )
    start = int.from_bytes(topic_id[:4], "big")
    return [
        tuple(brokers[(start + partition + replica) % len(brokers)] for replica in range(replication_factor))
        for partition in range(first, first + count)
    ]


def check_replicas(image: ClusterImage, replicas: Sequence[int], replication_factor: int | None) -> Replicas:
    """A manual assignment of one partition, checked. Raises Refused."""
    start = "The manual partition assignment includes "
    if not replicas:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, start + "an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if broker not in image.brokers:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{start}broker {broker}, but no such broker is registered."
            )
        if broker == previous:
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{start}the broker {broker} more than once.")
        previous = broker
    if replication_factor is not None and len(replicas) != replication_factor:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{start}a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s).",
        )
    return tuple(map(BrokerId, replicas))


def partition_nodes(image: ClusterImage, topic: TopicName, first: int, assignment: Sequence[Replicas]) -> list[Create]:
    """Nodes of new partitions ``first``…: all replicas in sync, the first one leads, leader epoch 0."""
    operations = []
    for partition, replicas in enumerate(assignment, first):
        operations.append(Create(layout.partition_path(topic, partition), b""))
        leader = replicas[0]
        epoch = image.brokers[leader].epoch
        state = PartitionImage(leader, LeaderEpoch(0), replicas, replicas, leader_broker_epoch=epoch)
        value = layout.state_value(state, image.controller_epoch)
        operations.append(Create(layout.state_path(topic, partition), value))
    return operations
