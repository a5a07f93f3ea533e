"""The cluster: ApiVersions, DescribeCluster, log directories, ElectLeaders, UpdateFeatures, and no requests at all."""

from __future__ import annotations

import struct
from typing import Final

from oncelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest
from oncelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.wire.messages.unregister_broker import UnregisterBrokerRequest
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.peers.clients.sweep.wire import Sweep, Wire, versions


def _api_versions(wire: Wire) -> None:
    for version in versions(ApiVersionsRequest):
        wire.call(ApiVersionsRequest(client_software_name="sweep", client_software_version="1.0"), version)
    for name, software in (("", "1"), ("bad name", "1"), ("sweep", ""), ("-", "-")):
        wire.call(ApiVersionsRequest(client_software_name=name, client_software_version=software), 3)
    _expected_brokers(wire)
    for version in (6, 99, -1):
        body = struct.pack(">hhih", 18, version, 1, 0)
        wire.send_bytes(struct.pack(">i", len(body)) + body)
        wire.receive_frame()


def _expected_brokers(wire: Wire) -> None:
    """Expected brokers and clusters (KIP-1242): right, wrong and incomplete."""
    software = {"client_software_name": "sweep", "client_software_version": "1.0"}
    cluster_id = wire.call(DescribeClusterRequest(), 0).cluster_id
    for expected, node_id in (
        *((cluster_id, node_id) for node_id in (1, 2, -1, -2)),
        *(("another-cluster-of-no-note", node_id) for node_id in (1, -1)),
        *(("", node_id) for node_id in (1, -1)),
        *((None, node_id) for node_id in (1, -2)),
    ):
        wire.call(ApiVersionsRequest(**software, cluster_id=expected, node_id=node_id), 5)
    wire.call(ApiVersionsRequest(client_software_name="", cluster_id="another-cluster", node_id=1), 5)


def _nonsense(wire: Wire) -> None:
    for frame in (
        struct.pack(">hhih", 999, 0, 1, 0),
        struct.pack(">hhih", 3, 99, 1, 0),
        struct.pack(">hhih", 0, 2, 1, 0),
        struct.pack(">hhih", 1, 3, 1, 0),
        struct.pack(">hhih", 3, 1, 1, 0),
        struct.pack(">hhihi", 3, 1, 1, 0, 1_000_000),
        struct.pack(">hhih", 3, 1, 1, 500),
        b"\0",
        b"",
    ):
        wire.send_bytes(struct.pack(">i", len(frame)) + frame)
        wire.receive_frame()


def _describe_cluster(wire: Wire) -> None:
    for version in versions(DescribeClusterRequest):
        wire.call(DescribeClusterRequest(), version)
        wire.call(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
        if version >= 1:
            for endpoint in (2, 9):
                wire.call(DescribeClusterRequest(endpoint_type=endpoint), version)
        if version >= 2:
            wire.call(DescribeClusterRequest(include_fenced_brokers=True), version)


def _describe_log_dirs(wire: Wire) -> None:
    wire.topic("sx-dirs", 2)
    wire.produce("sx-dirs", b"v" * 100)
    for version in versions(DescribeLogDirsRequest):
        for topics in (
            [DescribableLogDirTopic(topic="sx-dirs", partitions=[0, 1, 7])],
            [DescribableLogDirTopic(topic="sx-nowhere", partitions=[0])],
            [],
        ):
            wire.call(DescribeLogDirsRequest(topics=topics), version)


def _alter_replica_log_dirs(wire: Wire) -> None:
    """Only to directories that no broker has: which one it has differs."""
    long = "l" * 249
    wire.topic("sx-moved", 2)
    wire.topic(long, 1)
    for version in versions(AlterReplicaLogDirsRequest):
        for topic, partitions in (("sx-moved", [0, 7]), ("sx-nowhere", [0]), (long, [0]), ("bad name", [0]), ("", [0])):
            moved = AlterReplicaLogDirTopic(name=topic, partitions=partitions)
            wire.call(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=[moved])]), version)
        both = [
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name="sx-moved", partitions=[0, 0])])
            for path in ("/nowhere", "elsewhere", "")
        ]
        wire.call(AlterReplicaLogDirsRequest(dirs=both), version)
        wire.call(AlterReplicaLogDirsRequest(), version)


def _unregister_broker(wire: Wire) -> None:
    """Only brokers that nobody knows: Apache Kafka unregisters one that runs, too."""
    for version in versions(UnregisterBrokerRequest):
        for broker_id in (-1, -(2**31), 99, 2**31 - 1):
            wire.call(UnregisterBrokerRequest(broker_id=broker_id), version)


def _elect_leaders(wire: Wire) -> None:
    wire.topic("sx-elect", 2)
    for version in versions(ElectLeadersRequest):
        for kind in (0, 1) if version else (0,):
            for topics in (
                [TopicPartitions(topic="sx-elect", partitions=[0, 1])],
                [TopicPartitions(topic="sx-elect", partitions=[5])],
                [TopicPartitions(topic="sx-nowhere", partitions=[0])],
                [],
            ):
                wire.call(ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=5000), version)
        wire.call(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5000), version)


def _update_features(wire: Wire) -> None:
    for version in versions(UpdateFeaturesRequest):
        for feature, level, kind in (
            ("no.such.feature", 1, 1),
            ("group.version", 99, 1),
            ("group.version", 0, 1),
            ("transaction.version", 1, 1),
            ("", 1, 1),
        ):
            update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
            wire.call(UpdateFeaturesRequest(feature_updates=[update], validate_only=version >= 1), version)
        wire.call(UpdateFeaturesRequest(feature_updates=[]), version)


SWEEPS: Final[dict[str, Sweep]] = {
    "api-versions": _api_versions,
    "nonsense": _nonsense,
    "describe-cluster": _describe_cluster,
    "alter-replica-log-dirs": _alter_replica_log_dirs,
    "describe-log-dirs": _describe_log_dirs,
    "unregister-broker": _unregister_broker,
    "elect-leaders": _elect_leaders,
    "update-features": _update_features,
}
