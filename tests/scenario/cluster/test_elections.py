"""Brokers die and come back: the controller, whoever it is, gives every partition a leader where one can lead."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_BROKER, BrokerId, TopicName
from oncelog.base.tree import Conflict, Set
from oncelog.core.controller.brokers.registration import BrokerIdInUse
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage, load_image
from oncelog.core.controller.replicas.failover import end_registration, settle_partitions
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import create_replicated, state, write

T = TopicName("t")


def image_of(cluster: Cluster, broker_id: int) -> ClusterImage:
    return cluster[broker_id].node.cluster.image


def facts(cluster: Cluster, seen_by: int) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """Leader, leader epoch, in-sync set and eligible leaders."""
    result = state(cluster[seen_by])
    return result.leader, result.leader_epoch, result.isr, result.elr


def three(**configs: str) -> Cluster:
    """Three brokers; partition t-0 on all, led by 1; the controller is 1."""
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2, 3], **configs)
    assert facts(cluster, 3) == (1, 0, (1, 2, 3), ())
    return cluster


def test_a_dead_leader_is_replaced_and_comes_back_as_a_follower() -> None:
    cluster = three()
    cluster.kill(2)
    assert facts(cluster, 1) == (1, 0, (1, 3), ()), "a follower's death is no reason for an election"
    cluster.kill(1)
    assert facts(cluster, 3) == (3, 1, (3,), ())
    assert image_of(cluster, 3).controller_id == 3
    cluster.start(1)
    cluster.start(2)
    assert write(cluster, 3, b"a")[0] == ErrorCode.NONE
    cluster.advance(1_000)
    assert facts(cluster, 1) == (3, 1, (1, 2, 3), ())


def test_the_last_in_sync_stands_and_leads_when_it_is_back() -> None:
    cluster = three()
    for broker_id in (1, 2):
        cluster.kill(broker_id)
    cluster.kill(3)
    cluster.start(1)
    assert facts(cluster, 1) == (NO_BROKER, 3, (3,), ()), "1 is not in sync"
    cluster.start(3)
    assert state(cluster[1])[:2] == (3, 4)


def test_a_topic_that_allows_it_is_led_by_a_replica_that_is_behind() -> None:
    cluster = three(unclean_leader_election_enable="true")
    for broker_id in (1, 2, 3):
        cluster.kill(broker_id)
    cluster.start(2)
    assert facts(cluster, 2) == (2, 3, (2,), ()), "3 was the last in sync"


def test_who_leaves_a_set_that_is_too_small_stays_eligible() -> None:
    cluster = three(min_insync_replicas="2")
    cluster.kill(3)
    assert facts(cluster, 1) == (1, 0, (1, 2), ()), "the set is full: nobody else is eligible"
    cluster.kill(2)
    assert facts(cluster, 1) == (1, 0, (1,), (2,))
    cluster.kill(1)
    cluster.start(2)
    assert facts(cluster, 2) == (2, 1, (2,), (1,)), "2 has all below the high watermark, which stood still"
    cluster.start(3)
    cluster.start(1)
    cluster.advance(1_000)
    assert facts(cluster, 2) == (2, 1, (1, 2, 3), ())


def test_a_leader_that_restarts_within_its_session_leads_in_a_new_epoch_only() -> None:
    cluster = three()
    before = state(cluster[2])
    cluster.wire.nodes.pop(1)
    cluster.wire.node_died(cluster[1])  # nobody has noticed, and its session goes on
    driver = cluster[1]
    cluster.start(1)
    after = state(cluster[2])
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.leader_broker_epoch == image_of(cluster, 2).brokers[after.leader].epoch
    assert driver.fatal is None


def test_another_directory_under_the_same_id_is_refused() -> None:
    cluster = Cluster(2)
    cluster[1].directory_id = "another"
    with pytest.raises(BrokerIdInUse, match=r"id 1 is already running in this cluster, at broker-1:9092"):
        cluster[1].start()


def test_a_broker_whose_port_refuses_connections_is_dead_before_its_session_ends() -> None:
    cluster = three()
    cluster.advance(1_000)
    cluster.kill(1, session_ends=False)
    assert facts(cluster, 2)[:2] == (2, 1)
    assert 1 not in image_of(cluster, 3).brokers
    assert image_of(cluster, 3).controller_id in (2, 3), "and it was the controller"
    cluster.end_session(1)
    assert image_of(cluster, 3).controller_id in (2, 3)
    cluster.start(1)
    assert 1 in image_of(cluster, 3).brokers


def test_a_live_broker_whose_registration_was_ended_registers_again() -> None:
    cluster = three()
    epoch = image_of(cluster, 3).brokers[BrokerId(2)].epoch
    image = image_of(cluster, 3)
    cluster.tree.session().commit(end_registration(image, image.brokers[BrokerId(2)]))
    cluster.advance(1_000)
    assert image_of(cluster, 3).brokers[BrokerId(2)].epoch > epoch
    assert cluster[2].node.cluster.broker_epoch > epoch
    cluster.advance(1_000)
    assert facts(cluster, 1) == (1, 0, (1, 2, 3), ())
    assert [report for report in cluster[2].reports if "took this one for dead" in report]


def test_a_controller_that_was_replaced_changes_nothing() -> None:
    """A zombie: it decides on what it knows, and its commit names the epoch in which it was controller."""
    cluster = three()
    zombie = cluster.tree.session()
    old = load_image(zombie.subtree("/"))
    without_two = {broker_id: broker for broker_id, broker in old.brokers.items() if broker_id != 2}
    stale = type(old)(**{**{name: getattr(old, name) for name in old.__dataclass_fields__}, "brokers": without_two})
    commits = settle_partitions(stale, [T], lambda _topic: False)
    cluster.kill(1)
    for operations in commits:
        with pytest.raises(Conflict) as conflict:
            zombie.commit(operations)
        assert conflict.value.operation.path == layout.CONTROLLER_EPOCH


def test_a_decision_that_lost_a_race_is_made_again() -> None:
    cluster = three()
    driver = cluster[1]
    driver.hold_metadata = True
    cluster.kill(3)
    assert len(driver.held) == 1
    other = cluster.tree.session()
    result = state(driver)
    value = layout.state_value(result._replace(isr=(BrokerId(1), BrokerId(3))), image_of(cluster, 1).controller_epoch)
    other.commit([Set(layout.state_path(T, 0), value, result.version)])
    driver.release()
    driver.hold_metadata = False
    driver.release()
    cluster.settle()
    cluster.advance(1_000)
    assert facts(cluster, 2) == (1, 0, (1, 2), ())


def test_thousands_of_partitions_fail_over_in_commits_of_bounded_size() -> None:
    cluster = Cluster(3)
    topics = [CreatableTopic(name=f"t{n}", num_partitions=500, replication_factor=3) for n in range(6)]
    response = cluster.connect(2).ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 5)
    assert {topic.error_code for topic in response.topics} == {0}
    cluster.rules.largest = 0
    commits = cluster.rules.commits
    cluster.kill(2)
    assert 3 < cluster.rules.commits - commits < 24
    assert cluster.rules.largest < 256 * 1024
    partitions = [partition for topic in image_of(cluster, 1).topics.values() for partition in topic.partitions]
    assert {partition.isr for partition in partitions} <= {(1, 3), (3, 1)}
    assert {partition.leader for partition in partitions} == {1, 3}


def test_an_emptied_disk_is_taken_out_of_the_sets_before_it_takes_part() -> None:
    cluster = three()
    write(cluster, 1, b"a", b"b")
    cluster.kill(2)
    cluster.kill(3)
    cluster.kill(1)
    cluster[1].lose_disk()
    cluster.start(1)
    assert facts(cluster, 1) == (NO_BROKER, 1, (), ()), "nobody has what 1 had"
    assert not image_of(cluster, 1).brokers[BrokerId(1)].fenced
    cluster.start(2)
    assert state(cluster[1]).leader == NO_BROKER, "only an operator may say that it does not matter"
    elected = cluster.connect(2).ask(ElectLeadersRequest(election_type=1, topic_partitions=None, timeout_ms=1000), 1)
    assert elected.error_code == ErrorCode.NONE
    assert state(cluster[1]).leader != NO_BROKER


def test_an_emptied_disk_copies_from_those_in_sync() -> None:
    cluster = three()
    write(cluster, 1, b"a", b"b")
    cluster.kill(1)
    cluster[1].lose_disk()
    cluster.start(1)
    cluster.advance(1_000)
    assert facts(cluster, 1) == (2, 1, (1, 2, 3), ())
    assert cluster[1].node.logs.logs[next(iter(cluster[1].node.logs.logs))].log_end_offset == 2


def test_an_emptied_disk_that_restarts_before_the_controller_has_looked_is_still_fenced() -> None:
    cluster = three()
    cluster.hold = True
    cluster.kill(2)
    cluster[2].lose_disk()
    for _ in range(2):
        cluster[2].now_ms = cluster.now_ms
        cluster[2].start()
        assert load_image(cluster[2].session.subtree("/")).brokers[BrokerId(2)].fenced
        cluster[2].session.close()


@pytest.mark.parametrize("policy", ["none", "commit"])
def test_an_unclean_end_counts_only_where_acknowledged_records_may_be_missing(policy: str) -> None:
    cluster = Cluster(3, {"log.sync.policy": policy})
    create_replicated(cluster.connect(1), [1, 2, 3])
    cluster.kill(2, session_ends=False)  # it is back before the controller has looked
    cluster.tree.end_session(cluster[2].session._session_id)
    seen = []
    ears = cluster.tree.session()

    def look(change: object) -> None:
        brokers = load_image(ears.subtree("/")).brokers
        seen.append(BrokerId(2) in brokers and brokers[BrokerId(2)].fenced)

    ears.follow(ears.position(), look)  # type: ignore[arg-type]
    cluster.start(2)
    cluster.advance(1_000)
    assert facts(cluster, 1) == (1, 0, (1, 2, 3), ())
    assert any(seen) == (policy == "none")
    assert not seen[-1]


def test_the_preferred_leader_leads_again_after_a_while() -> None:
    cluster = three()
    cluster.restart(1)
    cluster.advance(1_000)
    assert facts(cluster, 2) == (2, 1, (1, 2, 3), ())
    cluster.advance(300_000)
    assert facts(cluster, 2) == (1, 2, (1, 2, 3), ())


def test_an_operator_elects_the_preferred_leader() -> None:
    cluster = three()
    cluster.restart(1)
    cluster.advance(1_000)
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000)
    assert cluster.connect(3).ask(request, 2).error_code == ErrorCode.NONE
    cluster.settle()
    assert facts(cluster, 2) == (1, 2, (1, 2, 3), ())
