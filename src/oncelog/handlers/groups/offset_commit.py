"""OffsetCommit, versions 2 to 10 (KIP-211, KIP-320, KIP-345, KIP-848): store a group's offsets.

Acknowledged when durable; all partitions of a request form one batch. Topics go by name up to version 9, by id from 10
on; the id is always stored. Versions 2 to 4 may carry their own retention. Any offset is accepted, existing or not, and
any group id, even an empty one: the first commit creates a group without members. In a group of the consumer protocol
the generation is the member's epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, GroupId, LeaderEpoch, MemberId, Offset, TopicId, TopicName, TopicPartition
from oncelog.core.groups.model import CommitReply, CommitRequest, PartitionCommit
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.time_slices import ITEMS
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages import offset_commit as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id (version 10)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to read the topic",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the text beside the offset is longer than offset.metadata.max.bytes",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such member, or the group has members and the committer is none",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id",
    ErrorCode.ILLEGAL_GENERATION: "not the current generation; up to version 8 also: no such group",
    ErrorCode.GROUP_ID_NOT_FOUND: "a generation of a group that does not exist (version 9)",
    ErrorCode.REBALANCE_IN_PROGRESS: "the generation has no assignment yet",
    ErrorCode.STALE_MEMBER_EPOCH: "not the epoch of the member, and a partition was not assigned to it in that one",
    ErrorCode.UNSUPPORTED_VERSION: "the member uses the consumer protocol: its epochs need version 9",
}

_TOPIC_IDS_SINCE: Final = 10
_EPOCHS_SINCE: Final = 9


class _Answer:
    """The growing response: refusals first, then the coordinator's answers, one entry a topic."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, TopicId], wire.OffsetCommitResponseTopic] = {}

    def add(self, topic: wire.OffsetCommitRequestTopic, partition: int, error: ErrorCode) -> None:
        key = topic.name, TopicId(topic.topic_id)
        entry = self._topics.get(key)
        if entry is None:
            entry = self._topics[key] = wire.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        entry.partitions.append(wire.OffsetCommitResponsePartition(partition_index=partition, error_code=error))

    def response(self) -> wire.OffsetCommitResponse:
        return wire.OffsetCommitResponse(topics=list(self._topics.values()))


def handle(request: wire.OffsetCommitRequest, context: Context) -> Steps[wire.OffsetCommitResponse]:
    answer = _Answer()
    if not context.allows_group(Operation.READ, request.group_id):
        for topic in request.topics:
            for partition in topic.partitions:
                answer.add(topic, partition.partition_index, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return answer.response()
    by_id = context.version >= _TOPIC_IDS_SINCE
    accepted = [
        (topic, part)
        for topic in request.topics
        for part in accepted_commits(
            topic_name(topic, context, by_id=by_id), topic.partitions, context, partial(answer.add, topic)
        )
    ]
    if len(accepted) > ITEMS:
        yield NextSlice()  # the decision is atomic and takes as long again
    if accepted:
        commit = CommitRequest(
            GroupId(request.group_id),
            MemberId(request.member_id),
            request.generation_id_or_member_epoch,
            request.group_instance_id,
            [part for _, part in accepted],
            request.retention_time_ms,
            knows_epochs=context.version >= _EPOCHS_SINCE,
        )
        decided = yield from ask(
            request.group_id, lambda shard, token, now_ms: shard.commit_offsets(commit, token, now_ms), CommitReply
        )
        errors = decided.partitions or [decided.error_code] * len(accepted)
        for (topic, part), error in zip(accepted, errors, strict=True):
            answer.add(topic, part.partition, error)
    return answer.response()


def topic_name(topic: _Topic, context: Context, *, by_id: bool) -> TopicName | None:
    if not by_id:
        return TopicName(topic.name)
    image = context.cluster.image.topic_of_id(TopicId(topic.topic_id))
    return None if image is None else image.name


class _Topic(Protocol):
    name: str
    topic_id: bytes


class _Commit(Protocol):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


def accepted_commits(
    topic: TopicName | None, commits: Sequence[_Commit], context: Context, refuse: Callable[[int, ErrorCode], None]
) -> list[PartitionCommit]:
    """The partitions that exist and may be committed; ``refuse`` answers the others. ``topic`` is None if no topic has
    the id.
    """
    image = context.cluster.image
    refusal = ErrorCode.NONE
    if topic is None:
        refusal = ErrorCode.UNKNOWN_TOPIC_ID
    elif not context.allows_topic(Operation.READ, topic):
        refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    name = topic or TopicName("")
    stored = image.topics.get(name)
    topic_id = NO_TOPIC_ID if stored is None else stored.topic_id
    accepted = []
    for part in commits:
        index = part.partition_index
        if refusal is not ErrorCode.NONE or not image.has_partition(TopicPartition(name, index)):
            refuse(index, refusal or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        offset, leader_epoch = Offset(part.committed_offset), LeaderEpoch(part.committed_leader_epoch)
        accepted.append(PartitionCommit(name, index, offset, leader_epoch, part.committed_metadata, topic_id))
    return accepted
