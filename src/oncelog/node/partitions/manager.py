"""Keeps this broker's logs in step with the cluster image: what is created, altered, deleted or configured there
happens here, and nothing else changes which logs there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, TopicName, TopicPartition
from oncelog.base.invariant import invariant
from oncelog.base.tree import Operation
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.topic import TopicConfigs
from oncelog.core.controller.image import ClusterImage, ImageDelta, PartitionImage, TopicImage, changes_of
from oncelog.node.partitions.log_configs import log_config, storage_config

if TYPE_CHECKING:
    from oncelog.node.coordinators.runner import Coordinators
    from oncelog.node.partitions.delayed_fetches import DelayedFetches
    from oncelog.node.partitions.group_commit import GroupCommit
    from oncelog.node.partitions.maintenance import Maintenance
    from oncelog.ports import Entropy
    from oncelog.storage.directory import LogDirectory
    from oncelog.storage.log.partition_log import PartitionLog


LOGS_PER_SLICE: Final = 16


class Cluster:
    """The image, the configuration it implies, and the logs that follow from both."""

    def __init__(
        self, broker_id: BrokerId, image: ClusterImage, config: BrokerConfig, logs: LogDirectory, entropy: Entropy
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._entropy = entropy
        self._missing: dict[TopicPartition, None] = {}
        self.now_ms = 0
        self.image = image
        self.config = config.with_dynamic(*image.dynamic_broker_configs(broker_id))
        self._topic_configs = TopicConfigs(self.config)
        self._durability: GroupCommit
        self._readers: DelayedFetches
        self._coordinators: Mapping[TopicName, Coordinators[Any]]
        self._maintenance: Maintenance

    def bind(
        self,
        durability: GroupCommit,
        readers: DelayedFetches,
        coordinators: Mapping[TopicName, Coordinators[Any]],
        maintenance: Maintenance,
    ) -> None:
        """Who is told of what happens to the logs. They are made after this, from the configuration it holds."""
        self._durability = durability
        self._readers = readers
        self._coordinators = coordinators
        self._maintenance = maintenance

    def start(self) -> None:
        """Give every log its configuration and create those that the image has and the disk lacks (a crash between
        the commit of a topic and the creation of its directory)."""
        for topic in self.image.topics.values():
            self._create_logs(topic)
            self._configure(topic)
        self._lead_shards()

    def apply(self, operations: Sequence[Operation]) -> None:
        """Take over what the tree has committed."""
        delta = self.image.apply(changes_of(operations))
        self.image = delta.image
        if delta.broker_configs:
            self.config = self.config.with_dynamic(*self.image.dynamic_broker_configs(self._broker_id))
            self._topic_configs = TopicConfigs(self.config)
            self._configure_storage()
        self._delete_logs(delta)
        for name in (*delta.created, *delta.altered):
            self._create_logs(self.image.topics[name])
        touched = self.image.topics if delta.broker_configs else (*delta.created, *delta.altered, *delta.configs)
        for name in touched:
            self._configure(self.image.topics[name])
        self._lead_shards()

    def in_sync_count(self, partition: TopicPartition) -> int:
        """How many replicas of a partition are in sync; 0 when there is no such partition."""
        found = self._partition(partition)
        return 0 if found is None else len(found.isr)

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch:
        """Epoch in which this broker leads a partition."""
        found = self._partition(partition)
        return NO_LEADER_EPOCH if found is None else found.leader_epoch

    def _partition(self, partition: TopicPartition) -> PartitionImage | None:
        topic = self.image.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def _create_logs(self, topic: TopicImage) -> None:
        """Note which logs are missing. They are created in slices, or when somebody asks for one: a directory and a
        few files each are milliseconds on a busy disk, and a topic may have thousands of partitions."""
        for index, partition in enumerate(topic.partitions):
            key = TopicPartition(topic.name, index)
            if self._broker_id in partition.replicas and key not in self._logs.logs:
                self._missing[key] = None

    def create_slice(self) -> bool:
        """Create some of the missing logs; whether there are more."""
        for partition in list(islice(self._missing, LOGS_PER_SLICE)):
            self._create_log(partition)
        return bool(self._missing)

    def creates_logs(self) -> bool:
        """Whether some are missing."""
        return bool(self._missing)

    def _create_log(self, partition: TopicPartition) -> PartitionLog:
        del self._missing[partition]
        topic = self.image.topics[partition.topic]
        config = log_config(self._topic_configs.of(topic.configs))
        return self._logs.create(partition, topic.topic_id, config, now_ms=self.now_ms)

    def _configure_storage(self) -> None:
        storage = storage_config(self.config)
        self._logs.storage = storage
        for log in self._logs.logs.values():
            log.storage = storage

    def _configure(self, topic: TopicImage) -> None:
        config = log_config(self._topic_configs.of(topic.configs))
        for index in range(len(topic.partitions)):
            log = self._logs.logs.get(TopicPartition(topic.name, index))
            if log is None:
                continue
            log.set_topic_id(topic.topic_id)  # a power cut may have taken the file that says it
            if log.config != config:
                log.config = config

    def _delete_logs(self, delta: ImageDelta) -> None:
        gone = [TopicPartition(topic.name, index) for topic in delta.deleted for index in range(len(topic.partitions))]
        for partition in gone:
            self._missing.pop(partition, None)
            if partition in self._logs.logs:
                self._maintenance.add(self._logs.delete(partition, self._entropy.token(16)))
                self._durability.dropped(partition)
                self._readers.changed(partition)
        dropped = {topic.name for topic in delta.deleted}
        for name, coordinators in self._coordinators.items():
            if name in dropped:
                coordinators.drop_all(self.now_ms)
                coordinators.set_partition_count(0)
            elif gone:
                coordinators.partitions_deleted(gone, self.now_ms)

    def _lead_shards(self) -> None:
        """Coordinate what this broker leads of the internal topics; what it coordinates already stays as it is."""
        for name, coordinators in self._coordinators.items():
            topic = self.image.topics.get(name)
            if topic is None:
                continue
            coordinators.set_partition_count(len(topic.partitions))
            for index, partition in enumerate(topic.partitions):
                if partition.leader == self._broker_id:
                    key = TopicPartition(name, index)
                    open_log = partial(self._existing_log, key)
                    coordinators.lead(index, partition.leader_epoch, open_log, is_new=key in self._missing)

    def _existing_log(self, partition: TopicPartition) -> PartitionLog:
        log = self.log(partition)
        invariant(log is not None, "a partition that this broker leads has no log", partition=partition)
        assert log is not None
        return log

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition that this broker leads."""
        log = self._logs.logs.get(partition)
        if log is None and partition in self._missing:
            return self._create_log(partition)
        return log
