"""The growth of internal topics with their cluster."""

from __future__ import annotations

from collections import Counter

from oncelog.base.ids import CONSUMER_OFFSETS, BrokerId
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.topics.changes import NewTopic
from oncelog.core.controller.topics.internal_topics import grow
from tests.unit.core.controller.cluster import CONFIG, applied, cluster


def joined(image: ClusterImage, number: int) -> ClusterImage:
    """The image after another broker has joined, and internal topics have grown."""
    who = Registration(BrokerId(number), f"host{number}", 9092, None, "the-cluster")
    image = applied(image, register(image, who, now_ms=0))
    for operations in grow(image, CONFIG):
        image = applied(image, operations)
    return image


def preferred(image: ClusterImage) -> list[int]:
    """How many partitions each broker is to lead, fewest first."""
    return sorted(Counter(partition.replicas[0] for partition in image.topics[CONSUMER_OFFSETS].partitions).values())


def test_every_broker_is_to_coordinate_as_much() -> None:
    image = cluster(1, [NewTopic(CONSUMER_OFFSETS, 50, 1)])
    assert preferred(image) == [50]
    image = joined(image, 2)
    assert preferred(image) == [25, 25]
    assert {partition.leader for partition in image.topics[CONSUMER_OFFSETS].partitions} == {1}, (
        "until the others are in sync"
    )
    assert grow(image, CONFIG) == []


def test_three_brokers_that_come_at_once_share_it() -> None:
    image = cluster(1, [NewTopic(CONSUMER_OFFSETS, 50, 1)])
    for number in (2, 3):
        who = Registration(BrokerId(number), f"host{number}", 9092, None, "the-cluster")
        image = applied(image, register(image, who, now_ms=0))
    (operations,) = grow(image, CONFIG)
    assert preferred(applied(image, operations)) == [16, 17, 17]
