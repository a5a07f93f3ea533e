"""This broker's partitions: keeps their logs in step with the cluster's image, and finds the log that a request may
use.

This module alone applies topics of the image, and their configs, to the logs. A log is reached only through its
leadership: the partition is led here in one epoch, or the request gets an error. ``roles`` decides which replicas lead
and which follow.

Logs of new partitions are created in slices, or when a request needs one: a directory and some files take milliseconds
on a busy disk, and a topic may have thousands of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_LEADER_EPOCH, BrokerId, Offset, TopicName, TopicPartition
from oncelog.base.units import SECOND_MS
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.topic import TopicConfig
from oncelog.core.controller.image.model import TopicImage
from oncelog.core.sessions.fetch import FetchSessions
from oncelog.handlers.broker.ports import FollowerLog, LeaderLog
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.logs.delayed_fetches import DelayedFetches
from oncelog.node.logs.directory_health import DirectoryHealth
from oncelog.node.logs.group_commit import GroupCommit
from oncelog.node.logs.maintenance import Maintenance
from oncelog.node.replication.roles import ReplicaRoles
from oncelog.storage.log_config import COMPACT, DELETE, LOG_APPEND_TIME, LogConfig, StorageConfig

if TYPE_CHECKING:
    from oncelog.core.controller.image.cluster_image import ImageDelta
    from oncelog.handlers.broker.waits import UntilDurable
    from oncelog.node.kernel.tasks import Task
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.storage.log_directory import LogDirectory

# Keys with the same name and type in both configurations.
_SHARED_KEYS: Final = frozenset(LogConfig._fields) & frozenset(TopicConfig._fields)


@lru_cache(maxsize=1024)
def log_config(topic: TopicConfig) -> LogConfig:
    """The log's part of a topic's configuration; equal configurations share one instance."""
    values = {name: getattr(topic, name) for name in _SHARED_KEYS}
    policy = (DELETE,) * topic.cleanup_delete + (COMPACT,) * topic.cleanup_compact
    return LogConfig(
        **values,
        cleanup_policy=policy,
        message_timestamp_type=LOG_APPEND_TIME if topic.log_append_time else "CreateTime",
    )


def storage_config(config: BrokerConfig) -> StorageConfig:
    return StorageConfig(
        producer_id_expiration_ms=int(config.get("producer.id.expiration.ms")),
        cleaner_dedupe_buffer_bytes=int(config.get("log.cleaner.dedupe.buffer.size")),
        cleaner_enable=bool(config.get("log.cleaner.enable")),
        max_decompressed_bytes=int(config.get("oncelog.decompressed.max.bytes")),
        validates_records=config.get("oncelog.record.validation") == "records",
    )


LOGS_PER_SLICE: Final = 16
CREATE_RETRY_MS: Final = SECOND_MS


class PartitionManager:
    """Implements ``handlers.broker.ports.Partitions``."""

    def __init__(
        self,
        logs: LogDirectory,
        metadata: Metadata,
        roles: ReplicaRoles,
        group_commit: GroupCommit,
        delayed_fetches: DelayedFetches,
        maintenance: Maintenance,
        deadlines: Deadlines,
        directory: DirectoryHealth,
    ) -> None:
        self.logs = logs
        self.roles = roles
        self.directory = directory
        self._metadata = metadata
        self._group_commit = group_commit
        self._delayed_fetches = delayed_fetches
        self._maintenance = maintenance
        self._deadlines = deadlines
        self._broker_epoch = metadata.broker_epoch
        self._leaders = roles.leaders
        self._missing: dict[TopicPartition, None] = {}
        self._create_from_ms = 0
        # Topics whose partitions were examined last; unchanged objects are skipped, or a change of one partition would
        # cost as much as its topic has.
        self._applied_topics: dict[TopicName, TopicImage] = {}
        self.fetch_sessions = FetchSessions(
            int(metadata.config.get("max.incremental.fetch.session.cache.slots")), metadata.random_bytes
        )
        self.records_in = 0
        self.record_bytes_in = 0

    def start(self) -> None:
        """Configure every log, and note those that the disk lacks after a crash between a topic's commit and its
        creation."""
        for topic in self._metadata.image.topics.values():
            self._configure(topic)  # also restores topic ids lost in a power cut; followers fetch by them
            self._note_replicas(topic)

    def apply_change(self, delta: ImageDelta) -> list[TopicPartition]:
        """Apply a change of the image; returns the partitions of deleted topics."""
        if delta.broker_configs:
            self._configure_storage()
        deleted = [
            TopicPartition(topic.name, index) for topic in delta.deleted for index in range(len(topic.partitions))
        ]
        for partition in deleted:
            self._delete(partition)
        topics = self._metadata.image.topics
        registered_again = self._broker_epoch != self._metadata.broker_epoch
        self._broker_epoch = self._metadata.broker_epoch
        # After a new registration every leadership has to be examined again.
        for name in topics if registered_again else (*delta.created, *delta.altered):
            self._note_replicas(topics[name], None if registered_again else self._applied_topics.get(name))
        for name in topics if delta.broker_configs else (*delta.created, *delta.configs):
            self._configure(topics[name])
        for topic in delta.deleted:
            self._applied_topics.pop(topic.name, None)
        self._applied_topics.update((name, topics[name]) for name in (*delta.created, *delta.altered))
        return deleted

    def create_slice(self) -> bool:
        """Create some of the missing logs; True if more can be created now."""
        if not self._missing:
            return False
        for partition in list(islice(self._missing, LOGS_PER_SLICE)):
            if not self._create_log(partition):
                return False
        return bool(self._missing)

    def _note_replicas(self, topic: TopicImage, before: TopicImage | None = None) -> None:
        previous = () if before is None else before.partitions
        for index, image in enumerate(topic.partitions):
            if index < len(previous) and previous[index] is image:
                continue
            partition = TopicPartition(topic.name, index)
            log = self.logs.logs.get(partition)
            if self._metadata.broker_id not in image.replicas:
                if log is not None or partition in self._missing:
                    self._delete(partition)  # reassigned to other brokers
            elif log is None:
                self._missing[partition] = None
            else:
                self.roles.take(partition, log, image)

    def _create_log(self, partition: TopicPartition) -> bool:
        """Create the log of a new partition. False, to be retried after ``CREATE_RETRY_MS``, if the process has no
        descriptor or the disk no room.
        """
        now_ms = self._deadlines.now_ms
        if now_ms < self._create_from_ms:
            return False
        topic = self._metadata.image.topics[partition.topic]
        config = log_config(self._metadata.topic_config(topic))
        try:
            log = self.logs.create(partition, topic.topic_id, config, now_ms=now_ms)
        except OSError as error:
            self._create_from_ms = now_ms + CREATE_RETRY_MS
            self._deadlines.at(self._create_from_ms, lambda _now: None)  # any event creates missing logs
            self.directory.log_not_created(partition, error)
            return False
        del self._missing[partition]
        self.roles.take(partition, log, topic.partitions[partition.partition])
        return True

    def _delete(self, partition: TopicPartition) -> None:
        self._missing.pop(partition, None)
        self.roles.give_up(partition)
        if partition in self.logs.logs:
            self._maintenance.add(self.logs.delete(partition, self._metadata.random_bytes(16)))
            self._group_commit.dropped(partition)
            self._delayed_fetches.changed(partition)
            self._delayed_fetches.deleted(partition)

    def _configure_storage(self) -> None:
        storage = storage_config(self._metadata.config)
        self.logs.storage = storage
        for log in self.logs.logs.values():
            log.storage = storage

    def _configure(self, topic: TopicImage) -> None:
        config = log_config(self._metadata.topic_config(topic))
        for index in range(len(topic.partitions)):
            log = self.logs.logs.get(TopicPartition(topic.name, index))
            if log is None:
                continue
            log.set_topic_id(topic.topic_id)  # a power cut may have taken the file with it
            if log.config != config:
                log.config = config
                self.roles.config_changed(log)

    def park_until_durable(self, task: Task, until: UntilDurable) -> None:
        """Keep ``task`` until every high watermark in ``until`` is reached."""
        logs: dict[TopicPartition, PartitionLog | None] = {}
        for partition in until.offsets:
            leader = self.leader_log(partition)
            logs[partition] = None if isinstance(leader, ErrorCode) else leader.log
        self._group_commit.wait(task, until, logs)

        # handlers.broker.ports.Partitions

    def leader_log(
        self, partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> LeaderLog | ErrorCode:
        leader = self._leaders.get(partition)
        if leader is None:
            if partition in self._missing:
                if not self._create_log(partition):
                    return ErrorCode.KAFKA_STORAGE_ERROR
                return self.leader_log(partition, current_leader_epoch)
            image = self._metadata.image.partition(partition)
            if image is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refusal = _epoch_refusal(current_leader_epoch, image.leader_epoch) if self.has_log(partition) else None
            return refusal or ErrorCode.NOT_LEADER_OR_FOLLOWER
        if current_leader_epoch == NO_LEADER_EPOCH:
            return leader
        return _epoch_refusal(current_leader_epoch, leader.leader_epoch) or leader

    def follower_log(
        self, partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> FollowerLog | ErrorCode:
        image, log = self._metadata.image.partition(partition), self.logs.logs.get(partition)
        if image is None or log is None or image.leader == self._metadata.broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return _epoch_refusal(current_leader_epoch, image.leader_epoch) or FollowerLog(log, image.leader_epoch)

    def leader_logs(self) -> Iterator[LeaderLog]:
        """All partitions led here that have a log."""
        return iter(self._leaders.values())

    def leader_count(self) -> int:
        """The number of partitions led here (Kafka's LeaderCount)."""
        return len(self._leaders)

    def has_log(self, partition: TopicPartition) -> bool:
        return partition in self.logs.logs

    def replica_size_bytes(self, partition: TopicPartition) -> int | None:
        if partition in self._missing:
            self._create_log(partition)
        log = self.logs.logs.get(partition)
        return None if log is None else log.size_bytes

    def is_creating_logs(self) -> bool:
        return bool(self._missing)

    def appended(self, leader_log: LeaderLog, record_count: int, size_bytes: int) -> None:
        self.records_in += record_count
        self.record_bytes_in += size_bytes
        self._group_commit.appended(leader_log.log)

    def replica_fetched(
        self, leader_log: LeaderLog, replica: BrokerId, broker_epoch: int, offset: Offset, log_start_offset: Offset
    ) -> None:
        self.roles.replica_fetched(leader_log, replica, broker_epoch, offset, log_start_offset)

    @property
    def change_position(self) -> int:
        return self._delayed_fetches.position

    def changed_since(self, position: int) -> Sequence[TopicPartition]:
        return self._delayed_fetches.changed_since(position)

    def readable_changed(self, partition: TopicPartition) -> None:
        self._delayed_fetches.changed(partition)

    def persist_log_starts(self, rising: Mapping[TopicPartition, Offset]) -> None:
        self.logs.checkpoint_log_starts(rising)

    def disk_bytes(self) -> tuple[int, int]:
        return self.directory.measure()

    def is_directory_offline(self) -> bool:
        return self.directory.is_offline


def _epoch_refusal(client_epoch: int, leader_epoch: int) -> ErrorCode | None:
    """The error for a client whose leader epoch is ``client_epoch``; None if it is right, or −1 (unknown)."""
    if client_epoch in (NO_LEADER_EPOCH, leader_epoch):
        return None
    return ErrorCode.FENCED_LEADER_EPOCH if client_epoch < leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
