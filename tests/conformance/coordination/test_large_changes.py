"""Requests whose nodes do not fit one commit, on every adapter of the tree: ZooKeeper refuses what is too large."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId
from oncelog.base.tree import MAX_COMMIT_BYTES
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.image.cluster_image import load_image
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conformance.coordination.trees import TREES
from tests.unit.handlers.cluster_broker import HOST, PORT, ClusterBroker

pytestmark = pytest.mark.slow

PARTITIONS = 750
MOVED = 500
NAME = "a-topic-with-a-name-of-some-length"


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterBroker]:
    """One of three brokers."""
    tree = TREES[request.param](tmp_path, request)
    broker = ClusterBroker(session=tree.session())
    for broker_id in (2, 3):
        registration = Registration(BrokerId(broker_id), HOST, PORT + broker_id, None, broker.cluster_id)
        broker.commit(register(broker.image, registration, 0))
    broker.commit_sizes.clear()
    yield broker
    assert max(broker.commit_sizes) <= MAX_COMMIT_BYTES
    assert load_image(broker.session.snapshot()[1]).topics == broker.image.topics
    tree.close()


def create(broker: ClusterBroker, *topics: CreatableTopic) -> set[int]:
    response = broker.call(CreateTopicsRequest(topics=list(topics), timeout_ms=1000), 7)
    return {topic.error_code for topic in response.topics}


def delete(broker: ClusterBroker, *names: str) -> set[int]:
    topics = [DeleteTopicState(name=name, topic_id=bytes(16)) for name in names]
    response = broker.call(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
    return {topic.error_code for topic in response.responses}


def test_one_topic_of_many_partitions(broker: ClusterBroker) -> None:
    topic = CreatableTopic(name=NAME, num_partitions=PARTITIONS, replication_factor=3)
    assert create(broker, topic) == {0}
    partitions = broker.image.topics[NAME].partitions
    assert [len(partition.isr) for partition in partitions] == [3] * PARTITIONS
    leads = [sum(partition.leader == broker_id for partition in partitions) for broker_id in (1, 2, 3)]
    assert max(leads) - min(leads) <= 1
    more = CreatePartitionsTopic(name=NAME, count=2 * PARTITIONS, assignments=None)
    grown = broker.call(CreatePartitionsRequest(topics=[more], timeout_ms=1000), 3)
    assert [result.error_code for result in grown.results] == [0]
    assert len(broker.image.topics[NAME].partitions) == 2 * PARTITIONS
    assert delete(broker, NAME) == {0}
    assert not broker.image.topics
    assert create(broker, topic) == {0}, "nothing was left behind"


def test_placed_by_hand(broker: ClusterBroker) -> None:
    placed = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[1 + index % 3, 1 + (index + 1) % 3])
        for index in range(PARTITIONS)
    ]
    topic = CreatableTopic(name=NAME, num_partitions=-1, replication_factor=-1, assignments=placed)
    assert create(broker, topic) == {0}
    replicas = [partition.replicas for partition in broker.image.topics[NAME].partitions]
    assert replicas == [tuple(assignment.broker_ids) for assignment in placed]


def test_many_topics(broker: ClusterBroker) -> None:
    names = [f"{NAME}-{number}" for number in range(500)]
    assert create(broker, *(CreatableTopic(name=name, num_partitions=1, replication_factor=3) for name in names)) == {0}
    assert len(broker.image.topics) == 500
    assert delete(broker, *names) == {0}
    assert not broker.image.topics


def test_a_deletion_that_was_interrupted_is_gone_on_with(broker: ClusterBroker) -> None:
    create(broker, CreatableTopic(name=NAME, num_partitions=2 * PARTITIONS, replication_factor=3))
    commit, left = broker.commit, 2

    def stops(operations: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise InterruptedError
        return commit(operations)

    broker.commit = stops  # type: ignore[assignment, method-assign]
    with pytest.raises(InterruptedError):
        delete(broker, NAME)
    broker.commit = commit  # type: ignore[method-assign]
    assert broker.image.topics[NAME].partitions[-1].leader == -1
    assert delete(broker, NAME) == {ErrorCode.NONE}
    assert not broker.image.topics


def test_replicas_of_many_partitions_move_and_get_their_preferred_leaders(broker: ClusterBroker) -> None:
    names = [f"{NAME}-{number}" for number in range(2)]
    topics = [CreatableTopic(name=name, num_partitions=MOVED, replication_factor=3) for name in names]
    assert create(broker, *topics) == {0}
    broker.commit_sizes.clear()
    expected = [ReassignablePartition(partition_index=index, replicas=[3, 2, 1]) for index in range(MOVED)]
    moved = [ReassignableTopic(name=name, partitions=expected) for name in names]
    response = broker.call(AlterPartitionReassignmentsRequest(topics=moved, timeout_ms=1000), 1)
    assert {partition.error_code for topic in response.responses for partition in topic.partitions} == {0}
    assert len(broker.commit_sizes) > 1
    states = [state for name in names for state in broker.image.topics[name].partitions]
    assert {state.replicas for state in states} == {(3, 2, 1)}
    elected = broker.call(ElectLeadersRequest(topic_partitions=None, timeout_ms=1000), 2)
    codes = {item.error_code for topic in elected.replica_election_results for item in topic.partition_result}
    assert codes <= {0}
    assert {state.leader for name in names for state in broker.image.topics[name].partitions} == {3}


def test_configs_of_many_topics(broker: ClusterBroker) -> None:
    topics = [CreatableTopic(name=f"{NAME}-{number}", num_partitions=1, replication_factor=1) for number in range(50)]
    assert create(broker, *topics) == {0}
    broker.commit_sizes.clear()
    value = ",".join(f"{number}:1" for number in range(3_000))  # as throttled replicas are named
    configs = [AlterableConfig(name="leader.replication.throttled.replicas", config_operation=0, value=value)]
    names = [topic.name for topic in topics]
    resources = [
        AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)
        for name in (*names, "absent", names[0])
    ]
    response = broker.call(IncrementalAlterConfigsRequest(resources=resources), 1)
    codes = [item.error_code for item in response.responses]
    refused = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST]
    assert codes == [ErrorCode.INVALID_REQUEST, *[0] * 49, *refused], "one is named twice, at both ends of the request"
    assert len(broker.commit_sizes) > 1
    assert dict(broker.image.topics[names[1]].configs) == {configs[0].name: value}
