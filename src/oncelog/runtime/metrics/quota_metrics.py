"""Metrics of client quotas: how often and how long clients were told to wait, and who uses how much of a quota.

At most ``MOST_CLIENTS`` clients of each kind are named, those that use most of their quota: a client that takes a new
id for each request is not to fill the monitoring.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from oncelog.base.text import shortened

if TYPE_CHECKING:
    from oncelog.node.cluster.client_quotas import Usage
    from oncelog.node.node import Node

MOST_CLIENTS: Final = 100
LABEL_LENGTH: Final = 200
"""Characters of a name that a peer chose; of a longer one the beginning and a digest."""


def quota_metrics(node: Node, now_ms: int) -> Iterator[Metric]:
    """Metrics of client quotas, now."""
    quotas = node.cluster.quotas
    throttles = CounterMetricFamily("oncelog_quota_throttles", "Answers that told to wait.", labels=["quota"])
    seconds = CounterMetricFamily("oncelog_quota_throttle_seconds", "Time told to wait, added up.", labels=["quota"])
    labels = ["quota", "user", "client_id"]
    usage = GaugeMetricFamily("oncelog_quota_usage", "What clients under a quota take.", labels=labels)
    limit = GaugeMetricFamily("oncelog_quota_limit", "Their quota.", labels=labels)
    for name, quota in (
        ("produce", quotas.produce),
        ("fetch", quotas.fetch),
        ("request", quotas.request),
        ("controller_mutation", quotas.mutations),
    ):
        throttles.add_metric([name], quota.throttles.count)
        seconds.add_metric([name], quota.throttles.sum_ms / 1000)
        for used in nlargest(MOST_CLIENTS, quota.usage(now_ms), key=_share):
            client = [shortened(text, LABEL_LENGTH) for text in used.client]
            usage.add_metric([name, *client], used.rate)
            limit.add_metric([name, *client], used.limit)
    yield from (throttles, seconds, usage, limit)
    muted = len(node.requests.mutes)
    yield GaugeMetricFamily("oncelog_muted_connections", "Connections not read now for a quota.", value=muted)
    yield CounterMetricFamily(
        "oncelog_connections_over_rate",
        "Closed: their address connected too often.",
        value=quotas.connections.throttled,
    )


def _share(used: Usage) -> float:
    return used.rate / used.limit
