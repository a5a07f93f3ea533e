"""The cluster in a client's view: brokers, topics, and the leader and epoch of each partition.

A leader with an older epoch never replaces a newer one (brokers may answer out of step, KIP-320), unless the topic id
changed. A missing topic is kept with its error, so that it is not requested again at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicName, TopicPartition
from oncelog.client.addresses import Address

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    broker_id: BrokerId
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition in the last metadata; ``leader`` is −1 without a leader."""

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in the last metadata, or its ``error_code``."""

    name: TopicName
    topic_id: TopicId
    partitions: Mapping[int, PartitionInfo] = field(default_factory=dict)
    is_internal: bool = False
    error_code: int = 0

    @property
    def exists(self) -> bool:
        return self.error_code == ErrorCode.NONE


class ClusterView:
    """The cluster according to Metadata responses. ``changes`` counts changes, so that an unchanged response need not
    be decoded again."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        self.changes = 0
        self._updated_ms: dict[str, int] = {}

    def apply(self, response: Any, now_ms: int) -> None:
        """Apply a MetadataResponse. Topics that it does not name stay as they were."""
        before = self.brokers, self.cluster_id, self.controller_id
        if response.brokers:
            self.brokers = {
                broker.node_id: BrokerInfo(BrokerId(broker.node_id), Address(broker.host, broker.port), broker.rack)
                for broker in response.brokers
            }
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        self.changes += before != (self.brokers, self.cluster_id, self.controller_id)
        for topic in response.topics or ():
            if topic.name is None:
                continue
            previous = self.topics.get(topic.name)
            merged = _merge(previous, _topic(topic))
            self._updated_ms[topic.name] = now_ms
            if merged != previous:
                self.topics[topic.name] = merged
                self.changes += 1

    def clear(self) -> None:
        self.brokers, self.topics, self.cluster_id, self.controller_id = {}, {}, None, NO_LEADER
        self._updated_ms.clear()
        self.changes += 1

    def mark_all_current(self, now_ms: int) -> None:
        """All topics were reported again, unchanged."""
        self._updated_ms = dict.fromkeys(self.topics, now_ms)

    def age_ms(self, topic: str, now_ms: int) -> int | None:
        """Milliseconds since the topic was last reported; None if it never was, or is stale."""
        updated = self._updated_ms.get(topic)
        return None if updated is None else now_ms - updated

    def leader(self, partition: TopicPartition) -> int | None:
        info = self.partition(partition)
        if info is None or info.leader < 0:
            return None
        return info.leader

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def topic_id(self, topic: str) -> TopicId:
        """The topic's id; zero if unknown or without one."""
        info = self.topics.get(topic)
        return NO_TOPIC_ID if info is None else info.topic_id

    def topic_ids(self, topics: Iterable[str]) -> dict[bytes, TopicName] | None:
        """Names by id; None unless every topic has an id."""
        names = {bytes(self.topic_id(topic)): TopicName(topic) for topic in topics}
        return None if bytes(NO_TOPIC_ID) in names else names

    def forget(self, topic: str) -> None:
        """Mark the topic's metadata as stale: it is fetched before the next use."""
        self._updated_ms.pop(topic, None)

    def leader_moved(self, partition: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Apply a newer leader named in a response (KIP-951). Returns True if the view changed."""
        topic, current = self.topics.get(partition.topic), self.partition(partition)
        if topic is None or current is None or leader_epoch <= current.leader_epoch or leader not in self.brokers:
            return False
        self.changes += 1
        moved = replace(current, leader=BrokerId(leader), leader_epoch=LeaderEpoch(leader_epoch))
        self.topics[partition.topic] = replace(topic, partitions={**topic.partitions, partition.partition: moved})
        return True


def _topic(topic: Any) -> TopicInfo:
    partitions = {
        part.partition_index: PartitionInfo(
            part.partition_index,
            BrokerId(part.leader_id),
            LeaderEpoch(part.leader_epoch),
            tuple(part.replica_nodes),
            tuple(part.isr_nodes),
            tuple(part.offline_replicas),
            part.error_code,
        )
        for part in (topic.partitions if len(topic.partitions) == 1 else sorted(topic.partitions, key=_index))
    }
    return TopicInfo(topic.name, TopicId(bytes(topic.topic_id)), partitions, topic.is_internal, topic.error_code)


def _index(partition: Any) -> int:
    index: int = partition.partition_index
    return index


def _merge(old: TopicInfo | None, new: TopicInfo) -> TopicInfo:
    """``new``, with the leaders of ``old`` that have a newer epoch, if the topic is the same."""
    if old is None or old.topic_id != new.topic_id or not new.exists:
        return new
    newer = {
        index: replace(now, leader=was.leader, leader_epoch=was.leader_epoch)
        for index, was in old.partitions.items()
        if (now := new.partitions.get(index)) is not None and now.leader_epoch < was.leader_epoch
    }
    return replace(new, partitions={**new.partitions, **newer}) if newer else new
