"""Resets and deletes groups and lists their lag (KIP-88, KIP-122, KIP-496), beside ``group_descriptions``.

Requests go to the group's coordinator. A reset is planned first, so that the plan can be reviewed before it is
executed. Lag is log end minus committed offset; None if nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.admin.group_descriptions import (
    GROUP_TYPES,
    GroupDescription,
    GroupRow,
    Handover,
    MemberRow,
    describe_from_list,
    describe_group,
    list_groups,
)
from oncelog.admin.log_bounds import log_bounds
from oncelog.admin.share_groups import (
    TURN_ON,
    ShareOffsetRow,
    alter_start_offsets,
    delete_start_offsets,
    share_offsets,
    start_offsets,
)
from oncelog.admin.topics import Outcome
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition, by_topic
from oncelog.client.errors import BrokerRefused, explain
from oncelog.client.machine.offsets import Committed
from oncelog.client.machine.requests import EARLIEST, LATEST, offset_query
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.client.programs.group import commit_offsets, committed_offsets
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

__all__ = [
    "GROUP_TYPES",
    "GroupDescription",
    "GroupRow",
    "Handover",
    "LagRow",
    "MemberRow",
    "ResetRow",
    "ResetTo",
    "ShareOffsetRow",
    "delete_groups",
    "delete_offsets",
    "describe_group",
    "execute_reset",
    "group_lag",
    "group_positions",
    "list_groups",
    "log_bounds",
    "plan_from",
    "plan_reset",
    "share_offsets",
]

_HAS_MEMBERS: Final = (
    *(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION),
    ErrorCode.STALE_MEMBER_EPOCH,
)
"""The refusals of a commit by no member in a group that has some."""


@dataclass(frozen=True, slots=True)
class LagRow:
    """A partition that a group has committed in, or that a member (the present owner) has or awaits."""

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
    """The target of a reset: one field is set. ``shift`` counts from the committed offset; ``timestamp_ms`` is since
    1970."""

    earliest: bool = False
    latest: bool = False
    current: bool = False
    offset: int | None = None
    timestamp_ms: int | None = None
    shift: int | None = None


@operation
def group_lag(cluster: Cluster, description: GroupDescription) -> Program[list[LagRow]]:
    """Committed and end offsets of every partition that the group uses; a deleted topic has no end, a share group no
    rows."""
    group = description.group
    if not description.commits_offsets:
        return []
    committed = yield from committed_offsets(cluster, group)
    owners = {partition: member for member in description.members for partition in member.partitions}
    awaited = {partition for member in description.members for partition in member.awaited}
    partitions = sorted({*committed, *owners, *awaited})
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
    """The target offset of the partitions given, or of all committed ones, as in ``plan_from``; of a share group, the
    start offsets."""
    return (yield from plan_from(cluster, (yield from group_positions(cluster, group)), to, partitions))


@operation
def group_positions(cluster: Cluster, group: str) -> Program[dict[TopicPartition, Committed]]:
    """The committed offsets of a group, or the start offsets of a share group."""
    positions = yield from committed_offsets(cluster, group)
    return positions or (yield from _share_start_offsets(cluster, group)) or {}


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
    """Commit a plan, or set the start offsets of a share group, whose records from there on become available again.
    Raises BrokerRefused, mostly because the group has members."""
    offsets = {TopicPartition(TopicName(row.topic), row.partition): Committed(row.target) for row in plan}
    try:
        yield from commit_offsets(cluster, group, offsets)
    except BrokerRefused as error:
        if error.code in _HAS_MEMBERS:
            raise BrokerRefused(error.code, f"group {group!r}", explain(ErrorCode.NON_EMPTY_GROUP)) from None
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND or (yield from _share_start_offsets(cluster, group)) is None:
            raise
        yield from alter_start_offsets(
            cluster, group, {partition: committed.offset for partition, committed in offsets.items()}
        )


@operation
def delete_groups(cluster: Cluster, groups: Iterable[str]) -> Program[list[Outcome]]:
    """Delete groups with their offsets. Returns an outcome for each."""
    outcomes = []
    for group in dict.fromkeys(groups):

        def attempt(group: str = group) -> Program[Outcome]:
            response = yield from cluster.at_coordinator(group, DeleteGroupsRequest(groups_names=[group]))
            result = response.results[0]
            code = result.error_code
            # Raising makes ``retrying`` repeat the request; final codes become outcomes.
            if remedy(code) is not Remedy.FAIL:
                raise BrokerRefused(code, f"group {group!r}")
            return Outcome(group, (result.error_message or explain(code)) if code else None, code)

        outcomes.append((yield from cluster.retrying(attempt)))
    return outcomes


@operation
def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> Program[list[Outcome]]:
    """Delete a group's offsets of partitions that no member subscribes to. Returns an outcome for each.

    A share group without members forgets whole topics, those of ``partitions``: an outcome for each topic.
    """
    by_name = by_topic(partitions)
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for topic, indexes in by_name.items()
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

    try:
        return (yield from cluster.retrying(attempt))
    except BrokerRefused as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND or (yield from _share_start_offsets(cluster, group)) is None:
            raise
        return (yield from delete_start_offsets(cluster, group, by_name))


def _share_start_offsets(cluster: Cluster, group: str) -> Program[dict[TopicPartition, Committed] | None]:
    """The start offsets of a share group; None for a group of another type. Raises BrokerRefused for a share group of a
    cluster that has share groups off."""
    offsets = yield from start_offsets(cluster, group)
    if offsets is None:
        description = yield from cluster.retrying(lambda: describe_from_list(cluster, group))
        if description is not None and description.is_share:
            reason = f"it is a share group, and share groups are off in this cluster; {TURN_ON}"
            raise BrokerRefused(ErrorCode.UNSUPPORTED_VERSION, f"group {group!r}", reason)
    return offsets


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
