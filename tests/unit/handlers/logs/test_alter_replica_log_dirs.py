"""AlterReplicaLogDirs of a broker with one directory: a replica stays where it is.

Other directories are compared with Apache Kafka's answers in the golden corpus.
"""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.api import Operation, ResourceType
from oncelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.unit.handlers.cluster_broker import ClusterBroker, Denying

CLUSTER_DENIED = Denying((Operation.ALTER, ResourceType.CLUSTER, None))


@pytest.fixture
def broker() -> ClusterBroker:
    """Topic ``t`` has two partitions, of which this broker has a replica of the first."""
    broker = ClusterBroker({"log.dirs": "/data"})
    broker.call(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)]), 7)
    broker.sizes[TopicPartition(TopicName("t"), 0)] = 100
    return broker


def moved(topic: str, *partitions: int, paths: tuple[str, ...] = ("/data",)) -> AlterReplicaLogDirsRequest:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics) for path in paths])


def errors(answer: object) -> list[tuple[str, int, ErrorCode]]:
    results = answer.results  # type: ignore[attr-defined]
    return [
        (topic.topic_name, partition.partition_index, ErrorCode(partition.error_code))
        for topic in results
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_stays_in_the_only_directory(broker: ClusterBroker, version: int) -> None:
    assert errors(broker.call(moved("t", 0, 1, 2), version)) == [
        ("t", 0, ErrorCode.NONE),
        ("t", 1, ErrorCode.REPLICA_NOT_AVAILABLE),
        ("t", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert errors(broker.call(moved("nowhere", 0), version)) == [("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_the_last_directory_counts(broker: ClusterBroker) -> None:
    assert errors(broker.call(moved("t", 0, paths=("/other", "/data")), 2)) == [("t", 0, ErrorCode.NONE)]
    assert errors(broker.call(moved("t", 0, paths=("/data", "/other")), 2)) == [("t", 0, ErrorCode.LOG_DIR_NOT_FOUND)]


def test_an_offline_directory(broker: ClusterBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "is_directory_offline", lambda: True)
    assert errors(broker.call(moved("t", 0), 2)) == [("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]


def test_moves_need_the_right_to_alter_the_cluster(broker: ClusterBroker) -> None:
    denied = broker.call(moved("t", 0), 2, CLUSTER_DENIED)
    assert errors(denied) == [("t", 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
