"""The lines that the controller and a broker that may not come back write into the log."""

from __future__ import annotations

from oncelog.base.ids import BrokerId
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.image.cluster_image import load_image
from oncelog.node.cluster import tree_access
from oncelog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.scenario.cluster.cluster import Cluster

COUNT = 5


def three(replicas: int = 3) -> Cluster:
    """Three brokers; broker 2 leads five partitions, which are on 2, 3 and 1 (or the first of them)."""
    cluster = Cluster(3)
    brokers = [2, 3, 1][:replicas]
    placed = [CreatableReplicaAssignment(partition_index=index, broker_ids=brokers) for index in range(COUNT)]
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=placed)
    response = cluster.connect(1).ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    assert [topic.error_code for topic in response.topics] == [0]
    for driver in cluster.running:
        driver.reports.clear()
    return cluster


def said(cluster: Cluster, broker_id: int) -> list[str]:
    """The lines since the last question."""
    lines = list(cluster[broker_id].reports)
    cluster[broker_id].reports.clear()
    return lines


def test_the_controller_tells_who_has_left_and_how_many_leaders_that_took() -> None:
    cluster = three()
    cluster.kill(2)
    assert said(cluster, 1) == [
        "broker 2 has left the cluster: its session has ended",
        "elected leaders of 5 partitions: 5 because broker 2 has left",
    ]
    assert said(cluster, 3) == []
    cluster.start(2)
    lines = said(cluster, 1)
    assert lines[0].startswith("broker 2 at broker-2:9092 has joined the cluster")
    assert not any("elected" in line for line in lines)


def test_partitions_without_a_leader_are_counted() -> None:
    cluster = three(replicas=1)
    cluster.kill(2)
    assert said(cluster, 1)[1:] == [
        "elected leaders of 5 partitions: 5 because broker 2 has left",
        "5 of them have no leader: no replica that may lead is alive",
    ]
    cluster.start(2)
    assert "elected leaders of 5 partitions: 5 that had no leader" in said(cluster, 1)


def test_a_new_controller_says_so() -> None:
    cluster = three()
    cluster.kill(1)
    (line,) = [line for line in said(cluster, 2) + said(cluster, 3) if "controller" in line]
    assert line.endswith("is the controller of epoch 2; brokers up: 2, 3")


def test_a_broker_whose_id_another_directory_has_taken_says_so_once() -> None:
    cluster = three()
    tree = cluster[1].session
    cluster.hold = True
    cluster[2].session.close()
    image = load_image(tree.snapshot()[1])
    assert image.cluster_id is not None
    other = Registration(BrokerId(2), "elsewhere", 9092, None, image.cluster_id, directory_id="other")
    tree.commit(register(image, other, cluster.now_ms))
    cluster.hold = False
    cluster[2].dispatch(tree_access.SESSION_LOST)
    cluster.settle()
    cluster.advance(5_000)
    refusals = [line for line in said(cluster, 2) if line.startswith("cannot register again: ")]
    assert len(refusals) == 1
    assert "a broker with id 2 is already running in this cluster, at elsewhere:9092" in refusals[0]
