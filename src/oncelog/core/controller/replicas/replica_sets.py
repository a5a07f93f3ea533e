"""The in-sync set of a partition and its eligible leaders, and how one follows from the other (KIP-966).

While the in-sync set is below min.insync.replicas the high watermark stands still, so who leaves it then has all below
the high watermark for as long as that lasts: an eligible leader. Once the set is full again, only its members have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncelog.base.ids import BrokerId
from oncelog.core.controller.image.cluster_image import Brokers, ClusterImage, is_alive
from oncelog.core.controller.image.model import PartitionImage, TopicImage
from oncelog.core.controller.resources import MIN_INSYNC_REPLICAS

Replicas = tuple[BrokerId, ...]


def min_insync_replicas(image: ClusterImage, topic: TopicImage) -> int:
    """The topic's own value, else the cluster's: a fact of the image, by which every broker judges the same."""
    text = topic.configs.get(MIN_INSYNC_REPLICAS)
    if text is None:
        cluster = image.broker_configs.get("")
        text = None if cluster is None else cluster.configs.get(MIN_INSYNC_REPLICAS)
    return 1 if text is None else int(text)


def is_full(isr: Sequence[BrokerId], replicas: Sequence[BrokerId], min_isr: int) -> bool:
    """True if the high watermark may rise over this in-sync set: a partition with fewer replicas needs them all."""
    return len(isr) >= min(min_isr, len(replicas))


def with_isr(
    partition: PartitionImage, isr: Iterable[BrokerId], min_isr: int, lost: Iterable[BrokerId] = ()
) -> PartitionImage:
    """The partition with another in-sync set, and the eligible leaders that follow from it.

    Whoever leaves a set that is not full is eligible; nobody is beside a full one. ``lost`` are replicas that may lack
    records they had: never eligible.
    """
    in_sync = tuple(isr)
    if is_full(in_sync, partition.replicas, min_isr):
        return partition._replace(isr=in_sync, elr=())
    eligible = {*partition.isr, *partition.elr}.difference(in_sync, lost)
    elr = tuple(replica for replica in partition.replicas if replica in eligible)
    return partition._replace(isr=in_sync, elr=elr)


def described_sets(partition: PartitionImage, brokers: Brokers) -> tuple[list[int], list[int]]:
    """The in-sync set and the eligible leaders as clients are told of them, in Apache Kafka's words.

    Members of the in-sync set that have all died stay in it here, since one of them has to come back; there they are
    the eligible leaders beside an empty set.
    """
    if any(is_alive(brokers, replica) for replica in partition.isr):
        return list(partition.isr), list(partition.elr)
    return [], [replica for replica in partition.replicas if replica in partition.isr or replica in partition.elr]


def without_stale_eligible(partition: PartitionImage, min_isr: int) -> PartitionImage:
    """The partition after ``min.insync.replicas`` has become ``min_isr``: beside a set that is full by now, the high
    watermark may rise past those who are out of it."""
    if partition.elr and is_full(partition.isr, partition.replicas, min_isr):
        return partition._replace(elr=())
    return partition
