"""The metrics of logins and access control in Prometheus' words; without an authorizer nothing is denied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from oncelog.base.acls import Operation, ResourceType, kafka_word
from oncelog.node.access.access_log import acl_count

if TYPE_CHECKING:
    from oncelog.node.node import Node


def access_metrics(node: Node) -> Iterator[Metric]:
    """Logins, denials, changes and the number of entries."""
    yield _logins(node)
    log = node.access.log
    denials: Mapping[tuple[Operation, ResourceType], int] = {} if log is None else log.denied
    changed: Mapping[str, int] = {} if log is None else log.changes
    denied = CounterMetricFamily(
        "oncelog_authorizer_denied", "Operations that were asked for and denied.", labels=["operation", "resource"]
    )
    for (operation, resource), count in sorted(denials.items()):
        denied.add_metric([kafka_word(operation), kafka_word(resource)], count)
    yield denied
    changes = CounterMetricFamily(
        "oncelog_acl_changes", "Entries of access control lists changed by requests here.", labels=["change"]
    )
    for verb, count in sorted(changed.items()):
        changes.add_metric([verb.lower()], count)
    yield changes
    yield GaugeMetricFamily(
        "oncelog_acls", "Entries of access control lists in the cluster.", value=acl_count(node.cluster.image)
    )


def _logins(node: Node) -> Metric:
    logins = CounterMetricFamily(
        "oncelog_logins", "Logins by SASL, by what came of them.", labels=["listener", "mechanism", "outcome"]
    )
    if "logins" in vars(node):  # they are made for the first client that has to log in
        for key, count in sorted(node.logins.outcomes.items()):
            logins.add_metric(key, count)
    return logins
