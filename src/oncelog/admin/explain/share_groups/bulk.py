"""Reads the share groups of a cluster in bulk, and looks into those with the most to deliver (KIP-932).

A share group without an answer is left out and reported. Members and start offsets cost two requests for each
``GROUPS_PER_REQUEST`` groups of a coordinator; records in flight cost requests of their own for ``MOST_INSPECTED``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.admin.explain.cluster_groups import by_coordinator
from oncelog.admin.explain.cluster_problems import group_problem
from oncelog.admin.explain.cluster_report import GroupSummary, Problem, TopicLag
from oncelog.admin.explain.share_groups.causes import share_group_findings
from oncelog.admin.explain.share_groups.facts import ShareGroupFacts, share_group_facts
from oncelog.admin.group_descriptions import SHARE, GroupDescription, GroupRow, share_description
from oncelog.admin.share_groups import ShareOffsetRow, offset_row
from oncelog.admin.transactions.broker_requests import BrokerRequest, Unanswered, send_requests
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.client.errors import ClientError, explain
from oncelog.client.programs import Cluster, Program, operation
from oncelog.wire.messages import describe_share_group_offsets as offsets_wire
from oncelog.wire.messages.share_group_describe import ShareGroupDescribeRequest

MOST_INSPECTED: Final = 10
"""Share groups whose records in flight are looked into: those with the most to deliver."""


@dataclass(slots=True)
class ClusterShareGroups:
    """Share groups by name. ``offsets`` has those that were answered."""

    descriptions: dict[str, GroupDescription] = field(default_factory=dict)
    offsets: dict[str, list[ShareOffsetRow]] = field(default_factory=dict)
    unanswered: list[Unanswered] = field(default_factory=list)

    def lag(self, group: str) -> int:
        return sum(row.lag or 0 for row in self.offsets.get(group, ()))


@operation
def read_share_groups(
    cluster: Cluster, rows: Sequence[GroupRow], bounds: Mapping[TopicPartition, Bounds]
) -> Program[ClusterShareGroups]:
    """The share groups of a list, with their offsets; ``bounds`` are the ends of logs. Raises ConfigError."""
    groups = ClusterShareGroups()
    # A cluster whose share groups are off lists them, and describes none.
    for row in rows:
        groups.descriptions[row.group] = GroupDescription(row.group, row.state, SHARE, SHARE, "", row.coordinator, [])
    requests: list[BrokerRequest[Any]] = []
    for broker, names in by_coordinator(rows):
        message = ShareGroupDescribeRequest(group_ids=names)
        requests.append(BrokerRequest(broker, message, f"members of {counted(len(names), 'share group')}"))
        group_requests = [
            offsets_wire.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in names
        ]
        described = offsets_wire.DescribeShareGroupOffsetsRequest(groups=group_requests)
        requests.append(BrokerRequest(broker, described, f"offsets of {counted(len(names), 'share group')}"))
    answers = yield from send_requests(cluster, requests)
    for request, answer in answers:
        if isinstance(answer, Unanswered):
            groups.unanswered.append(answer)
        elif isinstance(answer, offsets_wire.DescribeShareGroupOffsetsResponse):
            _add_offsets(groups, answer.groups, bounds, request.broker)
        else:
            _add_descriptions(groups, answer.groups, request.broker)
    return groups


def _add_descriptions(groups: ClusterShareGroups, described: Iterable[Any], broker: int) -> None:
    for group in described:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:  # ended meanwhile
            groups.descriptions.pop(group.group_id, None)
        elif group.error_code == ErrorCode.UNSUPPORTED_VERSION:
            continue
        elif group.error_code:
            reason = group.error_message or explain(group.error_code)
            groups.unanswered.append(Unanswered(broker, f"share group {group.group_id!r}", reason))
            groups.descriptions.pop(group.group_id, None)
        else:
            groups.descriptions[group.group_id] = share_description(group, broker)


def _add_offsets(
    groups: ClusterShareGroups,
    described: Iterable[offsets_wire.DescribeShareGroupOffsetsResponseGroup],
    bounds: Mapping[TopicPartition, Bounds],
    broker: int,
) -> None:
    for group in described:
        name = group.group_id
        if group.error_code:
            if group.error_code != ErrorCode.UNSUPPORTED_VERSION:
                reason = group.error_message or explain(group.error_code)
                groups.unanswered.append(Unanswered(broker, f"offsets of share group {name!r}", reason))
            continue
        rows = groups.offsets[name] = []
        for topic in group.topics:
            for partition in topic.partitions:
                place = TopicPartition(TopicName(topic.topic_name), partition.partition_index)
                limits = bounds.get(place)
                rows.append(offset_row(name, place, partition, None, None if limits is None else limits.end_offset))


def share_summary(groups: ClusterShareGroups, described: GroupDescription) -> GroupSummary:
    """A share group in a list. Its lag counts offsets whose delivery is not complete; what of them is readable depends
    on its isolation level, which a list does not ask for."""
    topics: dict[str, TopicLag] = {}
    rows = groups.offsets.get(described.group)
    for row in rows or ():
        lag = topics.setdefault(row.topic, TopicLag())
        lag.partitions += 1
        if row.lag is None:
            lag.unknown += row.start_offset is not None or bool(row.log_end)
        else:
            lag.lag += row.lag
            lag.readable += row.lag
    position = sum(row.start_offset or 0 for row in rows or ())
    return GroupSummary(
        described.group,
        described.state,
        described.group_type,
        described.protocol_type,
        described.coordinator,
        len(described.members),
        topics,
        position,
        rows is not None,
    )


def share_group_problems(
    cluster: Cluster, groups: ClusterShareGroups, now_ms: int, window_ms: int, principal: str | None, options: str
) -> Program[list[Problem]]:
    """The line of each share group that has a cause. Groups that cannot be looked into are reported in
    ``groups.unanswered``."""
    problems = []
    largest = sorted(groups.descriptions, key=lambda name: (-groups.lag(name), name))
    inspected = [name for name in largest if groups.descriptions[name].has_members_shown][:MOST_INSPECTED]
    for name, described in groups.descriptions.items():
        facts = ShareGroupFacts(described, now_ms, {row.topic_partition: row for row in groups.offsets.get(name, ())})
        if name in inspected and facts.offsets:
            try:
                facts, unanswered = yield from share_group_facts(
                    cluster, described, window_ms=window_ms, principal=principal
                )
            except ClientError as error:
                groups.unanswered.append(Unanswered(described.coordinator, f"share group {name!r}", str(error)))
            else:
                groups.unanswered += unanswered
        problem = group_problem(name, share_group_findings(facts, options), groups.lag(name), options)
        problems += [] if problem is None else [problem]
    left = [name for name in groups.descriptions if groups.lag(name) and name not in inspected]
    if left:
        reason = f"only {MOST_INSPECTED} are looked into; explain one by its name"
        groups.unanswered.append(Unanswered(None, f"records in flight of {counted(len(left), 'share group')}", reason))
    return problems
