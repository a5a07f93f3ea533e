"""Requests for leaders while one was lost a moment ago wait until another is elected; the dead are still named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, BrokerId, TopicName
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.replicas.failover import end_registration, settle_partitions
from oncelog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from tests.unit.handlers.cluster_broker import ClusterBroker

OTHER = BrokerId(2)
NAMED = [MetadataRequestTopic(name="t")]


@pytest.fixture
def broker() -> ClusterBroker:
    """Broker 1 is asked; it leads the first partition of each topic, broker 2 the second."""
    broker = ClusterBroker()
    other = Registration(OTHER, "two", 9092, None, "cluster", directory_id="d")
    broker.commit(register(broker.image, other, 0))
    for name in ("t", CONSUMER_OFFSETS):
        assignments = [CreatableReplicaAssignment(partition_index=i, broker_ids=[i + 1, 2 - i]) for i in range(2)]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        assert broker.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE
    return broker


def partitions(broker: ClusterBroker, *, named: bool = True, version: int = 13) -> Sequence[MetadataResponsePartition]:
    answer = broker.call(MetadataRequest(topics=NAMED if named else None), version)
    result: Sequence[MetadataResponsePartition] = next(t.partitions for t in answer.topics if t.name == "t")
    return result


def die(broker: ClusterBroker) -> None:
    """Broker 2 leaves, and what it led is led by broker 1."""
    broker.departed_brokers = {OTHER: broker.image.brokers[OTHER]}
    broker.commit(end_registration(broker.image, broker.image.brokers[OTHER]))
    for operations in settle_partitions(broker.image, list(broker.image.topics), lambda _topic: False):
        broker.commit(operations)


@pytest.mark.parametrize("version", [1, 8, 13])
def test_metadata_waits_for_the_next_leader(broker: ClusterBroker, version: int) -> None:
    broker.failed_brokers = frozenset([OTHER])
    broker.elect = lambda: die(broker)
    result = partitions(broker, version=version)
    assert [(partition.error_code, partition.leader_id) for partition in result] == [(ErrorCode.NONE, 1)] * 2
    assert broker.waited == 1


def test_metadata_names_the_leader_again_when_it_is_not_lost_after_all(broker: ClusterBroker) -> None:
    broker.failed_brokers = frozenset([OTHER])

    def reach() -> None:
        broker.failed_brokers = frozenset()

    broker.elect = reach
    assert [partition.leader_id for partition in partitions(broker)] == [1, 2]


def test_nobody_waits_for_partitions_that_are_led_by_others(broker: ClusterBroker) -> None:
    die(broker)
    broker.failed_brokers = frozenset([OTHER])
    assert [partition.leader_id for partition in partitions(broker)] == [1, 1]
    assert broker.waited == 0


@pytest.mark.parametrize("version", [1, 8, 13])
def test_who_asks_for_all_topics_is_told_at_once_of_no_leader_that_is_lost(broker: ClusterBroker, version: int) -> None:
    before = partitions(broker, named=False, version=version)
    broker.failed_brokers = frozenset([OTHER])
    first, second = partitions(broker, named=False, version=version)
    assert (broker.waited, first) == (0, before[0])
    assert (second.error_code, second.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert second.leader_epoch == before[1].leader_epoch, "of an older epoch, clients would not believe it"
    assert (second.replica_nodes, second.isr_nodes) == ([2, 1], [2, 1])
    broker.failed_brokers = frozenset()
    assert partitions(broker, named=False, version=version) == before


def test_a_broker_that_died_is_named_for_a_while(broker: ClusterBroker) -> None:
    def told(topics: list[MetadataRequestTopic] | None) -> list[tuple[int, str]]:
        return [(item.node_id, item.host) for item in broker.call(MetadataRequest(topics=topics), 13).brokers]

    die(broker)
    assert told(NAMED) == told(None) == [(1, "broker.test"), (2, "two")]
    broker.departed_brokers = {}
    assert told(NAMED) == told(None) == [(1, "broker.test")]


def test_a_request_for_a_coordinator_waits_for_the_next(broker: ClusterBroker) -> None:
    def located() -> set[tuple[int, int]]:
        answer = broker.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[str(i) for i in range(20)]), 6)
        return {(coordinator.node_id, coordinator.error_code) for coordinator in answer.coordinators}

    assert located() == {(1, ErrorCode.NONE), (2, ErrorCode.NONE)}
    broker.failed_brokers = frozenset([OTHER])
    broker.elect = lambda: die(broker)
    assert located() == {(1, ErrorCode.NONE)}
    assert broker.waited == 1
    assert broker.image.topics[TopicName("t")].partitions[1].leader == 1
