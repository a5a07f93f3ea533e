"""Replicas move to other brokers, brokers stop without a gap, internal topics grow."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, BrokerId, TopicName
from oncelog.handlers.topics.creation import topic_with_defaults
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import create_replicated, state, write

T = TopicName("t")
UNSET = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
)


def reassign(cluster: Cluster, replicas: list[int] | None, *, same_factor: bool = False) -> int:
    """Ask broker 3 to move t-0; the error code."""
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[partition])], allow_replication_factor_change=not same_factor
    )
    response = cluster.connect(3).ask(request, 1)
    return response.responses[0].partitions[0].error_code


def moving(cluster: Cluster) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    """Topic, partition, replicas, those added and those removed, of all that move."""
    response = cluster.connect(1).ask(ListPartitionReassignmentsRequest(topics=None), 0)
    return [
        (
            topic.name,
            partition.partition_index,
            partition.replicas,
            partition.adding_replicas,
            partition.removing_replicas,
        )
        for topic in response.topics
        for partition in topic.partitions
    ]


def test_a_partition_moves_to_other_brokers_with_its_records() -> None:
    cluster = Cluster(4)
    create_replicated(cluster.connect(1), [1, 2])
    write(cluster, 1, b"a", b"b")
    assert reassign(cluster, [3, 4]) == ErrorCode.NONE
    cluster.advance(2_000)
    result = state(cluster[2])
    assert (result.leader, result.leader_epoch, result.replicas, set(result.isr)) == (3, 1, (3, 4), {3, 4})
    assert moving(cluster) == []
    assert write(cluster, 3, b"c") == (ErrorCode.NONE, 2)


def test_a_move_waits_for_all_that_are_added_down_or_cut_off_and_may_be_taken_back() -> None:
    cluster = Cluster(4)
    create_replicated(cluster.connect(1), [1, 2])
    assert reassign(cluster, [3, 5]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "5 was never registered"
    cluster.kill(4)
    assert reassign(cluster, [3, 4]) == ErrorCode.NONE, "4 is down, and will go on when it is back"
    cluster.cut(4, 1)
    cluster.start(4)
    cluster.advance(2_000)
    assert moving(cluster) == [("t", 0, [3, 4, 1, 2], [3, 4], [1, 2])]
    assert reassign(cluster, None) == ErrorCode.NONE
    assert (state(cluster[2]).leader, state(cluster[2]).replicas, moving(cluster)) == (1, (1, 2), [])
    assert reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_that_is_asked_for_again_waits_for_what_it_adds_and_may_be_taken_back() -> None:
    """As kafka-reassign-partitions --additional does, to change the throttle of a move."""
    cluster = Cluster(4)
    create_replicated(cluster.connect(1), [1, 2])
    cluster.cut(1, 3)
    for _ in range(2):
        assert reassign(cluster, [3, 2]) == ErrorCode.NONE
        assert moving(cluster) == [("t", 0, [3, 2, 1], [3], [1])]
    assert reassign(cluster, [3, 4]) == ErrorCode.NONE
    assert moving(cluster) == [("t", 0, [3, 4, 1, 2], [3, 4], [1, 2])]
    assert set(state(cluster[1]).isr) == {1, 2, 4}
    assert reassign(cluster, None) == ErrorCode.NONE
    assert set(state(cluster[1]).replicas) == {1, 2}
    assert moving(cluster) == []


def test_a_move_may_be_refused_to_change_the_number_of_replicas() -> None:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2])
    assert reassign(cluster, [1, 2, 3], same_factor=True) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [2]) == ErrorCode.NONE
    assert (state(cluster[1]).replicas, state(cluster[1]).leader, state(cluster[1]).isr) == ((2,), 2, (2,))


def test_a_broker_that_stops_hands_over_first_and_serves_until_then() -> None:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [2, 1, 3])
    cluster.hold = True
    cluster[2].shutdown(10_000)
    assert not cluster[2].stopped, "the controller has not heard of it"
    assert write(cluster, 2, b"a", acks=1)[0] == ErrorCode.NONE
    cluster.hold = False
    cluster.settle()
    assert cluster[2].stopped
    handed_over = (1, 1, (1, 3))
    assert (state(cluster[3]).leader, state(cluster[3]).leader_epoch, state(cluster[3]).isr) == handed_over
    cluster.kill(2)
    assert (state(cluster[3]).leader, state(cluster[3]).leader_epoch, state(cluster[3]).isr) == handed_over


def test_a_controller_that_stops_hands_over_its_partitions_and_then_its_place() -> None:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2, 3])
    cluster[1].shutdown(10_000)
    assert cluster[1].stopped
    assert (state(cluster[2]).leader, state(cluster[2]).isr) == (2, (2, 3))
    cluster.kill(1)
    assert cluster[2].node.cluster.image.controller_id in (2, 3)
    assert state(cluster[2]).leader_epoch == 1


def test_the_last_broker_waits_for_nobody() -> None:
    cluster = Cluster(2)
    create_replicated(cluster.connect(1), [1, 2])
    cluster.kill(2)
    cluster[1].shutdown(10_000)
    assert cluster[1].stopped


def test_a_controlled_shutdown_without_a_controller_ends_in_time() -> None:
    cluster = Cluster(3)
    create_replicated(cluster.connect(2), [2, 3])
    cluster[1].hold_metadata = True  # the controller is stuck
    cluster[2].shutdown(10_000)
    assert not cluster[2].stopped
    cluster.advance(7_000)
    assert cluster[2].stopped


def test_internal_topics_grow_with_the_cluster() -> None:
    cluster = Cluster(1, dict.fromkeys(UNSET, ""))
    for key_type in (0, 1):
        cluster.connect(1).ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4)
    topics = cluster[1].node.cluster.image.topics
    assert {len(partition.replicas) for name in topics for partition in topics[name].partitions} == {1}
    cluster.start(2)
    cluster.start(3)
    cluster.advance(3_000)
    image = cluster[2].node.cluster.image
    assert {set(partition.isr) == {1, 2, 3} for topic in image.topics.values() for partition in topic.partitions} == {
        True
    }
    assert set(image.topics) == {CONSUMER_OFFSETS, TRANSACTION_STATE}
    assert image.topics[TRANSACTION_STATE].configs["min.insync.replicas"] == "2"
    expected = topic_with_defaults(image, cluster[1].node.cluster.config, TRANSACTION_STATE)
    assert dict(expected.configs) == image.topics[TRANSACTION_STATE].configs, "as if it were created now"


def test_clients_are_told_who_is_offline_and_who_leads_nothing() -> None:
    cluster = Cluster(2)
    create_replicated(cluster.connect(1), [1, 2])
    create_replicated(cluster.connect(1), [2], "u")
    cluster.kill(2)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t"), MetadataRequestTopic(name="u")])
    response = cluster.connect(1).ask(request, 9)
    assert [broker.node_id for broker in response.brokers] == [1, 2], "a broker that died is named for a while"
    (t,), (u,) = (topic.partitions for topic in response.topics)
    assert (t.error_code, t.leader_id, t.offline_replicas) == (ErrorCode.NONE, 1, [2])
    assert (u.error_code, u.leader_id, u.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [2])


def test_topics_are_placed_on_brokers_that_may_lead() -> None:
    cluster = Cluster(3)
    cluster.hold = True
    cluster[3].shutdown(10_000)
    cluster[1].dispatch_changes()
    assert cluster[1].node.cluster.image.brokers[BrokerId(3)].in_controlled_shutdown
    topics = [CreatableTopic(name=f"n{n}", num_partitions=4, replication_factor=n) for n in (2, 3)]
    response = cluster.connect(1).ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 5)
    assert [t.error_code for t in response.topics] == [ErrorCode.NONE, ErrorCode.NONE]
    two, three = (cluster[1].node.cluster.image.topics[TopicName(name)].partitions for name in ("n2", "n3"))
    assert {partition.replicas for partition in two} == {(1, 2), (2, 1)}
    assert {partition.replicas for partition in three} == {(1, 2, 3), (2, 1, 3)}, "the one that stops comes last"
    assert {frozenset(item.isr) for item in three} == {frozenset({1, 2})}
