"""OffsetFetch, version 0: offsets out of the coordination tree, where ``offset_commit`` of version 0 and consumers that
balance through ZooKeeper write them. One that is not there is offset −1 with UNKNOWN_TOPIC_OR_PARTITION, which those
clients take for "none"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.legacy.requests.consumer_offsets import offset_path, read_offsets
from oncelog.wire.messages import offset_fetch as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such partition, or the group has no offset of it",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordination tree cannot be read now",
}


def handle(request: wire.OffsetFetchRequest, context: Context) -> Steps[wire.OffsetFetchResponse]:
    """Read the offsets from the tree."""
    allowed = context.allows_group(Operation.DESCRIBE, request.group_id)
    response = wire.OffsetFetchResponse()
    wanted: dict[str, list[wire.OffsetFetchResponsePartition]] = {}
    for topic in request.topics or ():
        answer = wire.OffsetFetchResponseTopic(name=topic.name)
        response.topics.append(answer)
        refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not allowed:
            refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
        elif not context.allows_topic(Operation.DESCRIBE, topic.name):
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for index in topic.partition_indexes:
            result = wire.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=refusal
            )
            answer.partitions.append(result)
            partition = TopicPartition(TopicName(topic.name), index)
            path = offset_path(request.group_id, partition)
            known = refusal is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and context.cluster.image.has_partition(partition)
            if known and path is not None:
                wanted.setdefault(path, []).append(result)
    if wanted:
        found = yield from read_offsets(list(wanted))
        for path, results in wanted.items():
            for result in results:
                _tell(result, None if found is None else found.get(path), is_read=found is not None)
    return response


def _tell(result: wire.OffsetFetchResponsePartition, offset: int | None, *, is_read: bool) -> None:
    if not is_read:
        result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif offset is not None:
        result.committed_offset = offset
        result.error_code = ErrorCode.NONE
