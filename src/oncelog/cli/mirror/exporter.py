"""Metrics that ``oncelog mirror --prometheus`` serves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from oncelog.client.errors import code_name
from oncelog.mirror.progress import GroupState, Progress

_PARTITION = ("source", "topic", "partition")


class MirrorCollector(Collector):
    """Collects the progress of all engines at each scrape."""

    def __init__(self, engines: Sequence[Progress]) -> None:
        self._engines = engines

    def collect(self) -> Iterable[Metric]:
        counters = [
            ("records", "Records copied by committed transactions.", [p.records for p in self._engines]),
            ("bytes", "Bytes of the batches copied.", [p.bytes for p in self._engines]),
            ("transactions", "Transactions committed at the target.", [p.transactions for p in self._engines]),
            ("failures", "Failures after which the mirror went on.", [p.failures for p in self._engines]),
        ]
        for name, text, values in counters:
            family = CounterMetricFamily(f"oncelog_mirror_{name}", text, labels=("source",))
            for engine, value in zip(self._engines, values, strict=True):
                family.add_metric([engine.alias], value)
            yield family
        lag = GaugeMetricFamily("oncelog_mirror_lag", "Offsets that are not copied yet.", labels=_PARTITION)
        position = GaugeMetricFamily("oncelog_mirror_position", "Next offset of the source.", labels=_PARTITION)
        groups = GaugeMetricFamily(
            "oncelog_mirror_group_offsets", "Offsets of groups by state.", labels=("source", "state")
        )
        refused = GaugeMetricFamily(
            "oncelog_mirror_refused",
            "Partitions that stand, and topics that are not copied.",
            labels=(*_PARTITION, "error"),
        )
        for engine in self._engines:
            for refusal in engine.refused():
                number = "" if refusal.partition is None else str(refusal.partition)
                if refusal.stands:
                    refused.add_metric([refusal.source, refusal.topic, number, code_name(refusal.code)], 1)
            for row in engine.rows():
                labels = [row.source, row.topic, str(row.partition)]
                position.add_metric(labels, row.position)
                if row.lag is not None:
                    lag.add_metric(labels, row.lag)
            for state in GroupState:
                groups.add_metric([engine.alias, state.value], sum(group.state is state for group in engine.groups))
        yield lag
        yield position
        yield groups
        yield refused
