"""OffsetDelete, version 0 (KIP-496): delete single offsets of a group that does not consume the topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, TopicName, TopicPartition
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages import offset_delete as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group",
    ErrorCode.NON_EMPTY_GROUP: 'the group has members, and is not of the type "consumer"',
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member consumes the topic",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to read the topic",
}


def handle(request: wire.OffsetDeleteRequest, context: Context) -> Steps[wire.OffsetDeleteResponse]:
    if not context.allows_group(Operation.DELETE, request.group_id):
        return wire.OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return wire.OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    refused: dict[TopicPartition, ErrorCode] = {}
    accepted: dict[TopicPartition, None] = {}
    for topic in request.topics:
        allowed = context.allows_topic(Operation.READ, topic.name)
        for part in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), part.partition_index)
            if not allowed:
                refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not context.cluster.image.has_partition(partition):
                refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                accepted[partition] = None
    group_id = GroupId(request.group_id)
    # Called even without accepted partitions: the group's own error has precedence.
    reply: list[ErrorCode] | ErrorCode = yield from ask(
        group_id, lambda shard, token, now_ms: shard.delete_offsets(group_id, list(accepted), token, now_ms), ErrorCode
    )
    if isinstance(reply, ErrorCode):
        return wire.OffsetDeleteResponse(error_code=reply)
    topics: dict[TopicName, wire.OffsetDeleteResponseTopic] = {}
    for partition, error in [*refused.items(), *zip(accepted, reply, strict=True)]:
        entry = topics.setdefault(partition.topic, wire.OffsetDeleteResponseTopic(name=partition.topic))
        entry.partitions.append(
            wire.OffsetDeleteResponsePartition(partition_index=partition.partition, error_code=error)
        )
    return wire.OffsetDeleteResponse(topics=list(topics.values()))
