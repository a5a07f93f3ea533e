"""Share groups in a cluster: they move with their coordinator, and offsets are described across brokers."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import CONSUMER_OFFSETS
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.node.driver import Peer
from tests.scenario.node.requests import batch, create_topic, produce
from tests.scenario.share.groups import alter, assigned, beat, describe_offsets, join, parts

REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "default.replication.factor": "3",
}


def cluster_of_three() -> Cluster:
    cluster = Cluster(3, REPLICATED)
    peer = cluster.connect(1)
    create_topic(peer, "t", 3)
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    cluster.advance(2_000)
    return cluster


def leader(cluster: Cluster, topic: str, partition: int = 0) -> int:
    return cluster.running[0].node.cluster.image.topics[topic].partitions[partition].leader


def coordinator(cluster: Cluster) -> Peer:
    return cluster.connect(leader(cluster, CONSUMER_OFFSETS))


def test_members_go_on_with_the_next_coordinator() -> None:
    cluster = cluster_of_three()
    peer = coordinator(cluster)
    join(peer)
    cluster.advance(2_000)
    response = beat(peer, 2)
    assert (response.member_epoch, assigned(response)) == (3, [0, 1, 2])
    before = leader(cluster, CONSUMER_OFFSETS)
    other = cluster.connect(next(driver.broker_id for driver in cluster.running if driver.broker_id != before))
    assert beat(other, 3).error_code == E.NOT_COORDINATOR
    cluster.kill(before)
    cluster.advance(2_000)
    assert leader(cluster, CONSUMER_OFFSETS) != before
    peer = coordinator(cluster)
    response = beat(peer, 3)
    assert (response.error_code, response.member_epoch, assigned(response)) == (0, 3, None)
    second = join(peer, "n")
    assert second.member_epoch == 4
    cluster.advance(44_000)
    assert beat(peer, 4, "n").error_code == 0
    cluster.advance(2_000)
    assert beat(peer, 3).error_code == E.UNKNOWN_MEMBER_ID, "sessions begin anew at the next coordinator"


def test_lags_come_from_the_leaders_of_the_partitions() -> None:
    cluster = cluster_of_three()
    leaders = {number: leader(cluster, "t", number) for number in range(3)}
    assert len(set(leaders.values())) == 3
    for number, broker_id in leaders.items():
        driver = cluster[broker_id]
        cluster.connect(broker_id).ask(produce("t", batch(driver, *[b"x"] * (number + 1)), number), 9)
    cluster.advance(1_000)
    peer = coordinator(cluster)
    answer = alter(peer, {"t": {0: 0, 1: 1, 2: 0}})
    assert [part.error_code for topic in answer.responses for part in topic.partitions] == [0, 0, 0]
    cluster.advance(1_000)
    assert parts(describe_offsets(peer, None)) == [("t", 0, 0, 1, 0), ("t", 1, 1, 1, 0), ("t", 2, 0, 3, 0)]


def test_a_leader_that_does_not_answer_costs_only_its_partitions_lag() -> None:
    cluster = cluster_of_three()
    peer = coordinator(cluster)
    alter(peer, {"t": {0: 0, 1: 0, 2: 0}})
    here = leader(cluster, CONSUMER_OFFSETS)
    lost = next(
        number
        for number in range(3)
        if leader(cluster, "t", number) not in (here, leader(cluster, "__share_group_state"))
    )
    cluster.kill(leader(cluster, "t", lost), session_ends=False)
    described = {part[1]: part[3:] for part in parts(describe_offsets(peer, None))}
    assert described.pop(lost)[1] == E.LEADER_NOT_AVAILABLE
    assert set(described.values()) == {(0, 0)}
