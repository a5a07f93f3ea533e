"""OffsetCommit versions 0 and 1, and OffsetFetch version 0, from when consumers kept their offsets in ZooKeeper.

Version 0 of both uses the coordination tree, without a coordinator: an offset is the node
``/consumers/GROUP/offsets/TOPIC/PARTITION``, in decimal digits. In ZooKeeper these nodes are shared with consumers of
Apache Kafka up to 1.1, which write them directly: the last write wins, versions are not compared. A missing offset is
−1 with UNKNOWN_TOPIC_OR_PARTITION, which these clients understand as "none".

OffsetCommit 1 goes to the coordinator. Its timestamp for each offset, where retention starts in Apache Kafka 3.9, is
ignored: in current versions and here retention starts when the group becomes empty.
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
    """Commit to the tree (version 0), or to the coordinator as in current versions."""
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
        for requested in topic.partitions:
            result = commits.OffsetCommitResponsePartition(partition_index=requested.partition_index)
            answer.partitions.append(result)
            partition = TopicPartition(TopicName(topic.name), requested.partition_index)
            path = _offset_path(request.group_id, partition)
            result.error_code = _refusal(requested, partition, path, context)
            if not allowed:
                result.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            elif not readable:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif result.error_code == ErrorCode.NONE and path is not None:
                written[path] = b"%d" % requested.committed_offset
                accepted.append(result)
    if written and not (yield from _write_offsets(written)):
        for result in accepted:
            result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response


def _refusal(
    requested: commits.OffsetCommitRequestPartition, partition: TopicPartition, path: str | None, context: Context
) -> ErrorCode:
    if not context.cluster.image.has_partition(partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(requested.committed_metadata or "") > context.cluster.config.get("offset.metadata.max.bytes"):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.INVALID_GROUP_ID if path is None else ErrorCode.NONE


FETCH_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such partition, or the group has no offset of it",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordination tree cannot be read now",
}


def fetch(request: fetches.OffsetFetchRequest, context: Context) -> Steps[fetches.OffsetFetchResponse]:
    allowed = context.allows_group(api.Operation.DESCRIBE, request.group_id)
    response = fetches.OffsetFetchResponse()
    results_by_path: dict[str, list[fetches.OffsetFetchResponsePartition]] = {}
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
            may_read = refusal is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and context.cluster.image.has_partition(
                partition
            )
            if may_read and path is not None:
                results_by_path.setdefault(path, []).append(result)
    if results_by_path:
        offsets = yield from _read_offsets(list(results_by_path))
        for path, results in results_by_path.items():
            for result in results:
                if offsets is None:
                    result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                elif path in offsets:
                    result.committed_offset, result.error_code = offsets[path], ErrorCode.NONE
    return response


_ATTEMPTS: Final = 10  # A conflict means that another client has created or removed one of the nodes.
_MAX_PATHS: Final = 500  # Well below ZooKeeper's limit for one commit; a read blocks others that wait for the tree.
_MAX_NAME_CHARACTERS: Final = 255


def _offset_path(group_id: str, partition: TopicPartition) -> str | None:
    """The path of a group's offset; None if the group id cannot be the name of a node."""
    if group_id in ("", ".", "..") or "/" in group_id or len(group_id) > _MAX_NAME_CHARACTERS:
        return None
    if not group_id.isprintable():
        return None
    return f"/consumers/{group_id}/offsets/{partition.topic}/{partition.partition}"


def _read_offsets(paths: Sequence[str]) -> Steps[Mapping[str, int] | None]:
    """The existing offsets by path; None if the tree cannot be read."""
    offsets: dict[str, int] = {}
    for start in range(0, len(paths), _MAX_PATHS):
        values: Mapping[str, bytes] | None = yield ReadNodes(paths[start : start + _MAX_PATHS])
        if values is None:
            return None
        offsets |= {path: offset for path, value in values.items() if (offset := _offset_of(value)) is not None}
    return offsets


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
    """Write offsets, creating missing nodes; False if the tree could not be written."""
    paths = list(values)
    for start in range(0, len(paths), _MAX_PATHS):
        chunk = {path: values[path] for path in paths[start : start + _MAX_PATHS]}
        if not (yield from _write(chunk)):
            return False
    return True


def _write(values: Mapping[str, bytes]) -> Steps[bool]:
    parents = list(dict.fromkeys(parent for path in values for parent in _parents(path)))
    for _ in range(_ATTEMPTS):
        existing: Mapping[str, bytes] | None = yield ReadNodes([*parents, *values])
        if existing is None:
            return False
        operations: list[Operation] = [Create(parent, b"") for parent in parents if parent not in existing]
        for path, value in values.items():
            if path not in existing:
                operations.append(Create(path, value))
            elif existing[path] != value:
                operations.append(Set(path, value, ANY_VERSION))
        if not operations:
            return True
        outcome: CommitOutcome = yield CommitMetadata(operations)
        if outcome is not CommitOutcome.CONFLICT:
            return outcome is CommitOutcome.COMMITTED
    return False


def _parents(path: str) -> Iterator[str]:
    at = path.find("/", 1)
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)
