"""The in-sync set of a partition, and the eligible leaders that follow from it (KIP-966).

While the in-sync set is smaller than min.insync.replicas the high watermark does not move. A replica that leaves the
set then keeps everything below it: an eligible leader. Once the set is full again, only its members do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.base.tree import Operation, Set
from oncelog.core.controller.fencing import registration_checks, topics_check
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import Brokers, ClusterImage, is_alive
from oncelog.core.controller.image.model import UNKNOWN_BROKER_EPOCH, PartitionImage, TopicImage
from oncelog.core.controller.resources import MIN_INSYNC_REPLICAS

Replicas = tuple[BrokerId, ...]


def min_insync_replicas(image: ClusterImage, topic: TopicImage) -> int:
    """The topic's own value, else the cluster's: part of the image, so that every broker judges the same."""
    text = topic.configs.get(MIN_INSYNC_REPLICAS)
    if text is None:
        cluster = image.broker_configs.get("")
        text = None if cluster is None else cluster.configs.get(MIN_INSYNC_REPLICAS)
    return 1 if text is None else int(text)


def is_full(isr: Sequence[BrokerId], replicas: Sequence[BrokerId], min_isr: int) -> bool:
    """True if the high watermark may advance with this in-sync set."""
    # A partition with fewer replicas than min.insync.replicas needs all of them.
    return len(isr) >= min(min_isr, len(replicas))


def with_isr(
    partition: PartitionImage, isr: Iterable[BrokerId], min_isr: int, lost: Iterable[BrokerId] = ()
) -> PartitionImage:
    """The partition with another in-sync set and the resulting eligible leaders, without ``lost`` replicas, which may
    lack records they had."""
    in_sync = tuple(isr)
    if is_full(in_sync, partition.replicas, min_isr):
        return partition._replace(isr=in_sync, elr=())
    # Members that leave a set that is not full keep everything below the high watermark.
    eligible = {*partition.isr, *partition.elr}.difference(in_sync, lost)
    elr = tuple(replica for replica in partition.replicas if replica in eligible)
    return partition._replace(isr=in_sync, elr=elr)


def described_sets(partition: PartitionImage, brokers: Brokers) -> tuple[list[int], list[int]]:
    """The in-sync set and the eligible leaders as Apache Kafka describes them to clients."""
    if any(is_alive(brokers, replica) for replica in partition.isr):
        return list(partition.isr), list(partition.elr)
    # Dead members stay in our in-sync set, since one has to come back; Kafka shows them as eligible leaders.
    return [], [replica for replica in partition.replicas if replica in partition.isr or replica in partition.elr]


def without_stale_eligible(partition: PartitionImage, min_isr: int) -> PartitionImage:
    """The partition after ``min.insync.replicas`` became ``min_isr``: a full set ends eligibility, because the high
    watermark may move."""
    if partition.elr and is_full(partition.isr, partition.replicas, min_isr):
        return partition._replace(elr=())
    return partition


def may_be_in_sync(image: ClusterImage, replica: BrokerId, broker_epoch: int) -> bool:
    """True if a follower that fetched in registration ``broker_epoch`` (−1: unknown) may join: that one is current, and
    the broker neither fenced nor stopping."""
    broker = image.brokers.get(replica)
    return broker is not None and broker.may_lead and broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)


def change_in_sync(
    image: ClusterImage, partition: TopicPartition, in_sync: Sequence[BrokerId], leader_epoch: int
) -> list[Operation] | None:
    """The commit of a leader that changes its in-sync set (KIP-497), with conditions that only the current one meets;
    None if the image has another leader epoch or lacks a broker involved."""
    current = image.partition(partition)
    if current is None or current.leader_epoch != leader_epoch:
        return None
    names = (current.leader, *(member for member in in_sync if member not in current.isr))
    brokers = [broker for name in names if (broker := image.brokers.get(name)) is not None]
    # A broker that the image does not have cannot be checked.
    if len(brokers) < len(names):
        return None
    members = [replica for replica in current.replicas if replica in in_sync]
    state = with_isr(current, members, min_insync_replicas(image, image.topics[partition.topic]))
    value = layout.state_value(state, image.controller_epoch)
    return [
        *topics_check(image),
        *(check for broker in brokers for check in registration_checks(image, broker)),
        Set(layout.state_path(partition.topic, partition.partition), value, current.version),
    ]
