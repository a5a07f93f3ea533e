"""Metrics of share groups (KIP-932): sessions, records in flight, acknowledgements, locks and dead letters.

Records in flight are of the share partitions that this broker leads and has in memory: those with a member that
fetches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from oncelog.base.text import shortened
from oncelog.node.share.counters import ShareCounters

if TYPE_CHECKING:
    from oncelog.node.node import Node
    from oncelog.node.share.share_partitions import SharePartitions

MOST_GROUPS: Final = 10_000
"""Groups and topics with a series, those with the most records in flight first: any client may fetch for more."""
LABEL_LENGTH: Final = 200
"""Characters of a label chosen by a peer; a longer one is cut and gets a digest."""


def share_metrics(node: Node) -> Iterator[Metric]:
    shares = node.share.partitions if node.share.has_partitions else None
    sessions = None if shares is None else shares.sessions
    for name, text, value in (
        ("oncelog_share_sessions", "Share sessions.", 0 if sessions is None else len(sessions)),
        ("oncelog_share_session_partitions", "Their partitions.", 0 if sessions is None else sessions.partition_count),
        ("oncelog_share_partitions", "Share partitions led.", 0 if shares is None else len(shares.led_partitions)),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    yield CounterMetricFamily(
        "oncelog_share_session_evictions",
        "Share sessions that ended with their connection.",
        value=0 if sessions is None else sessions.evictions,
    )
    yield from _in_flight(shares)
    yield from _outcomes(shares)
    yield from _states(node)


def _in_flight(shares: SharePartitions | None) -> Iterator[Metric]:
    labels = ["group", "topic"]
    records = GaugeMetricFamily(
        "oncelog_share_records_in_flight", "Offsets of share partitions' windows.", labels=labels
    )
    batches = GaugeMetricFamily(
        "oncelog_share_batches_in_flight", "Batches of share partitions' windows.", labels=labels
    )
    counts: Counter[tuple[str, str]] = Counter()
    batch_counts: Counter[tuple[str, str]] = Counter()
    for led in () if shares is None else shares.led_partitions:
        if led.machine is not None:
            key = str(led.key.group_id), str(led.partition.topic)
            counts[key] += led.machine.in_flight_records
            batch_counts[key] += led.machine.in_flight_batches
    for key, count in sorted(nlargest(MOST_GROUPS, counts.items(), key=itemgetter(1))):
        names = [shortened(label, LABEL_LENGTH) for label in key]
        records.add_metric(names, count)
        batches.add_metric(names, batch_counts[key])
    yield from (records, batches)


def _outcomes(shares: SharePartitions | None) -> Iterator[Metric]:
    counters = ShareCounters()
    if shares is not None:
        machines = [led.machine for led in shares.led_partitions if led.machine is not None]
        counters = shares.counters.with_led(machines)
    acknowledged = CounterMetricFamily(
        "oncelog_share_acknowledged_records", "Records that members have acknowledged.", labels=["type"]
    )
    for kind, count in counters.by_type().items():
        acknowledged.add_metric([kind], count)
    yield acknowledged
    yield CounterMetricFamily(
        "oncelog_share_lock_timeouts", "Records whose lock has expired.", value=counters.lock_timeouts
    )
    letters = CounterMetricFamily(
        "oncelog_share_dead_letters", "Dead letters, written or failed for good.", labels=["outcome"]
    )
    letters.add_metric(["written"], counters.dead_letters)
    letters.add_metric(["headers_only"], counters.dead_letters_without_record)
    letters.add_metric(["failed"], counters.failed_dead_letters)
    yield letters


def _states(node: Node) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "oncelog_share_state_writes",
        "States of share partitions written by coordinators here.",
        value=node.share.states.write_count,
    )
    pruned = GaugeMetricFamily(
        "oncelog_share_state_pruned_offset", "First offset kept of __share_group_state.", labels=["partition"]
    )
    for partition, offset in sorted(node.share.states.pruned_offsets.items()):
        pruned.add_metric([str(partition)], offset)
    yield pruned
