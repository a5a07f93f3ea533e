"""The data directory; a broker has exactly one.

DescribeLogDirs, versions 1 to 5 (KIP-113, KIP-827, KIP-1066): sizes of its partitions.

AlterReplicaLogDirs, versions 1 to 2 (KIP-113): moves of replicas between directories. A move to the present directory
does nothing; every other directory is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.time_slices import SliceBudget
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from oncelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

DESCRIBE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster (version 3)",
    ErrorCode.KAFKA_STORAGE_ERROR: "(directory) its disk is full",
}

_ERROR_SINCE: Final = 3


def describe(request: DescribeLogDirsRequest, context: Context) -> Steps[DescribeLogDirsResponse]:
    if not context.allows_cluster(Operation.DESCRIBE):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if context.version >= _ERROR_SINCE else ErrorCode.NONE
        return DescribeLogDirsResponse(error_code=error)
    return (yield from _describe(_requested_partitions(request, context), context))


def _describe(partitions: Iterable[TopicPartition], context: Context) -> Steps[DescribeLogDirsResponse]:
    budget = SliceBudget(context.partitions)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in partitions:
        size_bytes = context.partitions.replica_size_bytes(partition)
        if size_bytes is not None:
            topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
            topic.partitions.append(
                DescribeLogDirsPartition(partition_index=partition.partition, partition_size=size_bytes)
            )
        if budget.spent():
            yield NextSlice()
    total_bytes, usable_bytes = context.partitions.disk_bytes()
    offline = context.partitions.is_directory_offline()
    result = DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NONE,
        log_dir=context.cluster.config.data_directory,
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(results=[result])


def _requested_partitions(request: DescribeLogDirsRequest, context: Context) -> Iterator[TopicPartition]:
    if request.topics is None:
        for topic in list(context.cluster.image.topics.values()):  # a copy: topics may change between two slices
            for index in range(len(topic.partitions)):
                yield TopicPartition(topic.name, index)
        return
    seen: set[TopicPartition] = set()
    for requested in request.topics:
        for index in requested.partitions:
            partition = TopicPartition(TopicName(requested.topic), index)
            if partition not in seen:
                seen.add(partition)
                yield partition


ALTER_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.REPLICA_NOT_AVAILABLE: "this broker has no replica of the partition",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic's name is too long for the directory of a move",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
    ErrorCode.KAFKA_STORAGE_ERROR: "the data directory is offline: its disk is full",
    ErrorCode.LOG_DIR_NOT_FOUND: "not the data directory of this broker",
}

_MAX_FILE_NAME: Final = 255
_MOVE_SUFFIX: Final = len(".-future") + 32
"""Characters that Apache Kafka appends to the name of a directory that is being moved."""


def alter(request: AlterReplicaLogDirsRequest, context: Context) -> Steps[AlterReplicaLogDirsResponse]:
    """Answer each partition; for one named twice, the last directory counts."""
    allowed = context.allows_cluster(Operation.ALTER)
    budget = SliceBudget(context.partitions)
    targets: dict[TopicPartition, str] = {}
    for partition, path in _moves(request):
        targets[partition] = path
        if budget.spent():
            yield NextSlice()
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for partition, path in targets.items():
        error = _error(partition, path, context) if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        topic = results.setdefault(partition.topic, AlterReplicaLogDirTopicResult(topic_name=partition.topic))
        topic.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=partition.partition, error_code=error)
        )
        if budget.spent():
            yield NextSlice()
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _moves(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[TopicPartition, str]]:
    for directory in request.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                yield TopicPartition(TopicName(topic.name), partition), directory.path


def _error(partition: TopicPartition, path: str, context: Context) -> ErrorCode:
    if len(f"{partition.topic}-{partition.partition}") + _MOVE_SUFFIX > _MAX_FILE_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != context.cluster.config.data_directory:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if context.partitions.is_directory_offline():
        return ErrorCode.KAFKA_STORAGE_ERROR
    if context.partitions.replica_size_bytes(partition) is not None:
        return ErrorCode.NONE
    topic = context.cluster.image.topics.get(partition.topic)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.REPLICA_NOT_AVAILABLE
