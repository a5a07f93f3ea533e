"""Brokers that others suspect of being frozen, and the end of their registration.

A suspicion is an ephemeral node of the observer, named by both brokers. Rules:

1. Two observers must agree: the commit that ends the registration checks the other's suspicion, so that an observer
   that hears the broker again in time prevents it.
2. A suspicion is of one registration (``epoch``): a broker that registers again is not suspected.
3. A registration is ended only if that helps: another replica can lead, or acks=all waits for the frozen one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from oncelog.base.ids import BrokerId
from oncelog.base.tree import Check, Create, Delete, Operation, Set
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage, is_alive
from oncelog.core.controller.image.model import BrokerImage
from oncelog.core.controller.replicas.failover import end_registration

NEIGHBOURS: Final = 3
"""Brokers that watch another, besides the controller: with more brokers the work of each stays the same."""


def observers_of(image: ClusterImage, broker_id: BrokerId) -> Collection[BrokerId]:
    """The brokers that watch a broker: the controller, and those before it in the ring of ids."""
    others = sorted(other for other in image.brokers if other != broker_id)
    before = [other for other in others if other < broker_id]
    ring = [*others[len(before) :], *before]
    observers = set(ring[-NEIGHBOURS:])
    if image.controller_id in image.brokers and image.controller_id != broker_id:
        observers.add(image.controller_id)
    return observers


def suspected_by(image: ClusterImage, broker: BrokerImage) -> Iterator[BrokerId]:
    for (suspect, observer), suspicion in image.suspicions.items():
        if suspect == broker.broker_id and suspicion.epoch == broker.epoch:
            yield observer


def suspect(image: ClusterImage, broker: BrokerImage, observer: BrokerId, since_ms: int) -> list[Operation]:
    """Operations by which an observer suspects a broker, or says again that it does."""
    if layout.SUSPICIONS not in image.versions:
        return []  # no broker of this version has registered since the upgrade
    path, value = layout.suspicion_path(broker.broker_id, observer), layout.suspicion_value(broker.epoch, since_ms)
    suspicion = image.suspicions.get((broker.broker_id, observer))
    if suspicion is None:
        return [Create(path, value, ephemeral=True)]
    return [Set(path, value, suspicion.version)]


def withdraw(image: ClusterImage, broker_id: BrokerId, observer: BrokerId) -> list[Operation]:
    suspicion = image.suspicions.get((broker_id, observer))
    return [] if suspicion is None else [Delete(layout.suspicion_path(broker_id, observer), suspicion.version)]


def end_frozen(image: ClusterImage, broker: BrokerImage, agreeing: Sequence[BrokerId]) -> list[Operation]:
    """Operations that end a frozen broker's registration while the observers of ``agreeing`` suspect it."""
    ends = end_registration(image, broker)
    if not ends:
        return []
    checks = [
        Check(layout.suspicion_path(broker.broker_id, observer), image.suspicions[broker.broker_id, observer].version)
        for observer in agreeing
    ]
    return [*checks, *ends]


def would_help(image: ClusterImage, broker_id: BrokerId) -> bool:
    """True if a replica set, or the cluster, waits for this broker and need not."""
    if image.controller_id == broker_id:
        return True
    brokers = image.brokers
    return any(
        broker_id in partition.isr
        and any(member != broker_id and is_alive(brokers, member) for member in partition.isr)
        for topic in image.topics.values()
        for partition in topic.partitions
    )
