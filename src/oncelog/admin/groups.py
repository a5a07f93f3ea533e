"""Lists, describes, resets and deletes consumer groups (KIP-88, KIP-122, KIP-222, KIP-496, KIP-848).

Rules: a list is read from every broker; everything else goes to the group's coordinator. A reset is planned first, from
the cluster's answers alone, so that the plan can be reviewed before it is executed. Lag is log end minus committed
offset; None if nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oncelog.admin.topics import Outcome
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition, by_topic
from oncelog.client.errors import BrokerRefused, UnsupportedRequest, explain
from oncelog.client.machine.assignor import decode_member_assignment
from oncelog.client.machine.offsets import Committed
from oncelog.client.machine.requests import EARLIEST, LATEST, offset_query
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.client.programs.group import commit_offsets, committed_offsets
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a list. State and type are empty for brokers that do not report them."""

    group: str
    state: str
    group_type: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberRow:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group: str
    state: str
    group_type: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: list[MemberRow]


@dataclass(frozen=True, slots=True)
class LagRow:
    """A partition that a group has committed in, or that a member is assigned."""

    group: str
    topic: str
    partition: int
    committed: int | None
    log_start: int | None
    log_end: int | None
    lag: int | None
    member_id: str | None
    client_id: str | None
    host: str | None


@dataclass(frozen=True, slots=True)
class ResetRow:
    """A partition of a planned reset, from ``current`` (None: nothing committed) to ``target``."""

    topic: str
    partition: int
    current: int | None
    target: int


@dataclass(frozen=True, slots=True)
class ResetTo:
    """The target of a reset: exactly one field is set. ``shift`` counts from the committed offset; ``timestamp_ms`` is
    in milliseconds since 1970.
    """

    earliest: bool = False
    latest: bool = False
    current: bool = False
    offset: int | None = None
    timestamp_ms: int | None = None
    shift: int | None = None


@operation
def list_groups(cluster: Cluster, states: Iterable[str] = ()) -> Program[list[GroupRow]]:
    """The groups of all coordinators, by name. Raises BrokerRefused."""
    yield from cluster.retrying(cluster.refresh_brokers)
    message = ListGroupsRequest(states_filter=list(states))
    rows: dict[str, GroupRow] = {}

    def list_from(broker: int) -> Program[None]:
        response = yield from cluster.request(message, broker=broker)
        raise_for_error(response, f"groups of broker {broker}")
        for group in response.groups:
            rows[group.group_id] = GroupRow(
                group.group_id, group.group_state, group.group_type, group.protocol_type, broker
            )

    for broker in sorted(cluster.view.brokers):
        yield from cluster.retrying(lambda broker=broker: list_from(broker))  # type: ignore[misc]  # bound now
    return [rows[name] for name in sorted(rows)]


@operation
def describe_group(cluster: Cluster, group: str) -> Program[GroupDescription]:
    """A group and its members. Raises BrokerRefused with GROUP_ID_NOT_FOUND if the group does not exist."""

    def attempt() -> Program[GroupDescription]:
        # The broker does not say which protocol a group uses: the new one is tried first.
        described = (yield from _describe_consumer_group(cluster, group)) or (
            yield from _describe_classic_group(cluster, group)
        )
        if described is None:
            raise BrokerRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r}")
        return described

    return (yield from cluster.retrying(attempt))


@operation
def group_lag(cluster: Cluster, description: GroupDescription) -> Program[list[LagRow]]:
    """Committed and end offsets of every partition that the group uses; a deleted topic has no end."""
    group = description.group
    committed = yield from committed_offsets(cluster, group)
    owners = {partition: member for member in description.members for partition in member.partitions}
    partitions = sorted({*committed, *owners})
    starts, ends = yield from log_bounds(cluster, partitions)
    rows = []
    for partition in partitions:
        owner, position, end = owners.get(partition), committed.get(partition), ends.get(partition)
        rows.append(
            LagRow(
                group,
                partition.topic,
                partition.partition,
                None if position is None else position.offset,
                starts.get(partition),
                end,
                None if position is None or end is None else max(0, end - position.offset),
                None if owner is None else owner.member_id,
                None if owner is None else owner.client_id,
                None if owner is None else owner.host,
            )
        )
    return rows


@operation
def plan_reset(
    cluster: Cluster, group: str, to: ResetTo, partitions: Iterable[TopicPartition] | None = None
) -> Program[list[ResetRow]]:
    """The target offset of each partition: those in ``partitions``, or all that the group has committed in. See
    ``plan_from``.
    """
    return (yield from plan_from(cluster, (yield from committed_offsets(cluster, group)), to, partitions))


@operation
def plan_from(
    cluster: Cluster,
    committed: Mapping[TopicPartition, Committed],
    to: ResetTo,
    partitions: Iterable[TopicPartition] | None = None,
) -> Program[list[ResetRow]]:
    """The target offset of each partition: those in ``partitions``, or all in ``committed``.

    Offsets outside the log are clipped to its nearest end; a time after the last record means the end.
    """
    selected = sorted(committed if partitions is None else set(partitions))
    earliest = yield from offsets_at(cluster, dict.fromkeys(selected, EARLIEST))
    latest = yield from offsets_at(cluster, dict.fromkeys(selected, LATEST))
    at_time: Mapping[TopicPartition, int] = {}
    if to.timestamp_ms is not None:
        at_time = yield from offsets_at(cluster, dict.fromkeys(selected, offset_query(to.timestamp_ms)))
    rows = []
    for partition in selected:
        position = committed.get(partition)
        target = _target(to, position, earliest[partition], latest[partition], at_time.get(partition, -1))
        if target is None:
            continue
        # Consumers with an offset outside the log would fall back to auto.offset.reset.
        clipped = max(earliest[partition], min(target, latest[partition]))
        rows.append(
            ResetRow(partition.topic, partition.partition, None if position is None else position.offset, clipped)
        )
    return rows


@operation
def execute_reset(cluster: Cluster, group: str, plan: Iterable[ResetRow]) -> Program[None]:
    """Commit a plan. Raises BrokerRefused, mostly because the group has members."""
    offsets = {TopicPartition(TopicName(row.topic), row.partition): Committed(row.target) for row in plan}
    try:
        yield from commit_offsets(cluster, group, offsets)
    except BrokerRefused as error:
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            raise BrokerRefused(error.code, f"group {group!r}", "the group has members; stop them first") from None
        raise


@operation
def delete_groups(cluster: Cluster, groups: Iterable[str]) -> Program[list[Outcome]]:
    """Delete groups with their offsets. Returns an outcome for each."""
    outcomes = []
    for group in dict.fromkeys(groups):

        def attempt(group: str = group) -> Program[int]:
            response = yield from cluster.at_coordinator(group, DeleteGroupsRequest(groups_names=[group]))
            code = response.results[0].error_code
            # Raising makes ``retrying`` repeat the request; final codes become outcomes.
            if remedy(code) is not Remedy.FAIL:
                raise BrokerRefused(code, f"group {group!r}")
            return code

        code = yield from cluster.retrying(attempt)
        outcomes.append(Outcome(group, explain(code) if code else None, code))
    return outcomes


@operation
def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> Program[list[Outcome]]:
    """Delete a group's offsets of partitions that no member subscribes to. Returns an outcome for each."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for topic, indexes in by_topic(partitions).items()
    ]

    def attempt() -> Program[list[Outcome]]:
        response = yield from cluster.at_coordinator(group, OffsetDeleteRequest(group_id=group, topics=topics))
        raise_for_error(response, f"group {group!r}")
        return [
            Outcome(
                f"{topic.name}-{partition.partition_index}",
                explain(partition.error_code) if partition.error_code else None,
                partition.error_code,
            )
            for topic in response.topics
            for partition in topic.partitions
        ]

    return (yield from cluster.retrying(attempt))


def _describe_consumer_group(cluster: Cluster, group: str) -> Program[GroupDescription | None]:
    message = ConsumerGroupDescribeRequest(group_ids=[group])
    try:
        response = yield from cluster.at_coordinator(group, message)
    except UnsupportedRequest:
        return None
    description = response.groups[0]
    if description.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    raise_for_error(description, f"group {group!r}")
    members = [
        MemberRow(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(TopicName(topic.topic_name), index)
                for topic in member.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for member in description.members
    ]
    coordinator = yield from cluster.coordinator(group)
    return GroupDescription(
        group, description.group_state, "consumer", "consumer", description.assignor_name, coordinator, members
    )


def _describe_classic_group(cluster: Cluster, group: str) -> Program[GroupDescription | None]:
    response = yield from cluster.at_coordinator(group, DescribeGroupsRequest(groups=[group]))
    description = response.groups[0]
    # Before version 6 an unknown group is answered as Dead, without an error.
    if description.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (
        not description.error_code and description.group_state == "Dead"
    ):
        return None
    raise_for_error(description, f"group {group!r}")
    members = [
        MemberRow(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            decode_member_assignment(member.member_assignment) if description.protocol_type == "consumer" else (),
        )
        for member in description.members
    ]
    coordinator = yield from cluster.coordinator(group)
    return GroupDescription(
        group,
        description.group_state,
        "classic",
        description.protocol_type,
        description.protocol_data,
        coordinator,
        members,
    )


@operation
def log_bounds(
    cluster: Cluster, partitions: list[TopicPartition]
) -> Program[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]:
    """The first and next offsets of partitions that exist and have a leader."""
    topics = (yield from cluster.metadata({partition.topic for partition in partitions})) if partitions else {}
    led = []
    for partition in partitions:
        topic = topics.get(partition.topic)
        info = None if topic is None else topic.partitions.get(partition.partition)
        if info is not None and info.leader >= 0:
            led.append(partition)
    if not led:
        return {}, {}
    starts = yield from offsets_at(cluster, dict.fromkeys(led, EARLIEST))
    ends = yield from offsets_at(cluster, dict.fromkeys(led, LATEST))
    return starts, ends


def _target(to: ResetTo, position: Committed | None, earliest: int, latest: int, at_time: int) -> int | None:
    """The offset that a reset aims at; None if it is relative and nothing is committed."""
    if to.earliest:
        return earliest
    if to.latest:
        return latest
    if to.offset is not None:
        return to.offset
    if to.timestamp_ms is not None:
        return latest if at_time < 0 else at_time
    if position is None:
        return None
    return position.offset + (to.shift or 0)
