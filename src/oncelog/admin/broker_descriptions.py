"""Describes one broker: its address, configuration, features, log directories, and its partitions by topic.

A part that the broker refuses or does not answer is missing, with its reason in ``unanswered``: a broker that is down
has the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from oncelog.admin.cluster import BrokerRow, registered_brokers
from oncelog.admin.configs import ConfigRow, ResourceType, describe_configs
from oncelog.admin.quorum import describe_quorum
from oncelog.base.errors import ErrorCode
from oncelog.client.errors import BrokerRefused, ClientError, explain
from oncelog.client.machine.metadata import TopicInfo
from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """A feature: the cluster's finalized level, None if it has none, and the levels that this broker supports."""

    name: str
    finalized: int | None
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class DirectoryUse:
    """A log directory. ``error`` is set for one that is offline; sizes in bytes, None if unknown."""

    directory: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    size_bytes: int
    replicas: int


@dataclass(frozen=True, slots=True)
class TopicOnBroker:
    """The partitions of a topic that the broker leads and follows, and the bytes of their copies there."""

    topic: str
    leads: int
    follows: int
    size_bytes: int | None


@dataclass(slots=True)
class BrokerDescription:
    """``row`` is None for a broker that is not registered. ``quorum_lag`` is the number of metadata records that it
    lacks, None without KRaft."""

    broker_id: int
    row: BrokerRow | None = None
    is_controller: bool = False
    quorum_lag: int | None = None
    configs: list[ConfigRow] = field(default_factory=list)
    features: list[FeatureRow] = field(default_factory=list)
    directories: list[DirectoryUse] = field(default_factory=list)
    topics: list[TopicOnBroker] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    @property
    def leads(self) -> int:
        return sum(topic.leads for topic in self.topics)

    @property
    def follows(self) -> int:
        return sum(topic.follows for topic in self.topics)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            self.unanswered.append(f"{name}: {error}")


@operation
def describe_broker(cluster: Cluster, broker_id: int) -> Program[BrokerDescription]:
    """The broker as far as the cluster and the broker itself answer. Raises BrokerRefused for an id that is neither
    registered nor has replicas."""
    described = BrokerDescription(broker_id)
    topics = yield from cluster.metadata(None)
    registered = yield from registered_brokers(cluster)
    described.row = next((row for row in registered if row.broker_id == broker_id), None)
    held = _held(topics.values(), broker_id)
    if described.row is None and not held:
        raise BrokerRefused(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"broker {broker_id}",
            f"the cluster has brokers {', '.join(str(row.broker_id) for row in registered)}",
        )
    yield from _controller(cluster, described)
    sizes: dict[str, int] | None = None
    if described.row is not None and not described.row.is_fenced:
        sizes = yield from _directories(cluster, described)
        yield from _own_settings(cluster, described)
    described.topics = [
        TopicOnBroker(topic, leads, follows, None if sizes is None else sizes.get(topic, 0))
        for topic, (leads, follows) in sorted(held.items())
    ]
    return described


def _held(topics: Collection[TopicInfo], broker_id: int) -> dict[str, tuple[int, int]]:
    """Partitions led and followed by topic."""
    leads, follows = Counter[str](), Counter[str]()
    for topic in topics:
        for partition in topic.partitions.values():
            if partition.leader == broker_id:
                leads[topic.name] += 1
            elif broker_id in partition.replicas:
                follows[topic.name] += 1
    return {topic: (leads[topic], follows[topic]) for topic in {*leads, *follows}}


def _controller(cluster: Cluster, described: BrokerDescription) -> Program[None]:
    with described._part("controller"):
        quorum = yield from describe_quorum(cluster)
        if quorum is None:
            described.is_controller = described.row is not None and described.row.is_controller
            return
        described.is_controller = quorum.leader_id == described.broker_id
        lags = {replica.node_id: replica.lag for replica in (*quorum.observers, *quorum.voters)}
        described.quorum_lag = lags.get(described.broker_id)


def _own_settings(cluster: Cluster, described: BrokerDescription) -> Program[None]:
    with described._part("configuration"):
        described.configs = yield from describe_configs(cluster, ResourceType.BROKER, str(described.broker_id))
    with described._part("features"):
        link = yield from cluster.link(described.broker_id)
        finalized, supported = link.versions.features, link.versions.supported_features
        described.features = [FeatureRow(name, finalized.get(name), *supported[name]) for name in sorted(supported)]


def _directories(cluster: Cluster, described: BrokerDescription) -> Program[dict[str, int] | None]:
    """Fills in the directories. Returns the bytes of each topic; None if unknown."""
    subject = f"log directories of broker {described.broker_id}"
    by_name: dict[str, int] | None = None
    with described._part("log directories"):
        response = yield from cluster.request(DescribeLogDirsRequest(topics=None), broker=described.broker_id)
        raise_for_error(response, subject)
        by_topic: Counter[str] = Counter()
        for result in response.results:
            sizes = [
                (topic.name, partition.partition_size) for topic in result.topics for partition in topic.partitions
            ]
            for topic, size_bytes in sizes:
                by_topic[topic] += size_bytes
            described.directories.append(
                DirectoryUse(
                    result.log_dir,
                    explain(result.error_code) if result.error_code else None,
                    result.total_bytes if result.total_bytes >= 0 else None,
                    result.usable_bytes if result.usable_bytes >= 0 else None,
                    sum(size_bytes for _, size_bytes in sizes),
                    len(sizes),
                )
            )
        by_name = dict(by_topic)
    return by_name
