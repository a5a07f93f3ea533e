"""Metrics of transactions as Prometheus families: KIP-664's, and those that only this broker has.

Single partitions have series only while their last stable offset lags or a transaction is open. ``docs/metrics.md``
compares the names with Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from oncelog.base.transaction_verdicts import REPORTED, REPORTED_HANGING
from oncelog.base.units import SECOND_MS
from oncelog.node.observation import transaction_metrics as counted

if TYPE_CHECKING:
    from oncelog.node.node import Node

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)


def transaction_metrics(node: Node, now_ms: int) -> Iterator[Metric]:
    yield from _of_partitions(node, now_ms)
    yield from _of_coordinators(node)
    yield from _of_the_watch(node)


def _of_partitions(node: Node, now_ms: int) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "oncelog_partition_last_stable_offset_lag",
        "Records between the last stable offset and the high watermark; partitions without any are left out.",
        labels=["topic", "partition"],
    )
    duration = GaugeMetricFamily(
        "oncelog_partition_max_active_transaction_duration_seconds",
        "Age of the transaction that has been open longest; partitions without one are left out.",
        labels=["topic", "partition"],
    )
    late_after_ms = counted.late_after_ms(node)
    max_lag = late_count = 0
    for partition in sorted(counted.partitions(node, now_ms)):
        labels = [partition.partition.topic, str(partition.partition.partition)]
        max_lag = max(max_lag, partition.last_stable_offset_lag)
        late_count += partition.longest_ms > late_after_ms
        if partition.last_stable_offset_lag:
            lag.add_metric(labels, partition.last_stable_offset_lag)
        if partition.longest_ms:
            duration.add_metric(labels, partition.longest_ms / SECOND_MS)
    yield lag
    yield duration
    yield GaugeMetricFamily(
        "oncelog_max_last_stable_offset_lag", "The largest lag of a last stable offset of any partition.", value=max_lag
    )
    yield GaugeMetricFamily(
        "oncelog_partitions_with_late_transactions",
        "Partitions with a transaction open for longer than transaction.max.timeout.ms and 5 minutes.",
        value=late_count,
    )


def _of_coordinators(node: Node) -> Iterator[Metric]:
    transactions = counted.coordinated(node)
    by_state = GaugeMetricFamily(
        "oncelog_transactional_ids", "Transactional ids that this broker coordinates, by state.", labels=["state"]
    )
    for state in STATES:
        by_state.add_metric([state], transactions.by_state.get(state, 0))
    yield by_state
    for name, text, value in (
        (
            "oncelog_transaction_markers_outstanding",
            "Markers that decided transactions still wait for.",
            transactions.markers_outstanding,
        ),
        (
            "oncelog_transaction_markers_retrying",
            "Of those, markers that their log refused and that are tried again.",
            transactions.markers_retried,
        ),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    yield CounterMetricFamily(
        "oncelog_transactions_timed_out",
        "Transactions aborted because their time was over.",
        value=transactions.timed_out,
    )


def _of_the_watch(node: Node) -> Iterator[Metric]:
    watch, now = node.hanging_watch, counted.verdicts(node)
    opened = GaugeMetricFamily(
        "oncelog_open_transactions",
        "Transactions open on partitions, one for each partition, by what their coordinator says of them.",
        labels=["verdict"],
    )
    for verdict in REPORTED:
        opened.add_metric([verdict], now.get(verdict, 0))
    # The name of hanging transactions before 0.1, kept for dashboards; removed in 0.2.
    opened.add_metric(["orphaned"], now.get(REPORTED_HANGING, 0))
    yield opened
    yield GaugeMetricFamily(
        "oncelog_two_phase_transactions_overdue",
        "Transactions in two-phase commit older than transaction.two.phase.commit.alarm.ms.",
        value=watch.overdue_count(),
    )
    for name, text, value in (
        ("oncelog_hanging_transactions_found", "Hanging transactions found since the start.", watch.found_count),
        ("oncelog_hanging_transactions_aborted", "Hanging transactions aborted by this broker.", watch.aborted),
        (
            "oncelog_orphaned_transactions_found",
            "Deprecated, removed in 0.2: use oncelog_hanging_transactions_found_total.",
            watch.found_count,
        ),
        (
            "oncelog_orphaned_transactions_aborted",
            "Deprecated, removed in 0.2: use oncelog_hanging_transactions_aborted_total.",
            watch.aborted,
        ),
        (
            "oncelog_transaction_verification_failures",
            "Partitions of transactional writes refused because the coordinator did not know of them.",
            node.transactions.verification_failures,
        ),
    ):
        yield CounterMetricFamily(name, text, value=value)
    audited = CounterMetricFamily(
        "oncelog_audit_records",
        "Records of the audit log: ends of transactions from outside, by action and outcome.",
        labels=["action", "outcome"],
    )
    for (action, outcome), count in sorted(node.audit_trail.counts.items()):
        audited.add_metric([action, outcome], count)
    yield audited
