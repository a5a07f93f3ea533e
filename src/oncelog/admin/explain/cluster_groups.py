"""Reads all groups of a cluster in bulk: lists, members, committed offsets.

The rule: a group without an answer is left out and reported, never taken for one without members or offsets. Groups
without members are not described; share groups, which commit no offsets, are listed (``share_groups.bulk``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.admin.group_descriptions import (
    CLASSIC,
    CONSUMER,
    SHARE,
    GroupDescription,
    GroupRow,
    classic_description,
    consumer_description,
    listed_groups,
)
from oncelog.admin.transactions.broker_requests import (
    BrokerRequest,
    Progress,
    Unanswered,
    no_progress,
    send_and_read,
    send_requests,
)
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition, group_by_key
from oncelog.client.errors import BrokerRefused, ClientError, explain
from oncelog.client.machine.connection import Response
from oncelog.client.machine.offsets import LAST_VERSION_BY_NAME, committed_in, offset_fetch_request
from oncelog.client.programs import Cluster, Program, operation
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

GROUPS_PER_REQUEST: Final = 50
MOST_GROUPS: Final = 20_000
_FIRST_VERSION_WITH_GROUPS: Final = 8
_IDLE: Final = frozenset({"Empty", "Dead"})

Committed = dict[TopicPartition, int]


@dataclass(slots=True)
class ClusterGroups:
    """Groups by name, with their committed offsets if those were answered. ``total`` counts all that are listed."""

    descriptions: dict[str, GroupDescription] = field(default_factory=dict)
    committed: dict[str, Committed] = field(default_factory=dict)
    unanswered: list[Unanswered] = field(default_factory=list)
    coordinators: list[Unanswered] = field(default_factory=list)
    """Brokers that did not list the groups they coordinate."""
    share: list[GroupRow] = field(default_factory=list)
    total: int = 0


@operation
def read_groups(cluster: Cluster, progress: Progress = no_progress) -> Program[ClusterGroups]:
    """Raises ConfigError for a wrong client setting."""
    groups = ClusterGroups()
    rows = yield from _list(cluster, groups)
    groups.total = len(rows)
    groups.share = [row for row in rows[:MOST_GROUPS] if row.group_type == SHARE]
    if len(rows) > MOST_GROUPS:
        reason = f"only {MOST_GROUPS:,} groups of a cluster are looked at"
        groups.unanswered.append(Unanswered(None, f"{len(rows) - MOST_GROUPS:,} groups", reason))
        rows = rows[:MOST_GROUPS]
    rows = [row for row in rows if row.group_type != SHARE]
    for row in rows:
        if row.state in _IDLE:
            groups.descriptions[row.group] = GroupDescription(
                row.group, row.state, row.group_type or CLASSIC, row.protocol_type, "", row.coordinator, []
            )
    yield from _describe(cluster, [row for row in rows if row.state not in _IDLE], groups, progress)
    yield from _fetch_offsets(cluster, rows, groups, progress)
    return groups


def _list(cluster: Cluster, groups: ClusterGroups) -> Program[list[GroupRow]]:
    requests = [BrokerRequest(broker, ListGroupsRequest(), "its groups") for broker in sorted(cluster.view.brokers)]
    rows: dict[str, GroupRow] = {}
    answers = yield from send_requests(cluster, requests)
    for request, answer in answers:
        if isinstance(answer, Unanswered):
            groups.coordinators.append(answer)
        elif answer.error_code:
            groups.coordinators.append(Unanswered(request.broker, request.subject, explain(answer.error_code)))
        else:
            rows.update({row.group: row for row in listed_groups(request.broker, answer)})
    return [rows[name] for name in sorted(rows)]


def _describe(cluster: Cluster, rows: Sequence[GroupRow], groups: ClusterGroups, progress: Progress) -> Program[None]:
    """Describe groups; those of the type streams are known by their lists alone."""
    requests: list[BrokerRequest[Any]] = []
    for group_type in (CLASSIC, CONSUMER):
        for broker, names in by_coordinator(row for row in rows if (row.group_type or CLASSIC) == group_type):
            message: Any = (
                ConsumerGroupDescribeRequest(group_ids=names)
                if group_type == CONSUMER
                else DescribeGroupsRequest(groups=names)
            )
            requests.append(BrokerRequest(broker, message, f"members of {len(names)} groups"))
    for row in rows:
        if row.group_type not in ("", CLASSIC, CONSUMER):
            groups.descriptions[row.group] = GroupDescription(
                row.group, row.state, row.group_type, row.protocol_type, "", row.coordinator, []
            )
    answers = yield from send_requests(cluster, requests, progress)
    for request, answer in answers:
        if isinstance(answer, Unanswered):
            groups.unanswered.append(answer)
            continue
        describe: Any = (
            consumer_description if isinstance(request.message, ConsumerGroupDescribeRequest) else classic_description
        )
        for described in answer.groups:
            # A group that ended meanwhile is no problem.
            if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND or described.group_state == "Dead":
                continue
            if described.error_code:
                reason = explain(described.error_code)
                groups.unanswered.append(Unanswered(request.broker, f"group {described.group_id!r}", reason))
            else:
                groups.descriptions[described.group_id] = describe(described, request.broker)


def _fetch_offsets(
    cluster: Cluster, rows: Sequence[GroupRow], groups: ClusterGroups, progress: Progress
) -> Program[None]:
    requests: list[BrokerRequest[OffsetFetchResponse]] = []
    old_names: dict[int, str] = {}  # Names of the requests for one group, whose answers have none.
    for broker, names in by_coordinator(rows):
        try:
            link = yield from cluster.link(broker)
        except ClientError as error:
            groups.unanswered.append(Unanswered(broker, f"offsets of {len(names)} groups", str(error)))
            continue
        if link.versions.supports(OffsetFetchRequest, _FIRST_VERSION_WITH_GROUPS):
            message = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])
            requests.append(BrokerRequest(broker, message, f"offsets of {len(names)} groups", LAST_VERSION_BY_NAME))
            continue
        for name in names:
            message, subject = offset_fetch_request(name, None, require_stable=False), f"offsets of group {name!r}"
            requests.append(BrokerRequest(broker, message, subject, LAST_VERSION_BY_NAME))
            old_names[id(requests[-1])] = name
    interned: dict[TopicPartition, TopicPartition] = {}
    # Answers become plain dictionaries as they come: messages of thousands of groups are many times as large.
    answers = yield from send_and_read(cluster, requests, lambda response: _offsets_in(response, interned), progress)
    for request, answer in answers:
        if isinstance(answer, Unanswered):
            groups.unanswered.append(answer)
            continue
        for name, committed in answer.items():
            name = name or old_names.get(id(request), "")
            if isinstance(committed, BrokerRefused):
                groups.unanswered.append(Unanswered(request.broker, f"offsets of group {name!r}", str(committed)))
            else:
                groups.committed[name] = committed


def _offsets_in(
    response: Response[OffsetFetchResponse], interned: dict[TopicPartition, TopicPartition]
) -> Mapping[str, Committed | BrokerRefused]:
    """Committed offsets by group; the only group of an old answer has the name ""."""
    message = response.decode()
    offsets: dict[str, Committed | BrokerRefused] = {}
    single = [OffsetFetchResponse(groups=[group]) for group in message.groups] or [message]
    for answer in single:
        name = answer.groups[0].group_id if answer.groups else ""
        try:
            committed = committed_in(answer, name)
        except BrokerRefused as error:
            offsets[name] = error
        else:
            offsets[name] = {interned.setdefault(tp, tp): position.offset for tp, position in committed.items()}
    return offsets


def by_coordinator(rows: Iterator[GroupRow] | Sequence[GroupRow]) -> Iterator[tuple[int, list[str]]]:
    """Names of groups by coordinator, as many as fit into a request."""
    names = group_by_key((row.coordinator, row.group) for row in rows)
    for broker, listed in names.items():
        for start in range(0, len(listed), GROUPS_PER_REQUEST):
            yield broker, listed[start : start + GROUPS_PER_REQUEST]
