"""The metrics of ``oncelog txn watch --prometheus``: the last scan of a cluster, for clusters without such metrics.

Only transactions that are not live get labels with their ids, and at most ``MOST_SERIES`` of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from oncelog.base.transaction_verdicts import Verdict
from oncelog.cli.support.metrics_server import MetricsServer

if TYPE_CHECKING:
    from oncelog.admin.transactions.cluster_scan import OpenTransaction, Scan

MOST_SERIES: Final = 200
_LABELS: Final = ("topic", "partition", "producer_id", "transactional_id", "verdict")


class Exporter(Collector):
    """Serves metrics from a thread of its own until the process ends. Raises ClientError for an address in use."""

    def __init__(self, address: str, port: int) -> None:
        self._lock = threading.Lock()
        self._scan: Scan | None = None
        self._seconds = 0.0
        self._scans = 0
        self._failures = 0
        self._scanned_at = 0.0
        self._server = MetricsServer(self, address, port)
        self.port = self._server.port

    def close(self) -> None:
        self._server.close()

    def scanned(self, scan: Scan | None, seconds: float) -> None:
        """Records a scan; None for a failed one."""
        with self._lock:
            self._scans += 1
            self._seconds = seconds
            if scan is None:
                self._failures += 1
            else:
                self._scan, self._scanned_at = scan, time.time()

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            scan, seconds, scanned_at = self._scan, self._seconds, self._scanned_at
            scans, failures = self._scans, self._failures
        # Names with "look" are those before 0.1; removed in 0.2.
        for name in ("oncelog_txn_scans", "oncelog_txn_looks"):
            yield CounterMetricFamily(name, "Scans of the cluster.", value=scans)
        for name in ("oncelog_txn_failed_scans", "oncelog_txn_failed_looks"):
            yield CounterMetricFamily(name, "Scans that reached no broker.", value=failures)
        for name in ("oncelog_txn_scan_duration_seconds", "oncelog_txn_look_duration_seconds"):
            yield GaugeMetricFamily(name, "Duration of the last scan.", value=seconds)
        if scan is None:
            return
        for name in ("oncelog_txn_last_scan_timestamp_seconds", "oncelog_txn_looked_timestamp_seconds"):
            yield GaugeMetricFamily(name, "Time of the last successful scan.", value=scanned_at)
        yield GaugeMetricFamily("oncelog_txn_partitions", "Partitions in the last scan.", value=scan.partitions)
        yield GaugeMetricFamily(
            "oncelog_txn_unanswered", "Requests of the last scan without an answer.", value=len(scan.unanswered)
        )
        counts = GaugeMetricFamily("oncelog_txn_open", "Open transactions by verdict.", labels=["verdict"])
        for verdict in Verdict:
            counts.add_metric([verdict.value], len(scan.of(verdict)))
        yield counts
        yield from _each(scan)


def _each(scan: Scan) -> Iterable[Metric]:
    """Age and records behind of transactions that are not live, the oldest first."""
    reported = scan.of(Verdict.HANGING, Verdict.SUSPECTED, Verdict.TWO_PHASE)
    reported = sorted(
        reported, key=lambda transaction: (transaction.verdict is not Verdict.HANGING, -(transaction.age_ms or 0))
    )[:MOST_SERIES]
    age = GaugeMetricFamily("oncelog_txn_age_seconds", "Age of a transaction that is not live.", labels=_LABELS)
    behind = GaugeMetricFamily(
        "oncelog_txn_records_behind", "Offsets behind a transaction that is not live.", labels=_LABELS
    )
    for transaction in reported:
        labels = _labels(transaction)
        if transaction.age_ms is not None:
            age.add_metric(labels, transaction.age_ms / 1000)
        if transaction.records_behind is not None:
            behind.add_metric(labels, transaction.records_behind)
    yield age
    yield behind


def _labels(transaction: OpenTransaction) -> list[str]:
    producer = transaction.producer
    return [
        producer.topic,
        str(producer.partition),
        str(producer.producer_id),
        transaction.transactional_id or "",
        transaction.verdict.value,
    ]
