"""The broker as a handler sees it while partitions have no leader: their logs are not here, and the metadata say so.

Handlers then answer what they answer for any partition that is led nowhere: LEADER_NOT_AVAILABLE in Metadata,
NOT_LEADER_OR_FOLLOWER where records are asked for or brought.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.ids import NO_BROKER, TopicPartition

if TYPE_CHECKING:
    from oncelog.handlers.support.context import Broker

ASKING_LEADERS: Final = frozenset(
    {
        "DeleteRecords",
        "DescribeProducers",
        "DescribeTopicPartitions",
        "Fetch",
        "ListOffsets",
        "Metadata",
        "OffsetForLeaderEpoch",
        "Produce",
    }
)
"""APIs whose handlers are shown this; those that change the cluster are not, or they would change it by this."""


class LeaderlessBroker:
    """A broker without the leadership of ``partitions``; everything else is the broker's own."""

    def __init__(self, broker: Broker, partitions: Collection[TopicPartition]) -> None:
        self._broker = broker
        self._partitions = partitions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def log(self, partition: TopicPartition) -> Any:
        """See ``handlers.context.Broker``."""
        return None if partition in self._partitions else self._broker.log(partition)

    @property
    def image(self) -> Any:
        """See ``handlers.context.Broker``. A copy: what is derived from it (descriptions of topics) is not shared."""
        image = self._broker.image
        topics = dict(image.topics)
        for name in {partition.topic for partition in self._partitions} & topics.keys():
            topics[name] = replace(
                topics[name],
                partitions=tuple(
                    each._replace(leader=NO_BROKER) if TopicPartition(name, index) in self._partitions else each
                    for index, each in enumerate(topics[name].partitions)
                ),
            )
        return replace(image, topics=topics, derived={}, memory={})
