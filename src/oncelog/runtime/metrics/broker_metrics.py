"""The metrics of a broker: the node's counters as Prometheus families, read when ``/metrics`` is requested.

Importing this module imports prometheus-client, 60 ms and 15 MB, so only a broker that serves metrics does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from oncelog import __version__
from oncelog.base.acls import Operation, ResourceType, kafka_word
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import shortened
from oncelog.node.access.access_log import acl_count
from oncelog.node.requests.request_counters import LATENCY_BOUNDS_MS, api_name
from oncelog.ports import Clock
from oncelog.runtime.metrics.cluster_metrics import cluster_metrics
from oncelog.runtime.metrics.share_metrics import LABEL_LENGTH, share_metrics
from oncelog.runtime.metrics.snapshot import Snapshot
from oncelog.runtime.metrics.transaction_samples import transaction_metrics

if TYPE_CHECKING:
    from oncelog.node.cluster.client_quotas import Usage
    from oncelog.node.node import Node
    from oncelog.runtime.connections.connection_quotas import ConnectionQuotas
    from oncelog.runtime.loop_health import LoopHealth
    from oncelog.runtime.metrics.http import Page
    from oncelog.runtime.tls.listeners import ListenersTls

PLAIN_TEXT: Final = "text/plain; charset=utf-8"
MOST_GROUP_LAGS: Final = 10_000
"""Groups and topics whose lag is exported, the furthest behind first: any client may commit offsets for more."""
GROUP_STATES: Final = {
    "classic": ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable"),
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable"),
    "share": ("Empty", "Stable"),
}


class Metrics:
    def __init__(
        self,
        node: Node,
        quotas: ConnectionQuotas,
        health: LoopHealth,
        clock: Clock,
        tls: ListenersTls | None = None,
    ) -> None:
        self._node = node
        self._tls = tls
        self._clock = clock
        self._quotas = quotas
        self._health = health
        self._snapshot = Snapshot(self.collect)

    async def page(self) -> Page:
        return 200, CONTENT_TYPE_LATEST, await self._snapshot.text()

    async def health(self) -> Page:
        """The answer to ``/health``: 200 while the broker's loop runs."""
        return 200, PLAIN_TEXT, b"ok\n"

    def collect(self) -> Iterator[Metric]:
        """All metrics now; those of one family are adjacent."""
        yield self._build_info()
        yield from self._requests()
        yield from self._traffic()
        yield from self._logs()
        yield from self._groups()
        yield from share_metrics(self._node)
        yield from transaction_metrics(self._node, self._clock.now_ms())
        yield from cluster_metrics(self._node)
        yield from access_metrics(self._node)
        yield from quota_metrics(self._node, self._clock.now_ms())
        yield from self._runtime()
        if self._tls is not None:
            yield from tls_metrics(self._tls)

    def _build_info(self) -> Metric:
        info = GaugeMetricFamily("oncelog_build_info", "Version of the broker.", labels=["version", "cluster_id"])
        info.add_metric([__version__, self._node.cluster.cluster_id], 1)
        return info

    def _requests(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("oncelog_requests", "Requests received.", labels=["api"])
        received = CounterMetricFamily("oncelog_request_bytes", "Bytes of requests received.", labels=["api"])
        latency = HistogramMetricFamily(
            "oncelog_request_latency_seconds", "From deciding a request to its response being ready.", labels=["api"]
        )
        for key, traffic in sorted(self._node.requests.traffic.by_api.items()):
            name = api_name(key)
            requests.add_metric([name], traffic.requests)
            received.add_metric([name], traffic.bytes_in)
            count, buckets = 0, []
            for bound_ms, number in zip(LATENCY_BOUNDS_MS, traffic.latency_buckets, strict=False):
                count += number
                buckets.append((f"{(bound_ms + 1) / 1000:g}", float(count)))
            buckets.append(("+Inf", float(count + traffic.latency_buckets[-1])))
            latency.add_metric([name], buckets, traffic.latency_sum_ms / 1000)
        yield requests
        yield received
        yield latency

    def _traffic(self) -> Iterator[Metric]:
        partitions = self._node.partitions
        bytes_out = self._node.requests.traffic.record_bytes_out
        for name, text, value in (
            ("oncelog_records_in", "Records appended for producers.", partitions.records_in),
            ("oncelog_record_bytes_in", "Bytes of record batches appended for producers.", partitions.record_bytes_in),
            ("oncelog_record_bytes_out", "Bytes of record batches sent to consumers.", bytes_out),
        ):
            yield CounterMetricFamily(name, text, value=value)

    def _logs(self) -> Iterator[Metric]:
        size = GaugeMetricFamily("oncelog_log_size_bytes", "Bytes of a topic's logs.", labels=["topic"])
        records = GaugeMetricFamily(
            "oncelog_log_end_offset_sum", "Log end offsets of a topic, added up.", labels=["topic"]
        )
        partitions = GaugeMetricFamily("oncelog_partitions", "Partitions of this broker.")
        sizes: dict[TopicName, int] = defaultdict(int)
        ends: dict[TopicName, int] = defaultdict(int)
        for partition, log in self._node.logs.logs.items():
            sizes[partition.topic] += log.size_bytes
            ends[partition.topic] += log.log_end_offset
        for topic in sorted(sizes):
            size.add_metric([topic], sizes[topic])
            records.add_metric([topic], ends[topic])
        partitions.add_metric([], len(self._node.logs.logs))
        yield from (size, records, partitions)

    def _groups(self) -> Iterator[Metric]:
        groups = GaugeMetricFamily(
            "oncelog_groups", "Groups that this broker coordinates.", labels=["protocol", "state"]
        )
        counts = Counter(
            (group.group_type, group.state) for shard in self._node.groups.shards() for group in shard.listings()
        )
        for protocol, states in GROUP_STATES.items():
            for state in states:
                groups.add_metric([protocol, state], counts[protocol, state])
        rebalances = CounterMetricFamily(
            "oncelog_group_rebalances", "Rebalances of groups that this broker coordinated.", labels=["protocol"]
        )
        for protocol in GROUP_STATES:
            rebalances.add_metric([protocol], self._node.groups.rebalances[protocol])
        yield from (groups, rebalances, self._group_lag())

    def _group_lag(self) -> Metric:
        lag = GaugeMetricFamily(
            "oncelog_group_lag", "Records behind the high watermark, by group and topic.", labels=["group", "topic"]
        )
        behind: dict[tuple[str, str], int] = defaultdict(int)
        for shard in self._node.groups.shards():
            for group, topic, partition, offset in shard.committed_offsets():
                log = self._node.logs.logs.get(TopicPartition(topic, partition))
                if log is not None:  # a scrape does not create missing logs
                    behind[(group, topic)] += max(0, log.high_watermark - offset)
        furthest_behind = nlargest(MOST_GROUP_LAGS, behind.items(), key=itemgetter(1))
        for labels, value in sorted(furthest_behind):
            lag.add_metric([shortened(label, LABEL_LENGTH) for label in labels], value)
        return lag

    def _runtime(self) -> Iterator[Metric]:
        for name, text, value in (
            ("oncelog_connections", "Open connections.", self._quotas.connections),
            ("oncelog_unfinished_request_bytes", "Bytes held in requests not yet whole.", self._quotas.held_bytes),
            ("oncelog_loop_delay_seconds", "How late the loop was at the last look.", self._health.last_delay_s),
            ("oncelog_loop_delay_worst_seconds", "How late it ever was.", self._health.worst_delay_s),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily("oncelog_connections_refused", "Too many connections.", value=self._quotas.refused)
        yield CounterMetricFamily("oncelog_connections_cut", "Garbage, idle or stalled.", value=self._quotas.cut_off)


def access_metrics(node: Node) -> Iterator[Metric]:
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
    if "logins" in vars(node):  # made for the first client that logs in
        for key, count in sorted(node.logins.outcomes.items()):
            logins.add_metric(key, count)
    return logins


# At most this many clients per quota are exported, those nearest to their limit: a client that changes its id with each
# request must not flood the monitoring.
MOST_CLIENTS: Final = 100


def quota_metrics(node: Node, now_ms: int) -> Iterator[Metric]:
    quotas = node.cluster.quotas
    throttles = CounterMetricFamily("oncelog_quota_throttles", "Answers that told to wait.", labels=["quota"])
    seconds = CounterMetricFamily("oncelog_quota_throttle_seconds", "Time told to wait, added up.", labels=["quota"])
    labels = ["quota", "user", "client_id"]
    usage = GaugeMetricFamily("oncelog_quota_usage", "The use of clients under a quota.", labels=labels)
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


def tls_metrics(tls: ListenersTls) -> Iterator[Metric]:
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
