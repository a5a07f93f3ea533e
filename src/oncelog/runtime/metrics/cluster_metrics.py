"""Cluster metrics as one broker sees them: replication of what it leads and follows, and the controller's counts.

Only the controller exports counts of the whole cluster, as in Apache Kafka: a sum over all brokers would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from oncelog.base.ids import NO_BROKER

if TYPE_CHECKING:
    from oncelog.node.node import Node


def cluster_metrics(node: Node) -> Iterator[Metric]:
    yield from _of_replicas(node)
    yield from _of_frozen_brokers(node)
    yield from _of_controller(node)


def _of_replicas(node: Node) -> Iterator[Metric]:
    sets = node.in_sync_sets
    for name, text, value in (
        ("oncelog_leader_partitions", "Partitions that this broker leads.", node.partitions.leader_count()),
        ("oncelog_under_replicated_partitions", "Of those, with replicas out of sync.", sets.under_replicated_count()),
        (
            "oncelog_under_min_isr_partitions",
            "Of those, with fewer replicas in sync than min.insync.replicas.",
            sets.under_min_in_sync_count(),
        ),
        (
            "oncelog_at_min_isr_partitions",
            "Of those with followers, with exactly min.insync.replicas in sync.",
            sets.at_min_in_sync_count(),
        ),
        (
            "oncelog_replica_max_lag_records",
            "Records by which the copy that is furthest behind lacks what its leader has shown.",
            node.followers.max_lag(),
        ),
        (
            "oncelog_offline_log_directories",
            "Data directories that take no records: the disk is full.",
            int(node.directory.is_offline),
        ),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    yield CounterMetricFamily(
        "oncelog_isr_shrinks", "Replicas taken out of in-sync sets, by turns.", value=sets.shrinks
    )
    yield CounterMetricFamily(
        "oncelog_isr_expands", "Replicas taken into in-sync sets, by turns.", value=sets.expansions
    )
    throttled = CounterMetricFamily(
        "oncelog_replication_throttled_bytes", "Bytes of throttled replicas, given or copied.", labels=["side"]
    )
    throttled.add_metric(["leader"], node.cluster.leader_throttle.quota.total_bytes)
    throttled.add_metric(["follower"], node.cluster.follower_throttle.quota.total_bytes)
    yield throttled


def _of_frozen_brokers(node: Node) -> Iterator[Metric]:
    watch = node.liveness.freezes
    yield GaugeMetricFamily(
        "oncelog_suspected_brokers",
        "Brokers that this one finds frozen.",
        value=0 if watch is None else len(watch.suspects()),
    )
    yield CounterMetricFamily(
        "oncelog_frozen_broker_removals",
        "Registrations of frozen brokers that this one has ended.",
        value=0 if watch is None else watch.ended_registrations,
    )


def _of_controller(node: Node) -> Iterator[Metric]:
    is_controller = node.controller.is_controller
    yield GaugeMetricFamily("oncelog_active_controller", "1 on the controller.", value=int(is_controller))
    yield CounterMetricFamily(
        "oncelog_leader_elections",
        "Partitions given a leader, or none, by this broker.",
        value=node.controller.elections,
    )
    if not is_controller:
        return
    image = node.cluster.image
    states = [partition for topic in image.topics.values() for partition in topic.partitions]
    for name, text, value in (
        ("oncelog_active_brokers", "Live brokers.", sum(not broker.fenced for broker in image.brokers.values())),
        ("oncelog_fenced_brokers", "Fenced brokers.", sum(broker.fenced for broker in image.brokers.values())),
        ("oncelog_cluster_topics", "Topics of the cluster.", len(image.topics)),
        ("oncelog_cluster_partitions", "Partitions of the cluster.", len(states)),
        (
            "oncelog_offline_partitions",
            "Partitions without a leader.",
            sum(state.leader == NO_BROKER for state in states),
        ),
        (
            "oncelog_preferred_replica_imbalance",
            "Partitions that another replica than the preferred one leads.",
            sum(state.leader != state.replicas[0] for state in states),
        ),
        (
            "oncelog_reassigning_partitions",
            "Partitions being reassigned.",
            sum(bool(state.adding or state.removing) for state in states),
        ),
    ):
        yield GaugeMetricFamily(name, text, value=value)
