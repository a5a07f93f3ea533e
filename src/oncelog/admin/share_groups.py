"""Reads, moves and deletes the start offsets of share groups (KIP-932), beside ``share_deliveries``.

A share group has no committed offsets: each share partition has a start offset, below which every record is dealt with,
and a state for each record in flight after it. Moving or deleting start offsets forgets these states, so that a
coordinator allows it only while the group has no members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.admin.group_descriptions import describe_share_group
from oncelog.admin.log_bounds import log_bounds
from oncelog.admin.topics import Outcome
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused, explain
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.wire.messages import alter_share_group_offsets as alter
from oncelog.wire.messages import delete_share_group_offsets as delete
from oncelog.wire.messages import describe_share_group_offsets as describe

__all__ = ["ShareOffsetRow", "alter_start_offsets", "delete_start_offsets", "share_offsets", "start_offsets"]

TURN_ON: Final = "to turn them on: kafka-features upgrade --feature share.version=1"


@dataclass(frozen=True, slots=True)
class ShareOffsetRow:
    """A partition with its state in a share group.

    ``start_offset`` is None until a member has fetched from the partition. ``lag`` counts the offsets from there to the
    end whose delivery is not complete; None if the cluster does not know it, as Apache Kafka before 4.2. A deleted
    topic has no ``log_end``. ``error`` is why the state could not be read.
    """

    group: str
    topic: str
    partition: int
    start_offset: int | None
    log_start: int | None
    log_end: int | None
    lag: int | None
    leader_epoch: int
    error: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(TopicName(self.topic), self.partition)


@operation
def share_offsets(cluster: Cluster, group: str) -> Program[list[ShareOffsetRow]]:
    """The start offset and lag of every partition that a share group has a state for, by topic; none for an unknown
    group. Raises BrokerRefused."""
    described = yield from _describe(cluster, group)
    partitions = {
        TopicPartition(TopicName(topic.topic_name), partition.partition_index): partition
        for topic in described.topics
        for partition in topic.partitions
    }
    starts, ends = yield from log_bounds(cluster, sorted(partitions))
    return [
        offset_row(group, place, partition, starts.get(place), ends.get(place))
        for place, partition in sorted(partitions.items())
    ]


def offset_row(
    group: str,
    place: TopicPartition,
    partition: describe.DescribeShareGroupOffsetsResponsePartition,
    log_start: int | None,
    log_end: int | None,
) -> ShareOffsetRow:
    return ShareOffsetRow(
        group,
        place.topic,
        place.partition,
        partition.start_offset if partition.start_offset >= 0 and not partition.error_code else None,
        log_start,
        log_end,
        _lag(partition, log_end, log_start),
        partition.leader_epoch,
        (partition.error_message or explain(partition.error_code)) if partition.error_code else None,
    )


def _lag(
    partition: describe.DescribeShareGroupOffsetsResponsePartition, end: int | None, start: int | None
) -> int | None:
    if partition.error_code:
        return None
    # A partition without records has none to deliver, wherever the group would start.
    return (
        0 if partition.lag < 0 and end is not None and start == end else (None if partition.lag < 0 else partition.lag)
    )


def _describe(cluster: Cluster, group: str) -> Program[describe.DescribeShareGroupOffsetsResponseGroup]:
    request = describe.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    message = describe.DescribeShareGroupOffsetsRequest(groups=[request])

    def attempt() -> Program[describe.DescribeShareGroupOffsetsResponseGroup]:
        response = yield from cluster.at_coordinator(group, message)
        raise_for_error(response.groups[0], f"offsets of share group {group!r}")
        return response.groups[0]

    return (yield from cluster.retrying(attempt))


def start_offsets(cluster: Cluster, group: str) -> Program[dict[TopicPartition, Committed] | None]:
    """The known start offsets of a share group; None for a group that is none."""
    if (yield from cluster.retrying(lambda: describe_share_group(cluster, group))) is None:
        return None
    described = yield from _describe(cluster, group)
    return {
        TopicPartition(TopicName(topic.topic_name), partition.partition_index): Committed(partition.start_offset)
        for topic in described.topics
        for partition in topic.partitions
        if partition.start_offset >= 0 and not partition.error_code
    }


def alter_start_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> Program[None]:
    """Set start offsets, which makes every record from there on available again. Raises BrokerRefused: NON_EMPTY_GROUP
    while the group has members."""
    topics: dict[TopicName, alter.AlterShareGroupOffsetsRequestTopic] = {}
    for partition, offset in offsets.items():
        topic = topics.setdefault(
            partition.topic, alter.AlterShareGroupOffsetsRequestTopic(topic_name=partition.topic, partitions=[])
        )
        topic.partitions.append(
            alter.AlterShareGroupOffsetsRequestPartition(partition_index=partition.partition, start_offset=offset)
        )
    message = alter.AlterShareGroupOffsetsRequest(group_id=group, topics=list(topics.values()))

    def attempt() -> Program[None]:
        response = yield from cluster.at_coordinator(group, message)
        yield from _raise_for_members(cluster, group, response.error_code)
        raise_for_error(response, f"share group {group!r}")
        for topic in response.responses:
            for partition in topic.partitions:
                raise_for_error(partition, f"{topic.topic_name}-{partition.partition_index} of share group {group!r}")

    yield from cluster.retrying(attempt)


def delete_start_offsets(cluster: Cluster, group: str, topics: Iterable[str]) -> Program[list[Outcome]]:
    """Forget a share group's state of whole topics. Returns an outcome for each. Raises BrokerRefused: NON_EMPTY_GROUP
    while the group has members."""
    message = delete.DeleteShareGroupOffsetsRequest(
        group_id=group,
        topics=[delete.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in sorted(set(topics))],
    )

    def attempt() -> Program[list[Outcome]]:
        response = yield from cluster.at_coordinator(group, message)
        yield from _raise_for_members(cluster, group, response.error_code)
        raise_for_error(response, f"share group {group!r}")
        return [
            Outcome(
                topic.topic_name,
                (topic.error_message or explain(topic.error_code)) if topic.error_code else None,
                topic.error_code,
            )
            for topic in response.responses
        ]

    return (yield from cluster.retrying(attempt))


def _raise_for_members(cluster: Cluster, group: str, code: int) -> Program[None]:
    """Raise BrokerRefused with the members' names for NON_EMPTY_GROUP."""
    if code != ErrorCode.NON_EMPTY_GROUP:
        return
    described = yield from describe_share_group(cluster, group)
    members = [] if described is None else described.members
    names = ", ".join(f"{member.client_id!r} on {member.host.lstrip('/')}" for member in members[:3])
    more = f" and {len(members) - 3} more" if len(members) > 3 else ""
    raise BrokerRefused(
        code,
        f"share group {group!r}",
        f"it has members ({names}{more}), which would acknowledge records by states that are gone; stop them first"
        if members
        else explain(code),
    )
