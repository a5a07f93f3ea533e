"""In-sync sets on their way to the tree: nothing is shown that a proposed member lacks (KIP-497)."""

from __future__ import annotations

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import state
from tests.scenario.node.requests import PRODUCE_VERSION, batch, produce, produced

LAG_MS = 500
OTHER = TopicPartition(TopicName("t"), 1)


def create(cluster: Cluster, *replicas: list[int]) -> None:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers) for index, brokers in enumerate(replicas)
    ]
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=assignments)
    response = cluster.connect(1).ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    assert [topic.error_code for topic in response.topics] == [0]


@pytest.mark.slow
def test_a_change_of_another_partition_does_not_end_a_proposal() -> None:
    """The leader does not know whether broker 3 is a member, whatever becomes of the topic's other partitions."""
    cluster = Cluster(3, {"replica.lag.time.max.ms": str(LAG_MS)})
    create(cluster, [1, 2, 3], [2, 3, 1])
    cluster.kill(3)
    cluster.cut(2, 3)
    cluster[1].hold_metadata = True
    cluster.start(3)
    assert len(cluster[1].held) == 1, "broker 3 joins partition 0, which is on its way"
    cluster.cut(1, 3)
    cluster.heal(2, 3)
    assert state(cluster[1], OTHER).isr == (2, 3, 1)
    assert state(cluster[1]).isr == (1, 2)
    peer = cluster.connect(1)
    peer.send(produce("t", batch(cluster[1], b"a"), timeout_ms=60_000), PRODUCE_VERSION)
    cluster.advance(2 * LAG_MS)
    assert not peer.responses, "broker 3 may be elected"
    assert len(cluster[1].held) == 1, "one proposal at a time"
    cluster[1].hold_metadata = False
    cluster[1].release()
    cluster.settle()
    assert state(cluster[2]).isr == (1, 2, 3)
    cluster.advance(2 * LAG_MS)
    assert state(cluster[2]).isr == (1, 2)
    assert produced(peer.responses.popleft()) == (0, 0)


def test_a_replica_that_is_taken_back_while_it_joins_is_no_member() -> None:
    """The reassignment changes the replicas alone; the proposal was made when the follower was one of them."""
    cluster = Cluster(3)
    create(cluster, [1, 2])
    cluster.cut(1, 3)
    assert _reassign(cluster, [1, 2, 3]) == 0
    cluster[1].hold_metadata = True
    cluster.heal(1, 3)
    cluster.advance(100)
    assert len(cluster[1].held) == 1, "broker 3 joins, which is on its way"
    assert _reassign(cluster, None) == 0
    cluster[1].hold_metadata = False
    cluster[1].release()
    cluster.settle()
    assert (state(cluster[2]).replicas, state(cluster[2]).isr) == ((1, 2), (1, 2))


def _reassign(cluster: Cluster, replicas: list[int] | None) -> int:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name="t", partitions=[partition])
    response = cluster.connect(2).ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1000), 0)
    return int(response.responses[0].partitions[0].error_code)
