"""DescribeLogDirs, versions 1 to 5 (KIP-113, KIP-827, KIP-1066): sizes of the partitions in the data directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.slices import SliceBudget
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster (version 3)",
    ErrorCode.KAFKA_STORAGE_ERROR: "(directory) its disk is full",
}

_ERROR_SINCE: Final = 3


def handle(request: DescribeLogDirsRequest, context: Context) -> Steps[DescribeLogDirsResponse]:
    """All partitions this broker has, or those asked for that it has."""
    if not context.allows_cluster(Operation.DESCRIBE):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if context.version >= _ERROR_SINCE else ErrorCode.NONE
        return DescribeLogDirsResponse(error_code=error)
    return (yield from _describe(_wanted(request, context), context))


def _describe(wanted: Iterable[TopicPartition], context: Context) -> Steps[DescribeLogDirsResponse]:
    budget = SliceBudget(context.partitions)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in wanted:
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


def _wanted(request: DescribeLogDirsRequest, context: Context) -> Iterator[TopicPartition]:
    """The partitions that are asked for, each once; others may have their turn between any two of them."""
    if request.topics is None:
        for topic in list(context.cluster.image.topics.values()):  # topics may come and go meanwhile
            for partition in range(len(topic.partitions)):
                yield TopicPartition(topic.name, partition)
        return
    given: set[TopicPartition] = set()
    for wanted in request.topics:
        for index in wanted.partitions:
            named = TopicPartition(TopicName(wanted.topic), index)
            if named not in given:
                given.add(named)
                yield named
