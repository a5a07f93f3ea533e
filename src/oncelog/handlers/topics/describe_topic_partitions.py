"""DescribeTopicPartitions, version 0 (KIP-966): topics by name, a limited number of partitions a page. The cursor names
the first partition of the next page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_BROKER, TopicName
from oncelog.core.controller.image.cluster_image import Brokers, PartitionImage, TopicImage, is_alive
from oncelog.core.controller.replicas.replica_sets import described_sets
from oncelog.core.controller.topic_names import is_internal, name_refusal
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.leaders import reachable_brokers
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.wire.messages import describe_topic_partitions as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic cannot have this name",
    ErrorCode.INVALID_REQUEST: "the cursor's topic is not among those asked for, or its partition is negative",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe the topic",
}


_TOPICS_PER_SLICE: Final = 1000


def handle(
    request: wire.DescribeTopicPartitionsRequest, context: Context
) -> Steps[wire.DescribeTopicPartitionsResponse]:
    all_topics = not request.topics
    cursor = request.cursor
    first_topic = "" if cursor is None else cursor.topic_name
    requested = (
        context.cluster.image.topics if all_topics else {TopicName(topic.name): None for topic in request.topics}
    )
    names = sorted(name for name in requested if name >= first_topic)
    if cursor is not None and (cursor.partition_index < 0 or (not all_topics and first_topic not in names)):
        return _refuse(request)
    may_see = context.allows_topic_silently if all_topics else context.allows_topic
    visible = [name for name in names if may_see(Operation.DESCRIBE, name)]
    limit = max(
        1, min(request.response_partition_limit, context.cluster.config.get("max.request.partition.size.limit"))
    )
    hidden = [] if all_topics else sorted(set(names) - set(visible))
    return (yield from _page(context, visible, cursor, limit, hidden))


def _page(
    context: Context, names: Sequence[TopicName], cursor: wire.Cursor | None, limit: int, hidden: Sequence[TopicName]
) -> Steps[wire.DescribeTopicPartitionsResponse]:
    """The page, in slices; topics of ``hidden`` may not be seen."""
    response = wire.DescribeTopicPartitionsResponse()
    left = limit
    for number, name in enumerate(names):
        if number % _TOPICS_PER_SLICE == _TOPICS_PER_SLICE - 1:
            yield NextSlice()
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left == 0:
            response.next_cursor = wire.Cursor(topic_name=name, partition_index=start)
            break
        topic = context.cluster.image.topics.get(name)
        if topic is None:
            is_invalid = name_refusal(name) is not None
            error = ErrorCode.INVALID_TOPIC_EXCEPTION if is_invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            described = _error(name, error)
        else:
            described = _describe(topic, context.cluster.image.brokers, reachable_brokers(context), start, left)
            left -= len(described.partitions)
        described.topic_authorized_operations = context.allowed_operations(ResourceType.TOPIC, name)
        response.topics.append(described)
        end = start + len(described.partitions)
        if topic is not None and end < len(topic.partitions):
            response.next_cursor = wire.Cursor(topic_name=name, partition_index=end)
            break
    response.topics.extend(_error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in hidden)
    return response


def _describe(
    topic: TopicImage, brokers: Brokers, reachable: Brokers, start: int, limit: int
) -> wire.DescribeTopicPartitionsResponseTopic:
    page = topic.partitions[start : start + limit]
    return wire.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(index, partition, brokers, reachable) for index, partition in enumerate(page, start)],
    )


def _partition(
    index: int, partition: PartitionImage, brokers: Brokers, reachable: Brokers
) -> wire.DescribeTopicPartitionsResponsePartition:
    isr, elr = described_sets(partition, brokers)
    return wire.DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=partition.leader if is_alive(reachable, partition.leader) else NO_BROKER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=isr,
        eligible_leader_replicas=elr,
        last_known_elr=list(partition.isr) if not isr and len(partition.isr) == 1 else [],
        offline_replicas=[replica for replica in partition.replicas if not is_alive(reachable, replica)],
    )


def _error(name: str, error_code: ErrorCode) -> wire.DescribeTopicPartitionsResponseTopic:
    return wire.DescribeTopicPartitionsResponseTopic(error_code=error_code, name=name, is_internal=is_internal(name))


def _refuse(request: wire.DescribeTopicPartitionsRequest) -> wire.DescribeTopicPartitionsResponse:
    topics = [_error(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics]
    return wire.DescribeTopicPartitionsResponse(topics=topics)
