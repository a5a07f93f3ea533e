"""CreateTopics, DeleteTopics, CreatePartitions, Metadata, DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oncelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from oncelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.peers.clients.sweep.wire import NOWHERE, Sweep, Wire, versions


def _new(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def _assigned(name: str, *brokers: list[int], first: int = 0) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=first + index, broker_ids=ids) for index, ids in enumerate(brokers)
    ]
    return _new(name, -1, -1, assignments=assignments)


def _configured(name: str, **configs: str | None) -> CreatableTopic:
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return _new(name, configs=entries)


def _candidates(version: int) -> Iterator[list[CreatableTopic]]:
    name = f"st-{version}"
    yield [_new(f"{name}-plain", 3)]
    yield [_new(f"{name}-plain", 3)]
    yield [_new(f"{name}-default", -1, -1)]
    for bad in ("", ".", "..", "with space", "slash/name", "x" * 250, "ünicode"):
        yield [_new(bad)]
    yield [_new(f"{name}.dots"), _new(f"{name}_dots")]
    yield [_new(f"{name}-twice"), _new(f"{name}-twice")]
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, 2), (1, -2), (-1, 3)):
        yield [_new(f"{name}-refused", partitions, replicas)]
    yield [_assigned(f"{name}-assigned", [1], [1])]
    yield [_assigned(f"{name}-strange", [9])]
    yield [_assigned(f"{name}-double", [1, 1])]
    yield [_assigned(f"{name}-gap", [1], first=1)]
    yield [_assigned(f"{name}-none", [])]
    both = _assigned(f"{name}-both", [1])
    both.num_partitions = 1
    yield [both]
    yield [_configured(f"{name}-configured", cleanup_policy="compact", retention_ms="100")]
    for configs in (
        {"retention_ms": "x"},
        {"retention_ms": "-2"},
        {"no_such_key": "1"},
        {"cleanup_policy": "burn"},
        {"retention_ms": None},
        {"segment_bytes": "1"},
        {"compression_type": "brotli"},
        {"min_insync_replicas": "0"},
        {"max_message_bytes": "99999999999"},
        {"message_timestamp_type": "Now"},
        {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"},
    ):
        yield [_configured(f"{name}-misconfigured", **configs)]
    yield [_new(f"{name}-good"), _new("bad name"), _configured(f"{name}-bad", no_key="1")]
    yield [_new("__consumer_offsets")]
    yield []


def _create_topics(wire: Wire) -> None:
    for version in versions(CreateTopicsRequest):
        for topics in _candidates(version):
            wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=True), version)
            wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), version)
        wire.call(CreateTopicsRequest(topics=[_new(f"st-{version}-hurried")], timeout_ms=0), version)


def _delete_topics(wire: Wire) -> None:
    for version in versions(DeleteTopicsRequest):
        identities = {name: wire.topic(f"{name}-{version}") for name in ("st-a", "st-b", "st-c")}
        first, second, third = (f"{name}-{version}" for name in identities)

        def delete(names: list[str | None], identity: bytes = bytes(16), at: int = version) -> None:
            states = [DeleteTopicState(name=name, topic_id=identity) for name in names]
            given = [name for name in names if name is not None]
            wire.call(DeleteTopicsRequest(topic_names=given, topics=states, timeout_ms=10_000), at)

        delete([first])
        delete([first])
        delete([second, "st-nowhere", ""])
        delete(["st c", third, third])
        delete([])
        if version >= 6:
            delete([None], identities["st-c"])
            delete([None], NOWHERE)
            delete([third], identities["st-c"])
            delete([None])


def _create_partitions(wire: Wire) -> None:
    wire.topic("st-grow")
    count = 1
    for version in versions(CreatePartitionsRequest):
        for validate_only in (True, False):
            for name, expected, brokers in (
                ("st-grow", count + 1, None),
                ("st-grow", count + 2, [[1]]),
                ("st-grow", count + 3, [[1], [1]]),
                ("st-grow", count + 4, [[7]]),
                ("st-grow", count, None),
                ("st-grow", 0, None),
                ("st-grow", -1, None),
                ("st-nowhere", 3, None),
                ("", 3, None),
            ):
                assignments = (
                    None if brokers is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers]
                )
                topic = CreatePartitionsTopic(name=name, count=expected, assignments=assignments)
                request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=validate_only)
                wire.call(request, version)
        twice = [CreatePartitionsTopic(name="st-grow", count=50, assignments=None)] * 2
        wire.call(CreatePartitionsRequest(topics=twice, timeout_ms=10_000), version)
        count = 10 * (version + 1)
        topic = CreatePartitionsTopic(name="st-grow", count=count, assignments=None)
        wire.call(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), version)


def _metadata(wire: Wire) -> None:
    topic_id = wire.topic("st-known", 2)
    for version in versions(MetadataRequest):

        def ask(*names: str | None, identity: bytes = bytes(16), at: int = version, **fields: Any) -> None:
            topics = [MetadataRequestTopic(name=name, topic_id=identity) for name in names]
            values = {"allow_auto_topic_creation": False, **fields}
            wire.call(MetadataRequest(topics=topics, **values), at)

        ask("st-known")
        if version >= 4:
            ask("st-nowhere", "st-known", "with space", "")
        ask(f"st-created-{version}", allow_auto_topic_creation=True)
        ask(f"st-created-{version}")
        ask("with space", allow_auto_topic_creation=True)
        ask()
        if version >= 1:
            wire.call(MetadataRequest(topics=None), version)
        if version >= 8:
            flags: dict[str, Any] = {"include_topic_authorized_operations": True}
            if version <= 10:
                flags["include_cluster_authorized_operations"] = True
            ask("st-known", **flags)
        if version >= 10:
            ask("st-known", identity=topic_id)
        if version >= 12:
            ask(None, identity=topic_id)
            ask(None, identity=NOWHERE)
            ask(None)


def _describe_topic_partitions(wire: Wire) -> None:
    wire.topic("st-wide", 5)
    wire.topic("st-other", 2)
    for version in versions(DescribeTopicPartitionsRequest):
        for names, limit, cursor in (
            (["st-wide", "st-other"], 2000, None),
            (["st-wide", "st-other"], 3, None),
            (["st-wide", "st-other"], 3, ("st-wide", 1)),
            (["st-wide", "st-other"], 4, ("st-other", 0)),
            (["st-wide"], 10, ("st-wide", 4)),
            (["st-wide"], 10, ("st-wide", 9)),
            (["st-wide"], 10, ("st-wide", -1)),
            (["st-nowhere", "st-wide"], 10, None),
            (["with space"], 10, None),
            (["st-wide"], 0, None),
            ([], 2000, None),
        ):
            position = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
            topics = [TopicRequest(name=name) for name in names]
            wire.call(
                DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=position), version
            )


SWEEPS: Final[dict[str, Sweep]] = {
    "create-topics": _create_topics,
    "delete-topics": _delete_topics,
    "create-partitions": _create_partitions,
    "metadata": _metadata,
    "describe-topic-partitions": _describe_topic_partitions,
}
