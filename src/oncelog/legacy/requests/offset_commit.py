"""OffsetCommit, versions 0 and 1.

Version 0 is ZooKeeper's: the offset goes to ``/consumers/GROUP/offsets/TOPIC/PARTITION`` of the coordination tree, as
decimal digits, where consumers that balance through ZooKeeper have theirs too. In a tree that is not ZooKeeper's it
goes to the same path. No coordinator is asked.

Version 1 is the coordinator's, with a timestamp beside each offset: Apache Kafka 3.9 counts the retention of a commit
from it, today's and this broker's retention begins when a group is empty, so it is read and not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.offset_commit import handle as commit
from oncelog.legacy.requests.consumer_offsets import offset_path, write_offsets
from oncelog.wire.messages import offset_commit as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_GROUP_ID: "the group's name cannot be a node's (version 0)",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordination tree cannot be written now (version 0)",
}

_IN_KAFKA_SINCE: Final = 1


def handle(request: wire.OffsetCommitRequest, context: Context) -> Steps[wire.OffsetCommitResponse]:
    """Commit to the tree, or as with today's versions."""
    if context.version >= _IN_KAFKA_SINCE:
        return (yield from commit(request, context))
    allowed = context.allows_group(Operation.READ, request.group_id)
    response = wire.OffsetCommitResponse()
    written: dict[str, bytes] = {}
    accepted: list[wire.OffsetCommitResponsePartition] = []
    for topic in request.topics:
        answer = wire.OffsetCommitResponseTopic(name=topic.name)
        response.topics.append(answer)
        readable = allowed and context.allows_topic(Operation.READ, topic.name)
        for asked in topic.partitions:
            result = wire.OffsetCommitResponsePartition(partition_index=asked.partition_index)
            answer.partitions.append(result)
            partition = TopicPartition(TopicName(topic.name), asked.partition_index)
            path = offset_path(request.group_id, partition)
            result.error_code = _refusal(asked, partition, path, context)
            if not allowed:
                result.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            elif not readable:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif result.error_code == ErrorCode.NONE and path is not None:
                written[path] = b"%d" % asked.committed_offset
                accepted.append(result)
    if written and not (yield from write_offsets(written)):
        for result in accepted:
            result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response


def _refusal(
    asked: wire.OffsetCommitRequestPartition, partition: TopicPartition, path: str | None, context: Context
) -> ErrorCode:
    if not context.cluster.image.has_partition(partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(asked.committed_metadata or "") > context.cluster.config.get("offset.metadata.max.bytes"):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.INVALID_GROUP_ID if path is None else ErrorCode.NONE
