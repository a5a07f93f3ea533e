"""OffsetFetch, versions 1 to 10 (KIP-88, KIP-320, KIP-447, KIP-709, KIP-848): committed offsets of groups.

A partition without a committed offset answers −1 and no error, even if the topic does not exist. Null topics (from
version 2 on) fetch all offsets. From 8 on there are several groups, from 10 on topic ids; offsets without one are left
out. With ``require_stable`` (7) an offset in an open transaction answers UNSTABLE_OFFSET_COMMIT. Member id and epoch
(9) are checked in groups of the consumer protocol.

Without ``require_stable`` open transactions are ignored, but the offsets of a decided one must not be missed: the
request waits for its marker, and while a transaction coordinator is loading. After ``oncelog.transaction.wait.ms`` it
answers COORDINATOR_LOAD_IN_PROGRESS, which clients of all versions retry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import (
    CONSUMER_OFFSETS,
    NO_TOPIC_ID,
    GroupId,
    MemberId,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
    group_by_key,
)
from oncelog.core.groups.model import FetchedOffset, PendingOffsets
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps, UntilConfirmed, UntilMarked
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages import offset_fetch as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe the topic",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id (version 10)",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (
        "the coordinator is reading its log, or cannot tell if it still is the coordinator, or a transaction that has "
        "sent an offset is being completed; try again"
    ),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "an open transaction has sent an offset of the partition; try again",
    ErrorCode.UNKNOWN_MEMBER_ID: "no such member of a group of the consumer protocol, or no member named (version 9)",
    ErrorCode.ILLEGAL_GENERATION: "not the epoch of a classic member of a group of the consumer protocol (version 9)",
    ErrorCode.STALE_MEMBER_EPOCH: (
        "not the epoch of the member (version 9); also of each partition, where the group's error is NOT_COORDINATOR"
    ),
}

_UNCONFIRMED: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Errors of a group that this broker may no longer coordinate."""
_GROUPS_SINCE: Final = 8
_NAMED_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 10


class _RequestedTopic(NamedTuple):
    """A topic of a request of any version; ``name`` is empty if the id is unknown."""

    name: TopicName
    topic_id: TopicId
    partitions: Sequence[int]
    is_known: bool = True


class _RequestedGroup(NamedTuple):
    """A group of a request of any version; ``topics`` is None for all committed offsets."""

    group_id: GroupId
    topics: list[_RequestedTopic] | None
    require_stable: bool
    asked_ms: int
    member_id: MemberId | None = None
    member_epoch: int = -1


def handle(request: wire.OffsetFetchRequest, context: Context) -> Steps[wire.OffsetFetchResponse]:
    asked_ms = context.now_ms
    if context.version >= _GROUPS_SINCE:
        groups = []
        with_all: set[str] = set()
        for group in request.groups:
            if group.topics is None and group.group_id in with_all:
                continue  # answered already: a request could repeat it thirty thousand times
            topics = None
            if group.topics is None:
                with_all.add(group.group_id)
            else:
                topics = [
                    _requested_topic(topic.name, topic.topic_id, topic.partition_indexes, context)
                    for topic in group.topics
                ]
            requested = _RequestedGroup(
                GroupId(group.group_id),
                topics,
                request.require_stable,
                asked_ms,
                None if group.member_id is None else MemberId(group.member_id),
                group.member_epoch,
            )
            groups.append((yield from _group(requested, context)))
        return wire.OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [
            _requested_topic(topic.name, NO_TOPIC_ID, topic.partition_indexes, context) for topic in request.topics
        ]
    requested = _RequestedGroup(GroupId(request.group_id), topics, request.require_stable, asked_ms)
    answer = yield from _group(requested, context)
    return _single_group_response(answer, topics, context)


def _requested_topic(name: str, topic_id: bytes, partitions: Sequence[int], context: Context) -> _RequestedTopic:
    if context.version < _TOPIC_IDS_SINCE:
        return _RequestedTopic(TopicName(name), NO_TOPIC_ID, partitions)
    topic = context.cluster.image.topic_of_id(TopicId(topic_id))
    name_of_id = TopicName("") if topic is None else topic.name
    return _RequestedTopic(name_of_id, TopicId(topic_id), partitions, topic is not None)


def _group(group: _RequestedGroup, context: Context) -> Steps[wire.OffsetFetchResponseGroup]:
    group_id, topics = group.group_id, group.topics
    if not context.allows_group(Operation.DESCRIBE, group_id):
        return wire.OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    visible: list[_RequestedTopic] = []
    refused: list[wire.OffsetFetchResponseTopics] = []
    for topic in topics or ():
        refusal = _refusal(topic, context)
        if refusal is ErrorCode.NONE:
            visible.append(topic)
        else:
            refused.append(_refused_topic(topic, refusal))
    partitions = None if topics is None else [(t.name, t.topic_id, index) for t in visible for index in t.partitions]
    offsets = yield from _committed_offsets(group, partitions, context)
    if isinstance(offsets, ErrorCode):
        named = (
            _named_again(visible) if offsets is ErrorCode.NOT_COORDINATOR and context.version >= _NAMED_SINCE else []
        )
        return wire.OffsetFetchResponseGroup(group_id=group_id, error_code=offsets, topics=named)
    answered = _everything(offsets, context) if topics is None else _by_request(offsets, visible)
    return wire.OffsetFetchResponseGroup(group_id=group_id, topics=[*answered, *refused])


def _committed_offsets(
    group: _RequestedGroup, partitions: list[tuple[TopicName, TopicId, int]] | None, context: Context
) -> Steps[list[FetchedOffset] | ErrorCode]:
    """Read once this broker is known to coordinate the group still and no decided transaction lacks its marker."""
    undecided: frozenset[ProducerId] = frozenset()
    deadline_ms = group.asked_ms + context.cluster.config.get("oncelog.transaction.wait.ms")
    coordinated = context.groups.partition_of(group.group_id)
    if coordinated is not None:
        unconfirmed: Mapping[TopicPartition, ErrorCode] = yield UntilConfirmed((coordinated,), deadline_ms)
        if unconfirmed:
            return _UNCONFIRMED[unconfirmed[coordinated]]
    while True:
        reply: list[FetchedOffset] | PendingOffsets | ErrorCode = yield from ask(
            group.group_id,
            lambda shard, token, now_ms, undecided=undecided: shard.fetch_offsets(  # type: ignore[misc]  # bound now
                group.group_id,
                partitions,
                token,
                now_ms,
                require_stable=group.require_stable,
                undecided=undecided,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
            ),
            ErrorCode,
        )
        if not isinstance(reply, PendingOffsets):
            return reply
        partition = TopicPartition(CONSUMER_OFFSETS, reply.partition)
        marked: bool = yield UntilMarked(partition, reply.producer_ids, deadline_ms)
        if not marked:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        # Decided transactions of these producers have their markers now: later pending offsets are undecided ones.
        undecided |= reply.producer_ids


def _refusal(topic: _RequestedTopic, context: Context) -> ErrorCode:
    if not topic.is_known:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not context.allows_topic(Operation.DESCRIBE, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _refused_topic(topic: _RequestedTopic, error: ErrorCode) -> wire.OffsetFetchResponseTopics:
    return wire.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            wire.OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=error)
            for index in topic.partitions
        ],
    )


def _named_again(topics: list[_RequestedTopic]) -> list[wire.OffsetFetchResponseTopics]:
    """The partitions of a group that another broker coordinates, with an error."""
    # librdkafka never asks again for partitions missing from such a response, as Apache Kafka's lacks them, and so
    # never reads them (its issue 5586, open in 2.16); this error makes it ask. Other clients read the group's error
    # first and ignore the partitions.
    return [_refused_topic(topic, ErrorCode.STALE_MEMBER_EPOCH) for topic in topics]


def _by_request(
    offsets: list[FetchedOffset], topics: list[_RequestedTopic]
) -> Iterator[wire.OffsetFetchResponseTopics]:
    in_order = iter(offsets)
    for topic in topics:
        partitions = [_partition(next(in_order)) for _ in topic.partitions]
        yield wire.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _everything(committed: list[FetchedOffset], context: Context) -> Iterator[wire.OffsetFetchResponseTopics]:
    by_topic = group_by_key((offset.topic, offset) for offset in committed)
    for name, offsets in by_topic.items():
        stored = context.cluster.image.topics.get(name)
        topic_id = offsets[0].committed.topic_id if stored is None else stored.topic_id
        if context.version >= _TOPIC_IDS_SINCE and topic_id == NO_TOPIC_ID:
            continue
        if context.allows_topic_silently(Operation.DESCRIBE, name):
            partitions = [_partition(offset) for offset in offsets]
            yield wire.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)


def _partition(fetched: FetchedOffset) -> wire.OffsetFetchResponsePartitions:
    return wire.OffsetFetchResponsePartitions(
        partition_index=fetched.partition,
        committed_offset=fetched.committed.offset,
        committed_leader_epoch=fetched.committed.leader_epoch,
        metadata=fetched.committed.metadata,
        error_code=fetched.error_code,
    )


def _single_group_response(
    group: wire.OffsetFetchResponseGroup, topics: list[_RequestedTopic] | None, context: Context
) -> wire.OffsetFetchResponse:
    error = ErrorCode(group.error_code)
    if error is not ErrorCode.NONE:
        # Every partition carries the group's error: version 1 has no other place, and some clients look nowhere else.
        # aiokafka takes a missing partition for one without an offset and starts at ``auto_offset_reset``.
        group.topics = [_refused_topic(topic, error) for topic in topics or ()]
    return wire.OffsetFetchResponse(
        error_code=error,
        topics=[
            wire.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    wire.OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
