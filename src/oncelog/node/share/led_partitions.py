"""The led share partitions by key, by topic and by group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from oncelog.base.ids import GroupId, TopicName
from oncelog.handlers.broker.shares import LedSharePartition

if TYPE_CHECKING:
    from oncelog.core.share.sessions import PartitionKey
    from oncelog.core.share_state.model import ShareKey


class LedPartitions:
    def __init__(self) -> None:
        self._by_key: dict[ShareKey, LedSharePartition] = {}
        self._by_topic: dict[TopicName, dict[ShareKey, LedSharePartition]] = {}
        self._by_group: dict[GroupId, dict[PartitionKey, LedSharePartition]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[LedSharePartition]:
        return iter(self._by_key.values())

    def get(self, key: ShareKey) -> LedSharePartition | None:
        return self._by_key.get(key)

    def of_topics(self, names: Iterable[TopicName]) -> list[LedSharePartition]:
        return [led for name in names for led in self._by_topic.get(name, {}).values()]

    def of_group(self, group_id: GroupId) -> list[LedSharePartition]:
        return list(self._by_group.get(group_id, {}).values())

    def has_group(self, group_id: GroupId) -> bool:
        return group_id in self._by_group

    def among(self, group_id: GroupId, partitions: Iterable[PartitionKey]) -> Iterator[PartitionKey]:
        """The partitions, of those given, that are led for a group."""
        return filter(self._by_group.get(group_id, {}).__contains__, partitions)

    def add(self, led: LedSharePartition) -> None:
        key = led.key
        self._by_key[key] = led
        self._by_topic.setdefault(led.partition.topic, {})[key] = led
        self._by_group.setdefault(key.group_id, {})[key.topic_id, key.partition] = led

    def remove(self, led: LedSharePartition) -> None:
        key, topic = led.key, led.partition.topic
        del self._by_key[key]
        del self._by_topic[topic][key]
        if not self._by_topic[topic]:
            del self._by_topic[topic]
        del self._by_group[key.group_id][key.topic_id, key.partition]
        if not self._by_group[key.group_id]:
            del self._by_group[key.group_id]
