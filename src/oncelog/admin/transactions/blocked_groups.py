"""Finds groups blocked by a transaction: behind a last stable offset, or with their own offsets pending in it.

Groups are queried in bulk, one request per coordinator, up to ``MOST_GROUPS``; the result says if there are more. Only
a group's members know whether it reads committed records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.admin.group_descriptions import TYPES_WITH_OFFSETS, listed_groups
from oncelog.admin.transactions.broker_requests import BrokerRequest, Unanswered, send_requests
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition, by_topic
from oncelog.client.errors import ClientError, explain
from oncelog.client.machine.offsets import LAST_VERSION_BY_NAME, offset_fetch_request
from oncelog.client.programs import Cluster, Program, operation
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

MOST_GROUPS: Final = 1000
GROUPS_PER_REQUEST: Final = 100
_FIRST_VERSION_WITH_GROUPS: Final = 8


@dataclass(frozen=True, slots=True)
class GroupBehind:
    group: str
    committed: int
    lag: int


@operation
def groups_behind(
    cluster: Cluster, held: Mapping[TopicPartition, Bounds]
) -> Program[tuple[dict[TopicPartition, list[GroupBehind]], list[Unanswered]]]:
    """Groups whose position in a partition is at or before the last stable offset, furthest behind first."""
    unanswered: list[Unanswered] = []
    by_coordinator = yield from _groups(cluster, unanswered)
    topics = [OffsetFetchRequestTopics(name=n, partition_indexes=behind) for n, behind in by_topic(held).items()]
    requests = []
    for broker, names in by_coordinator.items():
        link = yield from cluster.link(broker)
        if not link.versions.supports(OffsetFetchRequest, _FIRST_VERSION_WITH_GROUPS):
            unanswered.append(Unanswered(broker, "offsets of its groups", "it is too old to be asked for many at once"))
            continue
        for start in range(0, len(names), GROUPS_PER_REQUEST):
            groups = [
                OffsetFetchRequestGroup(group_id=n, topics=topics) for n in names[start : start + GROUPS_PER_REQUEST]
            ]
            message = OffsetFetchRequest(groups=groups)
            requests.append(BrokerRequest(broker, message, "offsets of its groups", LAST_VERSION_BY_NAME))
    behind: dict[TopicPartition, list[GroupBehind]] = {}
    answers = yield from send_requests(cluster, requests)
    for _, answer in answers:
        if isinstance(answer, Unanswered):
            unanswered.append(answer)
            continue
        for group in answer.groups:
            for topic in group.topics:
                for partition in topic.partitions:
                    tp = TopicPartition(TopicName(topic.name), partition.partition_index)
                    bounds = held.get(tp)
                    if bounds is not None and 0 <= partition.committed_offset <= bounds.last_stable_offset:
                        lag = bounds.end_offset - partition.committed_offset
                        behind.setdefault(tp, []).append(GroupBehind(group.group_id, partition.committed_offset, lag))
    for rows in behind.values():
        rows.sort(key=lambda row: (row.committed, row.group))
    return behind, unanswered


def _groups(cluster: Cluster, unanswered: list[Unanswered]) -> Program[dict[int, list[str]]]:
    # Older brokers have no such filter, and no groups that it would leave out.
    message = ListGroupsRequest(types_filter=list(TYPES_WITH_OFFSETS))
    requests = [BrokerRequest(broker, message, "its groups") for broker in sorted(cluster.view.brokers)]
    groups: dict[int, list[str]] = {}
    count = 0
    answers = yield from send_requests(cluster, requests)
    for request, answer in answers:
        if isinstance(answer, Unanswered):
            unanswered.append(answer)
        elif answer.error_code:
            unanswered.append(Unanswered(request.broker, request.subject, explain(answer.error_code)))
        else:
            names = [row.group for row in listed_groups(request.broker, answer)]
            # The limit is on the cluster's groups, not on each broker's.
            kept = names[: max(0, MOST_GROUPS - count)]
            count += len(kept)
            groups[request.broker] = kept
            if len(kept) < len(names):
                reason = f"only the first {MOST_GROUPS} of the cluster are looked at"
                unanswered.append(Unanswered(request.broker, f"{len(names) - len(kept)} groups", reason))
    return {broker: names for broker, names in groups.items() if names}


@operation
def pending_offsets(
    cluster: Cluster, group: str, partitions: Collection[TopicPartition]
) -> Program[set[TopicPartition]]:
    """The partitions whose offset is part of an open transaction (KIP-447); none without an answer.

    They are requested by name: a request for all offsets omits a group's first commit while it is pending.
    """
    if not partitions:
        return set()
    message = offset_fetch_request(group, sorted(partitions), require_stable=True)
    try:
        response = yield from cluster.at_coordinator(group, message, at_most=LAST_VERSION_BY_NAME)
    # Older coordinators cannot be queried for pending offsets.
    except ClientError:
        return set()
    answer: Any = response.groups[0] if response.groups else response
    return {
        TopicPartition(TopicName(topic.name), partition.partition_index)
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    }
