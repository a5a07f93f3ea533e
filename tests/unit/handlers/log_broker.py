"""A broker for the handlers that read logs: real logs over files in memory, nothing else of a node."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar, cast

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, GroupId, LeaderEpoch, Offset, TopicId, TopicName, TopicPartition
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.topic import topic_config
from oncelog.core.controller.image.cluster_image import Brokers, ClusterImage
from oncelog.core.controller.image.model import BrokerImage, PartitionImage, TopicImage
from oncelog.core.groups.shard import GroupShard
from oncelog.core.replicas.leader import LeaderReplicas
from oncelog.core.sessions.fetch import FetchSessions
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.audit import AuditRecord
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.limits import ReplicationLimit
from oncelog.handlers.broker.ports import FollowerLog, LeaderLog
from oncelog.handlers.broker.waits import Steps, UntilReadable
from oncelog.node.replication.partitions import log_config
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage.log.append import Appended, append_batch
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log_config import LogConfig
from oncelog.storage.log_directory import LogDirectory
from tests.unit.handlers.no_limits import NO_LIMIT, UNLIMITED

NOW_MS = 1_700_000_000_000
ME = BrokerId(1)
R = TypeVar("R")


def topic_id_of(name: str) -> TopicId:
    """The id of a topic of :class:`LogBroker`."""
    return TopicId(name.encode().ljust(16, b".")[:16])


class LogBroker:
    """Implements the ports of handlers, but for coordinators; topics are added with :meth:`add_topic`."""

    def __init__(self, *, slots: int = 10, config: dict[str, str] | None = None) -> None:
        entropy = random.Random(1)
        self.broker_id = ME
        self.quotas = UNLIMITED
        self.failed_brokers: frozenset[BrokerId] = frozenset()
        self.departed_brokers: Brokers = {}
        self.leader_throttle: ReplicationLimit = NO_LIMIT
        self.cluster_id = "cluster"
        self.config = BrokerConfig(config)
        self.image = ClusterImage(brokers={ME: BrokerImage(ME, "advertised", 9092, None, 0)})
        self.random_bytes = entropy.randbytes
        self.fetch_sessions = FetchSessions(slots, entropy.randbytes)
        self.logs = LogDirectory.open(MemoryFiles(), config_of=lambda _: LogConfig(), now_ms=NOW_MS)
        self.changed: list[TopicPartition] = []
        self.audited: list[AuditRecord] = []
        self.unverified = 0

    def add_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        leader_epoch: int = 0,
        topic_id: TopicId | None = None,
        **config: object,
    ) -> None:
        """A topic that this broker leads, with its logs."""
        topic = TopicName(name)
        topic_id = topic_id or topic_id_of(name)
        values = {key.replace("_", "."): str(value) for key, value in config.items()}
        log = log_config(topic_config(BrokerConfig({}), values))
        for index in range(partitions):
            key = TopicPartition(topic, index)
            if key not in self.logs.logs:
                self.logs.create(key, topic_id, log, now_ms=NOW_MS)
        image = PartitionImage(ME, LeaderEpoch(leader_epoch), (ME,), (ME,))
        described = TopicImage(topic, topic_id, (image,) * partitions)
        self.image = ClusterImage(
            topics={**self.image.topics, topic: described},
            topic_names={**self.image.topic_names, topic_id: topic},
            brokers=self.image.brokers,
        )

    def audit(self, record: AuditRecord) -> None:
        self.audited.append(record)

    def verification_failed(self, partition_count: int) -> None:
        self.unverified += partition_count

    def append(
        self,
        name: str,
        partition: int = 0,
        values: Iterable[bytes] = (b"v",),
        *,
        timestamp: int = NOW_MS,
        **batch: object,
    ) -> Appended:
        """Append one batch of records and make it readable."""
        log = self.logs.logs[TopicPartition(TopicName(name), partition)]
        records = [Record(-1, timestamp + i, b"k", value) for i, value in enumerate(values)]
        codec = cast("Codec", batch.pop("codec", Codec.NONE))
        data = build_batch(records, codec=codec, **batch)  # type: ignore[arg-type]  # keywords of build_batch
        return self.append_bytes(log, data, internal=bool(batch))

    def append_bytes(self, log: PartitionLog, data: bytearray, *, internal: bool = True) -> Appended:
        """Append a batch as it is and make it readable."""
        epoch = self.leader_epoch(log.partition)
        appended = append_batch(log, memoryview(data), now_ms=NOW_MS, leader_epoch=epoch, internal=internal)
        log.set_high_watermark(log.log_end_offset)
        return appended

    def leader_log(self, partition: TopicPartition, current_leader_epoch: int = -1) -> LeaderLog | ErrorCode:
        log, epoch = self.logs.logs.get(partition), self.leader_epoch(partition)
        if log is None:
            exists = self.image.has_partition(partition)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if current_leader_epoch not in (-1, epoch):
            is_older = current_leader_epoch < epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
        return LeaderLog(partition, log, epoch, LeaderReplicas(ME, (ME,), (ME,), log.high_watermark))

    def follower_log(self, partition: TopicPartition, current_leader_epoch: int = -1) -> FollowerLog | ErrorCode:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def is_creating_logs(self) -> bool:
        return False

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch:
        result = self.image.partition(partition)
        return LeaderEpoch(-1) if result is None else result.leader_epoch

    def persist_log_starts(self, rising: Mapping[TopicPartition, Offset]) -> None:
        self.logs.checkpoint_log_starts(rising)

    def is_loading(self) -> bool:
        return False

    def appended(self, leader_log: LeaderLog, record_count: int, size_bytes: int) -> None:
        self.changed.append(leader_log.partition)

    def readable_changed(self, partition: TopicPartition) -> None:
        self.changed.append(partition)


class NoGroups:
    """The port of a broker that coordinates no group."""

    def shards(self) -> Iterable[GroupShard]:
        return ()

    def refusal(self, group_id: GroupId) -> ErrorCode:
        return ErrorCode.NOT_COORDINATOR


class Allows:
    """Allows everything but what is named: (operation, resource name)."""

    def __init__(self, *denied: tuple[Operation, str]) -> None:
        self._denied = denied

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return (operation, name) not in self._denied

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        return True


def context_of(broker: LogBroker, api_key: int, version: int, *denied: tuple[Operation, str]) -> Context:
    """A request's circumstances."""
    return Context(
        partitions=broker,  # type: ignore[arg-type]  # only what the handlers of logs ask for
        groups=NoGroups(),
        transactions=broker,  # type: ignore[arg-type]
        cluster=broker,
        authoriser=Allows(*denied),
        api_key=api_key,
        version=version,
        connection_id=1,
        client_id="client",
        client_host="/127.0.0.1",
        principal="User:ANONYMOUS",
        listener=("127.0.0.1", 19092),
        now_ms=NOW_MS,
    )


def answered(steps: Steps[R]) -> R:
    """The response of a handler that does not wait."""
    try:
        wait = next(steps)
    except StopIteration as done:
        return cast("R", done.value)
    raise AssertionError(f"it waits: {wait}")


class Parked(Generic[R]):
    """A handler that waits: what for, and how it goes on."""

    def __init__(self, steps: Steps[R]) -> None:
        self._steps = steps
        self.wait = cast("UntilReadable", next(steps))

    def is_ready(self) -> bool:
        """True if a change of its partitions ends the wait."""
        return self.wait.ready(self.wait.partitions or ())

    def resume(self) -> R:
        """Let the wait be over; the response."""
        try:
            self._steps.send(None)
        except StopIteration as done:
            return cast("R", done.value)
        raise AssertionError("waits again")
