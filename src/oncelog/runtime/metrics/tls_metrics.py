"""Metrics of TLS: handshakes by what came of them, and when each listener's certificate ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from oncelog.runtime.tls.listeners import ListenersTls


def tls_metrics(tls: ListenersTls) -> Iterator[Metric]:
    """Metrics of TLS, now."""
    handshakes = CounterMetricFamily(
        "oncelog_tls_handshakes", "TLS handshakes by what came of them.", labels=["outcome"]
    )
    if tls.handshakes is not None:
        for outcome, count in sorted(tls.handshakes.outcomes.items()):
            handshakes.add_metric([outcome], count)
        yield handshakes
        yield GaugeMetricFamily(
            "oncelog_tls_handshakes_under_way", "TLS handshakes begun and not ended.", value=tls.handshakes.under_way
        )
    ends = GaugeMetricFamily(
        "oncelog_tls_certificate_expiry_timestamp_seconds", "End of a listener's certificate.", labels=["listener"]
    )
    reloads = CounterMetricFamily(
        "oncelog_tls_certificate_reloads", "Times that changed certificates were taken up.", labels=["listener"]
    )
    for name, credentials in sorted(tls.credentials.items()):
        ends.add_metric([name], credentials.contexts.not_after_s)
        reloads.add_metric([name], credentials.reloads)
    yield ends
    yield reloads
