"""The overview: what is wrong in the cluster at this moment, each with a link to its cause."""

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
from oncelog.console.page import Asked

MOST_ROWS: Final = 50
"""Rows of each kind that are shown; the numbers are those of all."""
MOST_LOOKED_INTO: Final = 20
"""Groups just before a last stable offset of which it is found out whether markers alone lie between."""


def read(client: Client, asked: Asked) -> Mapping[str, Any]:
    """The overview of a moment ago, which all who look share."""
    return asked.recent.get("overview", lambda: look(client))


def look(client: Client) -> Mapping[str, Any]:
    """Brokers, partitions that lack something, open transactions by verdict, and the groups behind those that hold."""
    status = cluster_status(client, spare=False)
    scanned = scan(client)
    holding = sorted({transaction.where for transaction in scanned.transactions if transaction.holds})
    bounds, unanswered = bounds_of(client, holding)
    behind, silent = groups_behind(client, bounds) if bounds else ({}, [])
    holders = {
        transaction.where: transaction.as_row() for transaction in reversed(scanned.transactions) if transaction.holds
    }
    groups: list[dict[str, Any]] = [
        {
            "group": one.group,
            "topic": where.topic,
            "partition": where.partition,
            "lag": one.lag,
            "held_by": holders.get(where),
        }
        for where, one in standing(client, behind, bounds)
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
        "held_groups": sorted(groups, key=lambda group: -group["lag"])[:MOST_ROWS],
        "unanswered": list(dict.fromkeys(map(str, [*status.not_seen, *scanned.unanswered, *unanswered, *silent]))),
    }


def standing(
    client: Client, behind: Mapping[TopicPartition, list[GroupBehind]], bounds: Mapping[TopicPartition, Bounds]
) -> list[tuple[TopicPartition, GroupBehind]]:
    """The groups that have read all they can: at a last stable offset, or with nothing but markers before it.

    Many consumers commit the offset after their last record; the marker that ended its transaction lies there.
    """
    found, close = [], []
    for where, groups in behind.items():
        for one in groups:
            left = bounds[where].last_stable_offset - one.committed
            if left <= 0:
                found.append((where, one))
            else:
                close.append((left, where, one))
    close.sort(key=lambda each: (each[0], each[1], each[2].group))
    for _, where, one in close[:MOST_LOOKED_INTO]:
        if not readable_before(client, where, one.committed, bounds[where].last_stable_offset):
            found.append((where, one))
    return found


def _some(rows: list[Any]) -> dict[str, Any]:
    return {"total": len(rows), "rows": rows[:MOST_ROWS]}
