"""Lists, describes, creates, alters and deletes topics (KIP-4, KIP-195, KIP-107).

Changes go to the controller. Functions for one topic raise its refusal; functions for several return an outcome for
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TopicName, TopicPartition, uuid_text
from oncelog.client.errors import BrokerRefused, UnknownTopic, explain
from oncelog.client.machine.metadata import TopicInfo
from oncelog.client.machine.requests import EARLIEST, LATEST
from oncelog.client.programs import Cluster, Program, call, operation, raise_for_error
from oncelog.client.programs.log_offsets import list_offsets
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

BROKER_DEFAULT = -1
"""The number of partitions or replicas from the broker's configuration (KIP-464)."""
_FIRST_VERSION_WITH_DEFAULTS = 4


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in a list. ``topic_id`` is None on brokers that predate topic ids."""

    name: str
    topic_id: str | None
    partitions: int
    replication_factor: int
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition; ``leader`` and the offsets are None while it has no leader."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    earliest: int | None = None
    latest: int | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    topic: TopicRow
    partitions: list[PartitionRow]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. ``assignment`` maps partitions to brokers, and replaces the two numbers."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    error: str | None = None
    error_code: int = 0


@operation
def list_topics(cluster: Cluster, *, internal: bool = True) -> Program[list[TopicRow]]:
    topics = yield from cluster.metadata(None)
    rows = (_row(topic) for topic in topics.values() if internal or not topic.is_internal)
    return sorted(rows, key=lambda row: row.name)


@operation
def describe_topics(
    cluster: Cluster, names: Iterable[str] | None = None, *, offsets: bool = True
) -> Program[list[TopicDescription]]:
    """Topics (all for None) with their partitions and (``offsets``) first and next offsets. Raises UnknownTopic."""
    topics: dict[TopicName, TopicInfo] = {}
    if names is None:
        topics = yield from cluster.metadata(None)
    for name in names or ():
        topics[TopicName(name)] = yield from cluster.topic(name)
    led = [
        TopicPartition(topic.name, partition.partition)
        for topic in topics.values()
        for partition in topic.partitions.values()
        if partition.leader >= 0
    ]
    earliest = (yield from list_offsets(cluster, dict.fromkeys(led, EARLIEST))) if offsets else {}
    latest = (yield from list_offsets(cluster, dict.fromkeys(led, LATEST))) if offsets else {}
    described = []
    for topic in sorted(topics.values(), key=lambda topic: topic.name):
        rows = []
        for partition in topic.partitions.values():
            at = TopicPartition(topic.name, partition.partition)
            rows.append(
                PartitionRow(
                    topic.name,
                    partition.partition,
                    partition.leader if partition.leader >= 0 else None,
                    partition.leader_epoch,
                    partition.replicas,
                    partition.isr,
                    partition.offline,
                    earliest[at].offset if at in earliest else None,
                    latest[at].offset if at in latest else None,
                )
            )
        described.append(TopicDescription(_row(topic), rows))
    return described


@operation
def create_topic(
    cluster: Cluster, new: NewTopic, *, validate_only: bool = False, timeout_ms: int = 30_000
) -> Program[TopicRow]:
    """Create a topic. Returns it as created. Raises BrokerRefused."""

    def attempt() -> Program[TopicRow]:
        message = _create_request(new, validate_only, timeout_ms)
        link = yield from cluster.link("controller")
        version = link.versions.choose(message)
        if version < _FIRST_VERSION_WITH_DEFAULTS and not new.assignment:
            # Before KIP-464 the client has to choose: 1 is Apache Kafka's default.
            for topic in message.topics:
                topic.num_partitions = max(topic.num_partitions, 1)
                topic.replication_factor = max(topic.replication_factor, 1)
        response = yield from call(link, message, version, timeout_ms + cluster.config.request_timeout_ms)
        result = response.topics[0]
        raise_for_error(result, f"topic {new.name!r}")
        cluster.view.forget(new.name)
        return TopicRow(
            result.name,
            _id_text(result.topic_id),
            max(result.num_partitions, new.partitions, len(new.assignment)),
            max(result.replication_factor, new.replication_factor),
            False,
        )

    return (yield from cluster.retrying(attempt))


@operation
def ensure_topic(cluster: Cluster, new: NewTopic) -> Program[bool]:
    """Create a topic unless it exists, and wait until a broker knows it. Returns True if it was created. Raises
    BrokerRefused."""
    created = True
    try:
        yield from create_topic(cluster, new)
    except BrokerRefused as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        created = False
        cluster.view.forget(new.name)
    yield from cluster.topic(new.name)
    return created


@operation
def delete_topics(cluster: Cluster, names: Iterable[str], *, timeout_ms: int = 30_000) -> Program[list[Outcome]]:
    """Delete topics. Returns an outcome for each, in the order of ``names``."""
    ordered = list(dict.fromkeys(names))
    message = DeleteTopicsRequest(
        # Versions below 6 name topics by ``topic_names``, later ones by ``topics``.
        topic_names=ordered,
        topics=[DeleteTopicState(name=name) for name in ordered],
        timeout_ms=timeout_ms,
    )

    def attempt() -> Program[list[Outcome]]:
        response = yield from cluster.request(
            message, broker="controller", timeout_ms=timeout_ms + cluster.config.request_timeout_ms
        )
        results = {response_topic.name: response_topic for response_topic in response.responses}
        if any(result.error_code == ErrorCode.NOT_CONTROLLER for result in results.values()):
            # Raising makes ``retrying`` look the controller up again.
            raise BrokerRefused(ErrorCode.NOT_CONTROLLER, "delete topics")
        for name in ordered:
            cluster.view.forget(name)
        return [
            Outcome(name, _error_text(results[name].error_code, results[name].error_message), results[name].error_code)
            for name in ordered
            if name in results
        ]

    return (yield from cluster.retrying(attempt))


@operation
def add_partitions(
    cluster: Cluster, name: str, total: int, *, validate_only: bool = False, timeout_ms: int = 30_000
) -> Program[None]:
    """Raise the number of partitions to ``total``. Raises BrokerRefused; brokers refuse to lower it."""
    topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
    message = CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=validate_only)

    def attempt() -> Program[None]:
        response = yield from cluster.request(
            message, broker="controller", timeout_ms=timeout_ms + cluster.config.request_timeout_ms
        )
        result = response.results[0]
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(f"topic {name!r}")
        raise_for_error(result, f"topic {name!r}")
        cluster.view.forget(name)

    yield from cluster.retrying(attempt)


@operation
def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], *, timeout_ms: int = 30_000
) -> Program[dict[TopicPartition, int]]:
    """Delete the records before an offset (−1: all). Returns the new first offset of each partition."""
    done: dict[TopicPartition, int] = {}

    def attempt() -> Program[None]:
        # A retry asks only for partitions without an answer.
        led = yield from cluster.by_leader(p for p in before if p not in done)
        for broker, partitions in led.items():
            by_topic: dict[TopicName, list[DeleteRecordsPartition]] = {}
            for partition in partitions:
                part = DeleteRecordsPartition(partition_index=partition.partition, offset=before[partition])
                by_topic.setdefault(partition.topic, []).append(part)
            topics = [DeleteRecordsTopic(name=topic, partitions=parts) for topic, parts in by_topic.items()]
            response = yield from cluster.request(
                DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), broker=broker
            )
            for topic in response.topics:
                for result in topic.partitions:
                    at = TopicPartition(TopicName(topic.name), result.partition_index)
                    raise_for_error(result, f"delete records of {at}")
                    done[at] = result.low_watermark

    yield from cluster.retrying(attempt)
    return done


def _row(topic: TopicInfo) -> TopicRow:
    replicas = max((len(partition.replicas) for partition in topic.partitions.values()), default=0)
    return TopicRow(topic.name, _id_text(topic.topic_id), len(topic.partitions), replicas, topic.is_internal)


def _id_text(topic_id: bytes) -> str | None:
    return None if topic_id == NO_TOPIC_ID else uuid_text(topic_id)


def _create_request(new: NewTopic, validate_only: bool, timeout_ms: int) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=new.name,
        num_partitions=BROKER_DEFAULT if new.assignment else new.partitions,
        replication_factor=BROKER_DEFAULT if new.assignment else new.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in sorted(new.assignment.items())
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in new.configs.items()],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=validate_only)


def _error_text(code: int, message: str | None) -> str | None:
    if code == ErrorCode.NONE:
        return None
    # Apache Kafka sends "This server does not host this topic-partition."
    return explain(code) if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else message or explain(code)
