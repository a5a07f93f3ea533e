"""Committed offsets of a group: read and written through its coordinator.

The rule: topics go by name (up to version 9 of both requests), so that a group keeps its offsets of a topic that was
deleted, as Apache Kafka's own tools see them. Error codes inside are raised, not returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.offsets import Committed as Committed
from oncelog.wire.message import Request, Response
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client

R = TypeVar("R", bound=Response)
LAST_VERSION_BY_NAME: Final = 9


class Membership(NamedTuple):
    """As whom to commit; the default is an administrator, who may do so only while the group is empty."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


def at_coordinator(
    client: Client, group: str, message: Request[R], *, at_most: int | None = None, timeout_ms: int | None = None
) -> R:
    """Send a request to a group's coordinator once. The caller looks at the error codes."""
    link = client.link(client.coordinator(group))
    return link.call(message, link.versions.choose(message, at_most), timeout_ms)


def committed_offsets(
    client: Client, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
) -> dict[TopicPartition, Committed]:
    """What a group has committed, for some partitions or all; without those it has no offset for.

    ``require_stable`` waits for the transactions that have offsets pending (KIP-447), as whoever reads on has to.
    """
    indexes: dict[TopicName, list[int]] = {}
    for partition in partitions or ():
        indexes.setdefault(partition.topic, []).append(partition.partition)
    message = OffsetFetchRequest(
        group_id=group,
        require_stable=require_stable,
        topics=None
        if partitions is None
        else [OffsetFetchRequestTopic(name=topic, partition_indexes=found) for topic, found in indexes.items()],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if partitions is None
                else [
                    OffsetFetchRequestTopics(name=topic, partition_indexes=found) for topic, found in indexes.items()
                ],
            )
        ],
    )

    def attempt() -> dict[TopicPartition, Committed]:
        response = at_coordinator(client, group, message, at_most=LAST_VERSION_BY_NAME)
        answer: Any = response.groups[0] if response.groups else response
        if answer.error_code:
            raise BrokerRefused(answer.error_code, f"offsets of group {group!r}")
        found: dict[TopicPartition, Committed] = {}
        for topic in answer.topics:
            for one in topic.partitions:
                partition = TopicPartition(TopicName(topic.name), one.partition_index)
                if one.error_code:
                    raise BrokerRefused(one.error_code, f"offset of group {group!r} in {partition}")
                if one.committed_offset != -1:
                    found[partition] = Committed(one.committed_offset, one.committed_leader_epoch, one.metadata or "")
        return found

    return client.retrying(attempt)


def commit_offsets(
    client: Client,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    membership: Membership | None = None,
) -> None:
    """Commit offsets for a group. Raises BrokerRefused for the first partition that is refused."""
    if not offsets:
        return
    member = membership or Membership()
    by_topic: dict[TopicName, list[OffsetCommitRequestPartition]] = {}
    for partition, committed in offsets.items():
        by_topic.setdefault(partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    message = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts) for topic, parts in by_topic.items()],
    )

    def attempt() -> None:
        response = at_coordinator(client, group, message, at_most=LAST_VERSION_BY_NAME)
        for topic in response.topics:
            for one in topic.partitions:
                if one.error_code:
                    raise BrokerRefused(
                        one.error_code, f"commit of group {group!r} in {topic.name}-{one.partition_index}"
                    )

    client.retrying(attempt)
