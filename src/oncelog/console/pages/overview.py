"""The overview page: current problems of the cluster, each with a link to its cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.cluster_status import cluster_status
from oncelog.admin.transactions.blocked_groups import GroupBehind, groups_behind
from oncelog.admin.transactions.cluster_scan import scan
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of, readable_before
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import Verdict
from oncelog.client.blocking.client import Client
from oncelog.console.page import PageRequest

MAX_ROWS: Final = 50  # Rows shown of each kind; the counts cover all.
MAX_INSPECTED_GROUPS: Final = 20  # Groups just before a last stable offset whose remaining records are looked at.


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    return page_request.recent.get("overview", lambda: collect(client))


def collect(client: Client) -> Mapping[str, Any]:
    """Collect brokers, partitions with problems, open transactions by verdict, and the groups that these block."""
    status = cluster_status(client, spare=False)
    scanned = scan(client)
    holding = sorted({transaction.topic_partition for transaction in scanned.transactions if transaction.holds})
    bounds, unanswered = bounds_of(client, holding)
    behind, silent = groups_behind(client, bounds) if bounds else ({}, [])
    holders = {
        transaction.topic_partition: transaction.as_row()
        for transaction in reversed(scanned.transactions)
        if transaction.holds
    }
    groups: list[dict[str, Any]] = [
        {
            "group": behind_group.group,
            "topic": partition.topic,
            "partition": partition.partition,
            "lag": behind_group.lag,
            "held_by": holders.get(partition),
        }
        for partition, behind_group in groups_at_stable_end(client, behind, bounds)
    ]
    return {
        "status": {
            "healthy": status.healthy,
            "problems": status.problems,
            "cluster_id": status.cluster_id,
            "controller_id": status.controller_id,
            "topics": status.topics,
            "partitions": status.partitions,
            "brokers": status.brokers,
        },
        "up": sum(broker.state == "up" for broker in status.brokers),
        "lacking": {
            "without leader": _some(status.without_leader),
            "under-replicated": _some(status.under_replicated),
            "under min ISR": _some(status.under_min_isr),
        },
        "transactions": {verdict.value: len(scanned.of(verdict)) for verdict in Verdict},
        "held_groups": sorted(groups, key=lambda group: -group["lag"])[:MAX_ROWS],
        "unanswered": list(dict.fromkeys(map(str, [*status.not_seen, *scanned.unanswered, *unanswered, *silent]))),
    }


def groups_at_stable_end(
    client: Client, behind: Mapping[TopicPartition, list[GroupBehind]], bounds: Mapping[TopicPartition, Bounds]
) -> list[tuple[TopicPartition, GroupBehind]]:
    """The groups that have read all they can: at a last stable offset, or with only markers before it.

    Many consumers commit the offset after their last record, where the marker that ended its transaction lies.
    """
    blocked, close = [], []
    for partition, groups in behind.items():
        for group in groups:
            left = bounds[partition].last_stable_offset - group.committed
            if left <= 0:
                blocked.append((partition, group))
            else:
                close.append((left, partition, group))
    close.sort(key=lambda entry: (entry[0], entry[1], entry[2].group))
    for _, partition, group in close[:MAX_INSPECTED_GROUPS]:
        if not readable_before(client, partition, group.committed, bounds[partition].last_stable_offset):
            blocked.append((partition, group))
    return blocked


def _some(rows: list[Any]) -> dict[str, Any]:
    return {"total": len(rows), "rows": rows[:MAX_ROWS]}
