"""A handler's view of the broker while partitions have no leader: without their logs, and with matching metadata.

Handlers then respond LEADER_NOT_AVAILABLE in Metadata, else NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_BROKER, NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from oncelog.handlers.broker.ports import ClusterView, LeaderLog, Partitions

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
"""APIs whose handlers get this view. Handlers that change the cluster do not: they would write the view's state."""


class LeaderlessPartitions:
    def __init__(self, port: Partitions, hidden: Collection[TopicPartition]) -> None:
        self._port = port
        self._hidden = hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def leader_log(
        self, partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> LeaderLog | ErrorCode:
        if partition in self._hidden:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self._port.leader_log(partition, current_leader_epoch)


class LeaderlessCluster:
    def __init__(self, port: ClusterView, hidden: Collection[TopicPartition]) -> None:
        self._port = port
        self._hidden = hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    @property
    def image(self) -> Any:
        # A copy, so that values derived from it (descriptions of topics) are not shared.
        image = self._port.image
        topics = dict(image.topics)
        for name in {partition.topic for partition in self._hidden} & topics.keys():
            topics[name] = topics[name]._replace(
                partitions=tuple(
                    partition._replace(leader=NO_BROKER) if TopicPartition(name, index) in self._hidden else partition
                    for index, partition in enumerate(topics[name].partitions)
                ),
            )
        return replace(image, topics=topics, derived={}, memory={})
