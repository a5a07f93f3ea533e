"""A follower's session of many partitions: the leader looks at those that have changed, and misses none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.tree import Operation
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.handlers.broker.ports import LeaderLog
from oncelog.node.controller import duties
from oncelog.node.replication import fetcher
from oncelog.node.replication.fetcher import FIRST_WAIT_MS
from oncelog.node.replication.partitions import PartitionManager
from oncelog.node.replication.roles import ReplicaRoles
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.scenario.cluster.cluster import Cluster, ClusterDriver
from tests.scenario.cluster.replicated import PARTITION, assert_same, create_replicated, replica, state, write

MANY = 40
LAG_MS = 3000


@pytest.fixture
def cluster() -> Cluster:
    """Three brokers; broker 1 leads t-0 and 40 partitions of another topic."""
    cluster = Cluster(3, {"replica.lag.time.max.ms": str(LAG_MS), "replica.fetch.wait.max.ms": "500"})
    peer = cluster.connect(1)
    create_replicated(peer, [1, 2, 3])
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2, 3]) for index in range(MANY)]
    many = CreatableTopic(name="many", num_partitions=-1, replication_factor=-1, assignments=assignments)
    response = peer.ask(CreateTopicsRequest(topics=[many], timeout_ms=1000), 5)
    assert [topic.error_code for topic in response.topics] == [0]
    cluster.advance(2 * LAG_MS)
    return cluster


def _append_fails_once(broker: ClusterDriver, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have a follower's next append fail; the list is empty until it has."""
    follower = replica(broker)
    right, failed = fetcher.append_replicated, list[bool]()

    def append_replicated(log: PartitionLog, *arguments: Any, **options: Any) -> object:
        if log is follower and not failed:
            failed.append(True)
            raise OSError(28, "no space left")
        return right(log, *arguments, **options)

    monkeypatch.setattr(fetcher, "append_replicated", append_replicated)
    return failed


def test_a_record_costs_no_look_at_the_other_partitions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: Counter[TopicPartition] = Counter()
    right = PartitionManager.leader_log

    def leader_log(self: PartitionManager, partition: TopicPartition, epoch: int = -1) -> object:
        looked[partition] += 1
        return right(self, partition, epoch)

    write(cluster, 1, b"before")
    monkeypatch.setattr(PartitionManager, "leader_log", leader_log)
    assert write(cluster, 1, b"a") == (0, 1)
    assert_same(cluster, 1, 2, 3)
    assert looked.keys() == {PARTITION}


def test_a_record_is_looked_at_for_each_follower_no_more_than_it_has_news(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record, the follower's next offset, and the high watermark: the follower whose fetch moves that is told it
    with the same look."""
    fetched: Counter[TopicPartition] = Counter()
    right = PartitionManager.replica_fetched

    def replica_fetched(self: PartitionManager, leader_log: LeaderLog, *arguments: Any) -> None:
        fetched[leader_log.partition] += 1
        right(self, leader_log, *arguments)

    write(cluster, 1, b"before")
    monkeypatch.setattr(PartitionManager, "replica_fetched", replica_fetched)
    assert write(cluster, 1, b"a") == (0, 1)
    assert_same(cluster, 1, 2, 3)
    cluster.advance(100)
    assert fetched == {PARTITION: 5}


def test_a_change_of_one_partition_costs_no_look_at_the_others_of_its_topic(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: Counter[int] = Counter()
    right = ReplicaRoles.take

    def take(self: ReplicaRoles, partition: TopicPartition, *arguments: Any) -> None:
        looked[partition.partition] += 1
        right(self, partition, *arguments)

    monkeypatch.setattr(ReplicaRoles, "take", take)
    many = TopicPartition(TopicName("many"), 7)
    request = ReassignablePartition(partition_index=7, replicas=[1, 2])
    topic = ReassignableTopic(name=many.topic, partitions=[request])
    cluster.connect(1).ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1000), 0)
    assert state(cluster[1], many).replicas == (1, 2)
    assert looked.keys() == {7}


def test_more_partitions_cost_no_look_at_those_that_are_copied_already(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The followers' parked fetches are answered for it, and their sessions go on."""
    fetched: Counter[TopicPartition] = Counter()
    right = PartitionManager.replica_fetched

    def replica_fetched(self: PartitionManager, leader_log: LeaderLog, *arguments: Any) -> None:
        fetched[leader_log.partition] += 1
        right(self, leader_log, *arguments)

    monkeypatch.setattr(PartitionManager, "replica_fetched", replica_fetched)
    create_replicated(cluster.connect(1), [1, 2, 3], "more")
    cluster.advance(100)
    assert {partition.topic for partition in fetched} == {"more"}
    more = TopicPartition(TopicName("more"), 0)
    assert set(state(cluster[1], more).isr) == {1, 2, 3}
    assert write(cluster, 1, b"a") == (0, 0)


def test_each_of_many_partitions_is_copied(cluster: Cluster) -> None:
    for round_ in range(2):
        assert write(cluster, 1, b"a") == (0, round_)
        assert_same(cluster, 1, 2, 3)
        cluster.advance(700)


def test_followers_of_a_partition_that_was_long_idle_stay_in_sync(cluster: Cluster) -> None:
    cluster.advance(5 * LAG_MS)
    cluster.cut(1, 2)
    assert write(cluster, 1, b"a", acks=1) == (0, 0)
    cluster.advance(LAG_MS // 2)
    assert state(cluster[1]).isr == (1, 2, 3)
    cluster.heal(1, 2)
    cluster.advance(1000)
    assert state(cluster[1]).isr == (1, 2, 3)
    assert_same(cluster, 1, 2, 3)


def test_a_follower_that_stops_to_fetch_leaves_the_set_and_comes_back(cluster: Cluster) -> None:
    cluster.cut(1, 2)
    assert write(cluster, 1, b"a", acks=1) == (0, 0)
    cluster.advance(2 * LAG_MS)
    assert state(cluster[1]).isr == (1, 3)
    cluster.heal(1, 2)
    cluster.advance(2 * LAG_MS)
    assert set(state(cluster[1]).isr) == {1, 2, 3}
    assert_same(cluster, 1, 2, 3)


def test_an_answer_that_the_follower_could_not_use_is_given_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower's append is refused once: it waits, and asks for the same again."""
    failed = _append_fails_once(cluster[2], monkeypatch)
    write(cluster, 1, b"a", acks=1)
    cluster.advance(1000)
    assert failed
    assert_same(cluster, 1, 2, 3)


def test_a_copy_that_waited_is_fetched_though_the_leader_holds_a_fetch_of_the_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = _append_fails_once(cluster[2], monkeypatch)
    write(cluster, 1, b"a", acks=1)
    cluster.advance(5 * FIRST_WAIT_MS)
    assert failed
    assert_same(cluster, 1, 2, 3)


def test_a_topic_that_is_made_anew_is_fetched_anew(cluster: Cluster) -> None:
    write(cluster, 1, b"a")
    peer = cluster.connect(1)
    peer.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    cluster.advance(1000)
    assert cluster[1].node.partitions.changed_since(0).count(TopicPartition(TopicName("t"), 0)) == 0
    create_replicated(cluster.connect(1), [1, 2, 3])
    cluster.advance(1000)
    assert write(cluster, 1, b"b") == (0, 0)
    assert_same(cluster, 1, 2, 3)


def test_the_controller_elects_leaders_of_many_partitions_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties, "PARTITIONS_A_ROUND", 2)
    requests: list[int] = []
    right = duties.settle_partitions

    def settle_partitions(image: ClusterImage, topics: Sequence[TopicName], *arguments: Any) -> list[list[Operation]]:
        requests.append(len(topics))
        return right(image, topics, *arguments)

    monkeypatch.setattr(duties, "settle_partitions", settle_partitions)
    cluster = Cluster(3)
    names = [f"t-{number}" for number in range(9)]
    for name in names:
        create_replicated(cluster.connect(1), [3, 1, 2], name)
    reports = len(cluster[1].reports)
    cluster.kill(3)
    cluster.advance(100)
    leaders = {state(cluster[2], TopicPartition(TopicName(name), 0)).leader for name in names}
    assert leaders == {1}
    assert max(requests) == 2
    told = [line for line in cluster[1].reports[reports:] if "elected" in line]
    assert told == ["elected leaders of 9 partitions: 9 because broker 3 has left"]
