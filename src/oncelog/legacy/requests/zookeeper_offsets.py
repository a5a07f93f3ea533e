"""OffsetCommit, versions 0 and 1, and OffsetFetch, version 0: consumers that keep their offsets in ZooKeeper.

Version 0 of both is ZooKeeper's: an offset is the node ``/consumers/GROUP/offsets/TOPIC/PARTITION`` of the coordination
tree, in decimal digits, where Apache Kafka's consumers up to 1.1 that balance through ZooKeeper have theirs too. They
write the same nodes directly: whoever writes last counts, no version is compared. In a tree that is not ZooKeeper's it
is the same path. No coordinator is asked. An offset that is not there is −1 with UNKNOWN_TOPIC_OR_PARTITION, which
those clients take for "none".

OffsetCommit 1 is the coordinator's, with a timestamp beside each offset: Apache Kafka 3.9 counts the retention of a
commit from it, today's and this broker's retention begins when a group is empty, so it is read and not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.tree import ANY_VERSION, CommitOutcome, Create, Operation, Set
from oncelog.base.units import INT64_MAX
from oncelog.handlers import api
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import CommitMetadata, ReadNodes, Steps
from oncelog.handlers.groups.offset_commit import handle as commit_to_coordinator
from oncelog.wire.messages import offset_commit as commits
from oncelog.wire.messages import offset_fetch as fetches

COMMIT_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_GROUP_ID: "the group's name cannot be a node's (version 0)",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordination tree cannot be written now (version 0)",
}

_IN_KAFKA_SINCE: Final = 1


def commit(request: commits.OffsetCommitRequest, context: Context) -> Steps[commits.OffsetCommitResponse]:
    """Commit to the tree, or as with today's versions."""
    if context.version >= _IN_KAFKA_SINCE:
        return (yield from commit_to_coordinator(request, context))
    allowed = context.allows_group(api.Operation.READ, request.group_id)
    response = commits.OffsetCommitResponse()
    written: dict[str, bytes] = {}
    accepted: list[commits.OffsetCommitResponsePartition] = []
    for topic in request.topics:
        answer = commits.OffsetCommitResponseTopic(name=topic.name)
        response.topics.append(answer)
        readable = allowed and context.allows_topic(api.Operation.READ, topic.name)
        for asked in topic.partitions:
            result = commits.OffsetCommitResponsePartition(partition_index=asked.partition_index)
            answer.partitions.append(result)
            partition = TopicPartition(TopicName(topic.name), asked.partition_index)
            path = _offset_path(request.group_id, partition)
            result.error_code = _refusal(asked, partition, path, context)
            if not allowed:
                result.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            elif not readable:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif result.error_code == ErrorCode.NONE and path is not None:
                written[path] = b"%d" % asked.committed_offset
                accepted.append(result)
    if written and not (yield from _write_offsets(written)):
        for result in accepted:
            result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response


def _refusal(
    asked: commits.OffsetCommitRequestPartition, partition: TopicPartition, path: str | None, context: Context
) -> ErrorCode:
    if not context.cluster.image.has_partition(partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(asked.committed_metadata or "") > context.cluster.config.get("offset.metadata.max.bytes"):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.INVALID_GROUP_ID if path is None else ErrorCode.NONE


FETCH_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such partition, or the group has no offset of it",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordination tree cannot be read now",
}


def fetch(request: fetches.OffsetFetchRequest, context: Context) -> Steps[fetches.OffsetFetchResponse]:
    """Read the offsets from the tree."""
    allowed = context.allows_group(api.Operation.DESCRIBE, request.group_id)
    response = fetches.OffsetFetchResponse()
    wanted: dict[str, list[fetches.OffsetFetchResponsePartition]] = {}
    for topic in request.topics or ():
        answer = fetches.OffsetFetchResponseTopic(name=topic.name)
        response.topics.append(answer)
        refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not allowed:
            refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
        elif not context.allows_topic(api.Operation.DESCRIBE, topic.name):
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for index in topic.partition_indexes:
            result = fetches.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=refusal
            )
            answer.partitions.append(result)
            partition = TopicPartition(TopicName(topic.name), index)
            path = _offset_path(request.group_id, partition)
            known = refusal is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and context.cluster.image.has_partition(partition)
            if known and path is not None:
                wanted.setdefault(path, []).append(result)
    if wanted:
        found = yield from _read_offsets(list(wanted))
        for path, results in wanted.items():
            for result in results:
                if found is None:
                    result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                elif path in found:
                    result.committed_offset, result.error_code = found[path], ErrorCode.NONE
    return response


_ATTEMPTS: Final = 10
"""Each conflict means that somebody else has made or removed one of the nodes."""
_MOST_PATHS: Final = 500
"""Nodes of one commit, which is well below what ZooKeeper takes, or read while others wait for the tree."""
_MAX_NAME_CHARACTERS: Final = 255


def _offset_path(group_id: str, partition: TopicPartition) -> str | None:
    """The node of a group's offset; None where the group's name cannot be a node's."""
    if group_id in ("", ".", "..") or "/" in group_id or len(group_id) > _MAX_NAME_CHARACTERS:
        return None
    if not group_id.isprintable():
        return None
    return f"/consumers/{group_id}/offsets/{partition.topic}/{partition.partition}"


def _read_offsets(paths: Sequence[str]) -> Steps[Mapping[str, int] | None]:
    """The offsets that are there, by path; None where the tree cannot be read."""
    found: dict[str, int] = {}
    for start in range(0, len(paths), _MOST_PATHS):
        values: Mapping[str, bytes] | None = yield ReadNodes(paths[start : start + _MOST_PATHS])
        if values is None:
            return None
        found |= {path: offset for path, value in values.items() if (offset := _offset_of(value)) is not None}
    return found


def _offset_of(value: bytes) -> int | None:
    text = value.strip()
    if len(text) > len(str(INT64_MAX)) + 1:
        return None
    try:
        offset = int(text)
    except ValueError:
        return None
    return offset if -INT64_MAX <= offset <= INT64_MAX else None


def _write_offsets(values: Mapping[str, bytes]) -> Steps[bool]:
    """Write offsets, making the nodes that are not there; False where the tree could not be written."""
    paths = list(values)
    for start in range(0, len(paths), _MOST_PATHS):
        some = {path: values[path] for path in paths[start : start + _MOST_PATHS]}
        if not (yield from _write(some)):
            return False
    return True


def _write(values: Mapping[str, bytes]) -> Steps[bool]:
    parents = list(dict.fromkeys(parent for path in values for parent in _parents(path)))
    for _ in range(_ATTEMPTS):
        there: Mapping[str, bytes] | None = yield ReadNodes([*parents, *values])
        if there is None:
            return False
        operations: list[Operation] = [Create(parent, b"") for parent in parents if parent not in there]
        for path, value in values.items():
            if path not in there:
                operations.append(Create(path, value))
            elif there[path] != value:
                operations.append(Set(path, value, ANY_VERSION))
        if not operations:
            return True
        outcome: CommitOutcome = yield CommitMetadata(operations)
        if outcome is not CommitOutcome.CONFLICT:
            return outcome is CommitOutcome.COMMITTED
    return False


def _parents(path: str) -> Iterator[str]:
    """The nodes above, from the top."""
    at = path.find("/", 1)
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)
