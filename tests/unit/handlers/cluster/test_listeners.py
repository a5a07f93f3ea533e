"""Clients are told of brokers by the listener by which they came; a broker without it is none for them."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId
from oncelog.base.security import Endpoint, SecurityProtocol
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest
from oncelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.handlers.cluster_broker import HOST, PORT, ClusterBroker

BOTH = (
    Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "two.plain", 9092),
    Endpoint("INSIDE", SecurityProtocol.SSL, "two.inside", 9093),
)


@pytest.fixture(params=[1, 2], ids=["inside-only-one", "inside-both"])
def broker(request: pytest.FixtureRequest) -> ClusterBroker:
    """Broker 1, asked by its listener INSIDE; broker 2 has a listener of that name, or not. Each leads a partition."""
    broker = ClusterBroker()
    other = Registration(
        BrokerId(2), "two.plain", 9092, None, "cluster", directory_id="d", endpoints=BOTH[: request.param]
    )
    broker.commit(register(broker.image, other, 0))
    assignments = [CreatableReplicaAssignment(partition_index=i, broker_ids=[i + 1]) for i in range(2)]
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=assignments)
    answer = broker.call(CreateTopicsRequest(topics=[topic]), 7)
    assert [topic.error_code for topic in answer.topics] == [0]
    broker.listener_name = "INSIDE"
    return broker


def has_inside(broker: ClusterBroker) -> bool:
    return broker.image.brokers[BrokerId(2)].endpoint("INSIDE") is not None


@pytest.mark.parametrize("version", [5, 6, 13])
def test_metadata_knows_brokers_by_their_listener(broker: ClusterBroker, version: int) -> None:
    answer = broker.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version)
    told = {item.node_id: (item.host, item.port) for item in answer.brokers}
    first, second = answer.topics[0].partitions
    assert (first.error_code, first.leader_id) == (ErrorCode.NONE, 1)
    if has_inside(broker):
        assert told == {1: (HOST, PORT), 2: ("two.inside", 9093)}
        assert (second.error_code, second.leader_id, second.offline_replicas) == (ErrorCode.NONE, 2, [])
        return
    assert told == {1: (HOST, PORT)}
    missing = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    assert (second.error_code, second.leader_id, second.offline_replicas) == (missing, -1, [2])


def test_what_one_listener_was_told_is_not_told_by_another(broker: ClusterBroker) -> None:
    inside = broker.call(MetadataRequest(topics=None), 13)
    broker.listener_name = "PLAINTEXT"
    plain = broker.call(MetadataRequest(topics=None), 13)
    assert [(item.host, item.port) for item in plain.brokers] == [(HOST, PORT), ("two.plain", 9092)]
    assert inside.brokers != plain.brokers
    assert [partition.leader_id for partition in plain.topics[0].partitions] == [1, 2]


def test_describe_cluster_lists_brokers_that_have_the_listener(broker: ClusterBroker) -> None:
    answer = broker.call(DescribeClusterRequest(), 2)
    assert [item.host for item in answer.brokers] == ([HOST, "two.inside"] if has_inside(broker) else [HOST])


def test_describe_topic_partitions_names_leaders_that_have_the_listener(broker: ClusterBroker) -> None:
    answer = broker.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
    assert [partition.leader_id for partition in answer.topics[0].partitions] == [1, 2 if has_inside(broker) else -1]


def test_a_coordinator_without_the_listener_is_not_available(broker: ClusterBroker) -> None:
    broker.listener_name = "PLAINTEXT"
    results = {}
    for name in ("INSIDE", "PLAINTEXT"):
        broker.listener_name = name
        answer = broker.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[str(i) for i in range(20)]), 6)
        results[name] = {
            (coordinator.node_id, coordinator.host, coordinator.error_code) for coordinator in answer.coordinators
        }
    assert results["PLAINTEXT"] == {(1, HOST, 0), (2, "two.plain", 0)}
    present = (2, "two.inside", 0) if has_inside(broker) else (-1, "", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert results["INSIDE"] == {(1, HOST, 0), present}
