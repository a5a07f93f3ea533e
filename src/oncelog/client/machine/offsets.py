"""A group's committed offsets: as values, in requests to its coordinator, and in responses.

Topics go by name (up to version 9 of both requests), so that a group keeps offsets of deleted topics, as Apache Kafka's
own tools expect. Error codes in a response are raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from oncelog.base.ids import TopicName, TopicPartition, by_topic
from oncelog.client.errors import BrokerRefused
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

LAST_VERSION_BY_NAME: Final = 9


class Committed(NamedTuple):
    """A committed offset: the next one to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """A consumer's place in its group, so that a zombie's offsets are refused with its transaction (KIP-447). The
    defaults fence no member."""

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Membership(NamedTuple):
    """The member to commit as; by default an administrator, who may commit only while the group is empty."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


def offset_fetch_request(
    group: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
    member: Membership | None = None,
) -> OffsetFetchRequest:
    """An OffsetFetch request for some partitions, or all committed ones (None)."""
    indexes = by_topic(partitions or ())
    old = [
        OffsetFetchRequestTopic(name=topic, partition_indexes=partition_indexes)
        for topic, partition_indexes in indexes.items()
    ]
    new = [
        OffsetFetchRequestTopics(name=topic, partition_indexes=partition_indexes)
        for topic, partition_indexes in indexes.items()
    ]
    every = partitions is None
    entry = OffsetFetchRequestGroup(group_id=group, topics=None if every else new)
    if member is not None:
        entry.member_id, entry.member_epoch = member.member_id, member.generation
    return OffsetFetchRequest(
        group_id=group,
        require_stable=require_stable,
        topics=None if every else old,
        groups=[entry],
    )


def committed_in(response: OffsetFetchResponse, group: str) -> dict[TopicPartition, Committed]:
    """The committed offsets in a response, without partitions that have none. Raises BrokerRefused."""
    answer: Any = response.groups[0] if response.groups else response
    if answer.error_code:
        raise BrokerRefused(answer.error_code, f"offsets of group {group!r}")
    committed: dict[TopicPartition, Committed] = {}
    for topic in answer.topics:
        for result in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), result.partition_index)
            if result.error_code:
                raise BrokerRefused(result.error_code, f"offset of group {group!r} in {partition}")
            if result.committed_offset != -1:
                committed[partition] = Committed(
                    result.committed_offset, result.committed_leader_epoch, result.metadata or ""
                )
    return committed


def offset_commit_request(
    group: str, offsets: Mapping[TopicPartition, Committed], member: Membership
) -> OffsetCommitRequest:
    """An OffsetCommit request, outside any transaction."""
    topics: dict[TopicName, list[OffsetCommitRequestPartition]] = {}
    for partition, committed in offsets.items():
        topics.setdefault(partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts) for topic, parts in topics.items()],
    )


def check_commit(response: OffsetCommitResponse, group: str) -> None:
    """Raise BrokerRefused for the first refused partition."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                raise BrokerRefused(
                    partition.error_code, f"commit of group {group!r} in {topic.name}-{partition.partition_index}"
                )
