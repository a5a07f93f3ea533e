"""Describes the cluster itself: brokers, controller, features (KIP-700, KIP-584) and log directories (KIP-113).

Each broker knows only its own log directories, so brokers are queried in turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest
from oncelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from oncelog.wire.messages.unregister_broker import UnregisterBrokerRequest

_FIRST_VERSION_WITH_FENCED: Final = 2


@dataclass(frozen=True, slots=True)
class BrokerRow:
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    is_fenced: bool = False
    """True if it is registered but leads and replicates nothing; it may be down."""
    suspected_by: tuple[int, ...] = ()
    """The brokers that find it frozen; brokers of oncelog tell it."""
    suspected_since_ms: int | None = None
    """The last sign of life to them."""


@dataclass(frozen=True, slots=True)
class ClusterRow:
    cluster_id: str | None
    brokers: list[BrokerRow]
    features: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogDirRow:
    """A replica in a log directory of a broker. ``size_bytes`` in bytes, ``offset_lag`` in records."""

    broker_id: int
    directory: str
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@operation
def describe_cluster(cluster: Cluster) -> Program[ClusterRow]:
    """The brokers by id, and the finalized features that one of them announces."""
    yield from cluster.retrying(cluster.refresh_brokers)
    view = cluster.view
    rows = [
        BrokerRow(
            broker.broker_id,
            broker.address.host,
            broker.address.port,
            broker.rack,
            broker.broker_id == view.controller_id,
        )
        for _, broker in sorted(view.brokers.items())
    ]
    link = yield from cluster.link()
    return ClusterRow(view.cluster_id, rows, dict(link.versions.features))


@operation
def registered_brokers(cluster: Cluster) -> Program[list[BrokerRow]]:
    """The registered brokers by id, with fenced ones if reported (KIP-1073). Raises BrokerRefused."""
    link = yield from cluster.link()
    if not link.versions.supports(DescribeClusterRequest):
        # Before KIP-700 only Metadata lists brokers; it leaves fenced ones out.
        return (yield from describe_cluster(cluster)).brokers
    with_fenced = link.versions.supports(DescribeClusterRequest, _FIRST_VERSION_WITH_FENCED)
    response = yield from cluster.request(DescribeClusterRequest(include_fenced_brokers=with_fenced))
    raise_for_error(response, "cluster")
    return [
        BrokerRow(
            broker.broker_id,
            broker.host,
            broker.port,
            broker.rack,
            broker.broker_id == response.controller_id,
            broker.is_fenced,
            tuple(broker.suspected_by),
            broker.suspected_since_ms if broker.suspected_since_ms >= 0 else None,
        )
        for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
    ]


@operation
def unregister_broker(cluster: Cluster, broker_id: int) -> Program[None]:
    """Remove the registration of a broker that is down for good. Raises BrokerRefused."""
    response = yield from cluster.request(UnregisterBrokerRequest(broker_id=broker_id))
    raise_for_error(response, f"broker {broker_id}")


@operation
def describe_log_dirs(
    cluster: Cluster, topics: Iterable[str] | None = None, brokers: Iterable[int] | None = None
) -> Program[list[LogDirRow]]:
    """Sizes of replicas by broker and directory: of all topics or some, on all live brokers or some. Raises
    BrokerRefused."""
    requested = None
    if topics is not None:
        requested = []
        for name in topics:
            info = yield from cluster.topic(name)
            requested.append(DescribableLogDirTopic(topic=name, partitions=list(info.partitions)))
    if brokers is None:
        yield from cluster.retrying(cluster.refresh_brokers)
        registered = yield from registered_brokers(cluster)
        # A fenced broker may be down, and would make the whole call fail.
        brokers = [row.broker_id for row in registered if not row.is_fenced]
    rows: list[LogDirRow] = []
    for broker in brokers:
        response = yield from cluster.request(DescribeLogDirsRequest(topics=requested), broker=broker)
        raise_for_error(response, f"log directories of broker {broker}")
        for result in response.results:
            raise_for_error(result, f"log directory {result.log_dir} of broker {broker}")
            rows += [
                LogDirRow(
                    broker,
                    result.log_dir,
                    topic.name,
                    partition.partition_index,
                    partition.partition_size,
                    partition.offset_lag,
                    partition.is_future_key,
                )
                for topic in result.topics
                for partition in topic.partitions
            ]
    return sorted(rows, key=lambda row: (row.broker_id, row.directory, row.topic, row.partition))
