"""The leader's changes of its in-sync set (KIP-497), with conditions that only the current leader meets.

A change names the version of the partition's state, the leader's registration, the registration of each added member
(KIP-841, KIP-903), and that the topic has not been deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.base.tree import Operation, Set
from oncelog.core.controller.fencing import registration_checks, topics_check
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import UNKNOWN_BROKER_EPOCH
from oncelog.core.controller.replicas.replica_sets import min_insync_replicas, with_isr


def may_be_in_sync(image: ClusterImage, replica: BrokerId, broker_epoch: int) -> bool:
    """True if a follower that fetched in registration ``broker_epoch`` (−1: unknown) may join: that one is current, and
    the broker neither fenced nor stopping."""
    broker = image.brokers.get(replica)
    return broker is not None and broker.may_lead and broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)


def change_in_sync(
    image: ClusterImage, partition: TopicPartition, in_sync: Sequence[BrokerId], leader_epoch: int
) -> list[Operation] | None:
    """The commit that changes the in-sync set; None if the image has another leader epoch or lacks a broker
    involved."""
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
