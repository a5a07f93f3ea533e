"""The metrics of transactions in Prometheus' words: KIP-664's and what this broker knows beyond them.

Series of single partitions exist only where there is something to say: a last stable offset that lags or a transaction
that is open. ``docs/metrics.md`` sets the names beside Apache Kafka's.
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
    """All metrics of transactions, as of ``now_ms``."""
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
    most = late = 0
    for found in sorted(counted.partitions(node, now_ms)):
        labels = [found.partition.topic, str(found.partition.partition)]
        most = max(most, found.last_stable_offset_lag)
        late += found.longest_ms > late_after_ms
        if found.last_stable_offset_lag:
            lag.add_metric(labels, found.last_stable_offset_lag)
        if found.longest_ms:
            duration.add_metric(labels, found.longest_ms / SECOND_MS)
    yield lag
    yield duration
    yield GaugeMetricFamily(
        "oncelog_max_last_stable_offset_lag", "The largest lag of a last stable offset of any partition.", value=most
    )
    yield GaugeMetricFamily(
        "oncelog_partitions_with_late_transactions",
        "Partitions with a transaction open for longer than transaction.max.timeout.ms and 5 minutes.",
        value=late,
    )


def _of_coordinators(node: Node) -> Iterator[Metric]:
    known = counted.coordinated(node)
    by_state = GaugeMetricFamily(
        "oncelog_transactional_ids", "Transactional ids that this broker coordinates, by state.", labels=["state"]
    )
    for state in STATES:
        by_state.add_metric([state], known.by_state.get(state, 0))
    yield by_state
    for name, text, value in (
        (
            "oncelog_transaction_markers_outstanding",
            "Markers that decided transactions still wait for.",
            known.markers_outstanding,
        ),
        (
            "oncelog_transaction_markers_retrying",
            "Of those, markers that their log refused and that are tried again.",
            known.markers_retried,
        ),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    yield CounterMetricFamily(
        "oncelog_transactions_timed_out", "Transactions aborted because their time was over.", value=known.timed_out
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
    # The word for hanging transactions before 0.1, which dashboards may ask for; it goes after one release.
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
            "Deprecated: use oncelog_hanging_transactions_found_total.",
            watch.found_count,
        ),
        (
            "oncelog_orphaned_transactions_aborted",
            "Deprecated: use oncelog_hanging_transactions_aborted_total.",
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
