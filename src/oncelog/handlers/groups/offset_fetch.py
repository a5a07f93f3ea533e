"""OffsetFetch, versions 1 to 10 (KIP-88, KIP-320, KIP-447, KIP-709, KIP-848): where groups have got to.

A partition without a committed offset answers −1 and no error, also where the topic does not exist. Null topics (from
version 2 on) ask for everything. Several groups (from 8 on) are answered one by one. With ``require_stable`` (7) a
partition whose offset is part of an open transaction answers UNSTABLE_OFFSET_COMMIT. Topics go by id from 10 on; what
has no id any more is left out. Member id and epoch (9) concern groups of the new protocol only.

Without ``require_stable`` an open transaction holds nobody up, but a decided one does: its offsets are never passed
over. Until its marker is there, and while a transaction coordinator is loading and nobody knows, the request waits;
after ``oncelog.transaction.wait.ms`` it is answered COORDINATOR_LOAD_IN_PROGRESS, which clients of all versions retry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, NO_TOPIC_ID, GroupId, ProducerId, TopicId, TopicName, TopicPartition
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
    ErrorCode.STALE_MEMBER_EPOCH: "of each partition, where the group's error is NOT_COORDINATOR (from version 9 on)",
}

_UNCONFIRMED: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""The errors of a group that this broker may not coordinate any more."""
_GROUPS_SINCE: Final = 8
_NAMED_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 10


class _Asked(NamedTuple):
    """A topic of a request, in any version. ``name`` is empty where the id is unknown."""

    name: TopicName
    topic_id: TopicId
    partitions: Sequence[int]
    is_known: bool = True


class _AskedGroup(NamedTuple):
    """A group of a request, in any version; ``topics`` None: all that it has committed."""

    group_id: GroupId
    topics: list[_Asked] | None
    require_stable: bool
    asked_ms: int


def handle(request: wire.OffsetFetchRequest, context: Context) -> Steps[wire.OffsetFetchResponse]:
    """Ask each group's coordinator."""
    asked_ms = context.now_ms
    if context.version >= _GROUPS_SINCE:
        groups = []
        with_all: set[str] = set()
        for group in request.groups:
            if group.topics is None and group.group_id in with_all:
                continue  # all its offsets are in the answer: named thirty thousand times they would be the answer
            topics = None
            if group.topics is None:
                with_all.add(group.group_id)
            else:
                topics = [
                    _asked(topic.name, topic.topic_id, topic.partition_indexes, context) for topic in group.topics
                ]
            asked = _AskedGroup(GroupId(group.group_id), topics, request.require_stable, asked_ms)
            groups.append((yield from _group(asked, context)))
        return wire.OffsetFetchResponse(groups=groups)
    single = None
    if request.topics is not None:
        single = [_asked(topic.name, NO_TOPIC_ID, topic.partition_indexes, context) for topic in request.topics]
    asked = _AskedGroup(GroupId(request.group_id), single, request.require_stable, asked_ms)
    found = yield from _group(asked, context)
    return _single_group_response(found, single, context)


def _asked(name: str, topic_id: bytes, partitions: Sequence[int], context: Context) -> _Asked:
    if context.version < _TOPIC_IDS_SINCE:
        return _Asked(TopicName(name), NO_TOPIC_ID, partitions)
    topic = context.cluster.image.topic_of_id(TopicId(topic_id))
    name_of_id = TopicName("") if topic is None else topic.name
    return _Asked(name_of_id, TopicId(topic_id), partitions, topic is not None)


def _group(asked: _AskedGroup, context: Context) -> Steps[wire.OffsetFetchResponseGroup]:
    """One group's answer."""
    group_id, topics = asked.group_id, asked.topics
    if not context.allows_group(Operation.DESCRIBE, group_id):
        return wire.OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    visible: list[_Asked] = []
    refused: list[wire.OffsetFetchResponseTopics] = []
    for topic in topics or ():
        refusal = _refusal(topic, context)
        if refusal is ErrorCode.NONE:
            visible.append(topic)
        else:
            refused.append(_refused_topic(topic, refusal))
    partitions = None if topics is None else [(t.name, t.topic_id, index) for t in visible for index in t.partitions]
    found = yield from _found(asked, partitions, context)
    if isinstance(found, ErrorCode):
        named = _named_again(visible) if found is ErrorCode.NOT_COORDINATOR and context.version >= _NAMED_SINCE else []
        return wire.OffsetFetchResponseGroup(group_id=group_id, error_code=found, topics=named)
    answered = _everything(found, context) if topics is None else _as_asked(found, visible)
    return wire.OffsetFetchResponseGroup(group_id=group_id, topics=[*answered, *refused])


def _found(
    asked: _AskedGroup, wanted: list[tuple[TopicName, TopicId, int]] | None, context: Context
) -> Steps[list[FetchedOffset] | ErrorCode]:
    """The offsets, looked up after this broker was found to coordinate the group still, and what is pending to be
    undecided: a transaction that was decided before the question came has had its marker by then, or is waited for."""
    undecided: frozenset[ProducerId] = frozenset()
    deadline_ms = asked.asked_ms + context.cluster.config.get("oncelog.transaction.wait.ms")
    coordinated = context.groups.partition_of(asked.group_id)
    if coordinated is not None:
        unconfirmed: Mapping[TopicPartition, ErrorCode] = yield UntilConfirmed((coordinated,), deadline_ms)
        if unconfirmed:
            return _UNCONFIRMED[unconfirmed[coordinated]]
    while True:
        reply: list[FetchedOffset] | PendingOffsets | ErrorCode = yield from ask(
            asked.group_id,
            lambda shard, token, now_ms, undecided=undecided: shard.fetch_offsets(  # type: ignore[misc]  # bound now
                asked.group_id, wanted, token, now_ms, require_stable=asked.require_stable, undecided=undecided
            ),
            ErrorCode,
        )
        if not isinstance(reply, PendingOffsets):
            return reply
        partition = TopicPartition(CONSUMER_OFFSETS, reply.partition)
        marked: bool = yield UntilMarked(partition, reply.producer_ids, deadline_ms)
        if not marked:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        undecided |= reply.producer_ids


def _refusal(topic: _Asked, context: Context) -> ErrorCode:
    if not topic.is_known:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not context.allows_topic(Operation.DESCRIBE, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _refused_topic(topic: _Asked, error: ErrorCode) -> wire.OffsetFetchResponseTopics:
    return wire.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            wire.OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=error)
            for index in topic.partitions
        ],
    )


def _named_again(asked: list[_Asked]) -> list[wire.OffsetFetchResponseTopics]:
    """Partitions of a group of another coordinator, with the error upon which librdkafka asks for them again: of those
    that such an answer does not name, as Apache Kafka's does not, it never does (its issue 5586, open in 2.16), and so
    it never reads them. A client that reads the group's own error first does not look at them."""
    return [_refused_topic(topic, ErrorCode.STALE_MEMBER_EPOCH) for topic in asked]


def _as_asked(found: list[FetchedOffset], asked: list[_Asked]) -> Iterator[wire.OffsetFetchResponseTopics]:
    """The offsets found, under the topics as they were asked for."""
    in_order = iter(found)
    for topic in asked:
        partitions = [_partition(next(in_order)) for _ in topic.partitions]
        yield wire.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _everything(found: list[FetchedOffset], context: Context) -> Iterator[wire.OffsetFetchResponseTopics]:
    """The offsets found, by topic, of those topics that the requester may see."""
    by_topic: dict[TopicName, list[FetchedOffset]] = {}
    for each in found:
        by_topic.setdefault(each.topic, []).append(each)
    for name, offsets in by_topic.items():
        stored = context.cluster.image.topics.get(name)
        topic_id = offsets[0].committed.topic_id if stored is None else stored.topic_id
        if context.version >= _TOPIC_IDS_SINCE and topic_id == NO_TOPIC_ID:
            continue
        if context.allows_topic_silently(Operation.DESCRIBE, name):
            partitions = [_partition(offset) for offset in offsets]
            yield wire.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)


def _partition(found: FetchedOffset) -> wire.OffsetFetchResponsePartitions:
    return wire.OffsetFetchResponsePartitions(
        partition_index=found.partition,
        committed_offset=found.committed.offset,
        committed_leader_epoch=found.committed.leader_epoch,
        metadata=found.committed.metadata,
        error_code=found.error_code,
    )


def _single_group_response(
    found: wire.OffsetFetchResponseGroup, topics: list[_Asked] | None, context: Context
) -> wire.OffsetFetchResponse:
    """The form of versions 1 to 7. A group's error is said of each partition: in version 1 nowhere else, and later for
    clients that look nowhere else. aiokafka takes a partition that is not named for one without a committed offset, and
    begins where ``auto_offset_reset`` says."""
    error = ErrorCode(found.error_code)
    if error is not ErrorCode.NONE:
        found.topics = [_refused_topic(topic, error) for topic in topics or ()]
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
            for topic in found.topics
        ],
    )
