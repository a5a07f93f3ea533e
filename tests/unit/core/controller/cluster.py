"""An image of a cluster, made by the same decisions that a broker makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from oncelog.base.ids import BrokerId, TopicId
from oncelog.base.tree import Operation
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.image.cluster_image import EMPTY_IMAGE, ClusterImage, changes_of
from oncelog.core.controller.topics.changes import NewTopic, create_topics

CONFIG = BrokerConfig()


def ids() -> Callable[[], TopicId]:
    """Topic ids 1, 2, 3…"""

    def numbers() -> Iterator[TopicId]:
        number = 0
        while True:
            number += 1
            yield TopicId(number.to_bytes(16, "big"))

    return numbers().__next__


def applied(image: ClusterImage, operations: Sequence[Operation]) -> ClusterImage:
    """The image after a commit."""
    return image.apply(changes_of(operations)).image


def cluster(brokers: int = 1, topics: Sequence[NewTopic] = ()) -> ClusterImage:
    """Brokers 1…, with topics."""
    image = EMPTY_IMAGE
    for number in range(1, brokers + 1):
        who = Registration(BrokerId(number), f"host{number}", 9092, None, "the-cluster")
        image = applied(image, register(image, who, now_ms=0))
    return applied(image, create_topics(image, CONFIG, topics, ids()).operations)
