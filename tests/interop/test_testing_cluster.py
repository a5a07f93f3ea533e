"""``oncelog.testing.Cluster``: several brokers in this process, and what a test does to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from oncelog.admin.cluster import describe_log_dirs
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.admin.transactions.transactional_ids import describe_transaction
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused
from oncelog.testing import Cluster
from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_departures")]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, {"num.partitions": "1"}) as one:
        yield one


def create(cluster: Cluster, assignment: dict[int, list[int]]) -> None:
    with Client(cluster.bootstrap_servers) as client:
        create_topic(client, NewTopic("t", assignment=assignment))
    wait_until(lambda: all(cluster.leader("t", index) is not None for index in assignment), "leaders")


def known_to(cluster: Cluster, broker_id: int) -> set[int]:
    """The brokers that one of them names."""
    with Client(cluster.brokers[broker_id].bootstrap_servers) as client:
        client.refresh()
        return set(client.view.brokers)


def produce(cluster: Cluster, *values: str) -> Callable[[], list[KafkaError | None]]:
    """Send values with acks=all; the outcomes, once they are there."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})

    def told(error: KafkaError | None, _message: Message) -> None:
        outcomes.append(error)

    for value in values:
        producer.produce("t", value, partition=0, on_delivery=told)

    def flush() -> list[KafkaError | None]:
        producer.flush(HANG_S)
        return outcomes

    producer.poll(0)
    return flush


def consume(cluster: Cluster, count: int) -> list[str]:
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    consumer.assign([TopicPartition("t", 0, 0)])
    results: list[str] = []
    wait_until(
        lambda: len(results) == count or results.extend(_values(consumer)), lambda: f"{count} records, got {results}"
    )
    consumer.close()
    return results


def _values(consumer: Consumer) -> list[str]:
    return [str(item.value(), "utf-8") for item in consumer.consume(10, 0.1) if not item.error()]


def in_sync(cluster: Cluster) -> set[int]:
    with Client(cluster.bootstrap_servers) as client:
        return set(client.topic("t").partitions[0].isr)


def log_bytes(cluster: Cluster) -> int:
    """The size of the log of t-0 at broker 1."""
    with Client(cluster.bootstrap_servers) as client:
        return sum(row.size_bytes for row in describe_log_dirs(client, ["t"], [1]))


def test_three_brokers_are_one_cluster(cluster: Cluster) -> None:
    assert len(cluster.bootstrap_servers.split(",")) == 3
    assert [known_to(cluster, number) for number in (1, 2, 3)] == [{1, 2, 3}] * 3
    create(cluster, {0: [2, 3, 1]})
    assert cluster.leader("t") == 2
    assert cluster.leader("t", 1) is None
    assert cluster.leader("unknown") is None
    assert produce(cluster, "a", "b")() == [None, None]
    assert consume(cluster, 2) == ["a", "b"]


def test_a_broker_that_is_killed_is_missing_until_it_is_restarted(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    cluster.kill(2)
    wait_until(lambda: known_to(cluster, 1) == known_to(cluster, 3) == {1, 3}, "the death to be known")
    cluster.restart(2)
    assert [known_to(cluster, number) for number in (1, 2, 3)] == [{1, 2, 3}] * 3
    cluster.restart(3)
    assert [known_to(cluster, number) for number in (1, 2, 3)] == [{1, 2, 3}] * 3
    assert cluster.bootstrap_servers == servers


def test_a_frozen_broker_expires_and_comes_back_when_it_is_thawed(cluster: Cluster) -> None:
    cluster.freeze(3)
    wait_until(lambda: known_to(cluster, 1) == {1, 2}, "the end of the session")
    cluster.thaw(3)
    wait_until(lambda: known_to(cluster, 1) == known_to(cluster, 3) == {1, 2, 3}, "a new session")


def test_a_broker_can_be_frozen_without_anybody_noticing(cluster: Cluster) -> None:
    cluster.freeze(3, expires=False)
    with pytest.raises(RuntimeError, match="broker 3 is already frozen, or down"):
        cluster.freeze(3)
    assert known_to(cluster, 1) == {1, 2, 3}
    cluster.kill(3)
    wait_until(lambda: known_to(cluster, 1) == {1, 2}, "the death to be known")


def test_nothing_is_acknowledged_past_a_cut_and_all_of_it_when_that_heals(cluster: Cluster) -> None:
    create(cluster, {0: [1, 2, 3]})
    assert produce(cluster, "before")() == [None]
    cluster.isolate(1)
    before = log_bytes(cluster)
    outcomes = produce(cluster, "held")
    wait_until(lambda: log_bytes(cluster) > before, "the leader to append it")
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0})
    assert reader.get_watermark_offsets(TopicPartition("t", 0), timeout=HANG_S) == (0, 1)
    reader.close()
    cluster.heal()
    assert outcomes() == [None]
    assert consume(cluster, 2) == ["before", "held"]


def test_a_lost_disk_comes_back_empty(cluster: Cluster) -> None:
    create(cluster, {0: [1, 2, 3]})
    assert produce(cluster, "a")() == [None]
    cluster.lose_disk(3)
    assert not cluster.brokers[3].data_dir.exists()
    cluster.restart(3)
    assert known_to(cluster, 1) == {1, 2, 3}


def test_unknown_brokers_are_refused(cluster: Cluster) -> None:
    for act in (cluster.kill, cluster.restart, cluster.freeze, cluster.thaw, cluster.lose_disk, cluster.isolate):
        with pytest.raises(ValueError, match="there is no broker 4; the brokers are 1, 2, 3"):
            act(4)


def test_a_stopped_cluster_leaves_nothing_and_can_be_started_again() -> None:
    cluster = Cluster(2)
    cluster.start()
    directory = cluster.brokers[1].data_dir.parent
    cluster.isolate(1)
    cluster.freeze(2)
    cluster.stop()
    assert not directory.exists()
    with pytest.raises(ValueError, match="the cluster is not running"):
        cluster.kill(1)
    with cluster:
        assert known_to(cluster, 1) == {1, 2}


def test_every_broker_can_have_a_rack() -> None:
    with Cluster(2, racks=("a", "b")) as cluster, Client(cluster.bootstrap_servers) as client:
        client.refresh()
        assert {broker_id: broker.rack for broker_id, broker in client.view.brokers.items()} == {1: "a", 2: "b"}
    with pytest.raises(ValueError, match="2 brokers need one each"):
        Cluster(2, racks=("a",))


def test_the_fixture_has_three_brokers(oncelog_cluster: Cluster) -> None:
    assert list(oncelog_cluster.brokers) == [1, 2, 3]


def test_another_leads_when_the_leader_dies_and_it_comes_back_into_the_set(cluster: Cluster) -> None:
    create(cluster, {0: [1, 2, 3]})
    assert produce(cluster, "a")() == [None]
    cluster.kill(1)
    wait_until(lambda: cluster.leader("t") in (2, 3), "another leader")
    assert produce(cluster, "b")() == [None]
    cluster.restart(1)
    wait_until(lambda: in_sync(cluster) == {1, 2, 3}, "broker 1 to be in sync again")
    assert consume(cluster, 2) == ["a", "b"]


def test_a_leader_can_be_chosen(cluster: Cluster) -> None:
    create(cluster, {0: [1, 2, 3]})
    assert produce(cluster, "a")() == [None]
    for broker_id in (3, 2, 2, 1):
        cluster.elect("t", 0, broker_id)
        assert cluster.leader("t") == broker_id
    with pytest.raises(BrokerRefused, match="no replica"):
        cluster.elect("t", 1, 3)
    assert consume(cluster, 1) == ["a"]


def test_a_frozen_leader_is_followed_by_another_and_cannot_acknowledge_when_it_wakes_up(cluster: Cluster) -> None:
    create(cluster, {0: [1, 2, 3]})
    assert produce(cluster, "a")() == [None]
    cluster.freeze(1)
    wait_until(lambda: cluster.leader("t") in (2, 3), "another leader")
    assert produce(cluster, "b")() == [None]
    cluster.thaw(1)
    assert produce(cluster, "c")() == [None]
    assert consume(cluster, 3) == ["a", "b", "c"]
    wait_until(lambda: in_sync(cluster) == {1, 2, 3}, "broker 1 to be in sync again")


def test_a_disk_that_was_lost_is_filled_again(cluster: Cluster) -> None:
    create(cluster, {0: [3, 1, 2]})
    assert produce(cluster, "a", "b")() == [None, None]
    cluster.lose_disk(3)
    cluster.restart(3)
    cluster.elect("t", 0, 3)  # waits until it has everything
    assert in_sync(cluster) >= {3}
    assert consume(cluster, 2) == ["a", "b"]


def test_time_passes_for_all_brokers_at_once_and_no_follower_lags() -> None:
    with Cluster(3, virtual_time=True) as cluster:
        create(cluster, {0: [1, 2, 3]})
        assert produce(cluster, "a")() == [None]
        cluster.advance(2 * 60_000)
        assert in_sync(cluster) == {1, 2, 3}
        cluster.kill(3)
        cluster.advance(60_000)
        assert in_sync(cluster) == {1, 2}
        cluster.restart(3)
        wait_until(lambda: in_sync(cluster) == {1, 2, 3}, "broker 3 in sync again")
        assert produce(cluster, "b")() == [None]
        assert consume(cluster, 2) == ["a", "b"]


def test_a_transaction_times_out_in_virtual_time() -> None:
    with Cluster(3, virtual_time=True) as cluster:
        create(cluster, {0: [1, 2, 3]})
        config = {"transactional.id": "slow", "transaction.timeout.ms": 30_000, "log_level": 0}
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **config})
        producer.init_transactions(HANG_S)
        producer.begin_transaction()
        producer.produce("t", "open", partition=0)
        producer.flush(HANG_S)
        with Client(cluster.bootstrap_servers) as client:
            assert describe_transaction(client, "slow").state == "Ongoing"
            cluster.advance(60_000)
            wait_until(lambda: describe_transaction(client, "slow").state == "CompleteAbort", "the abort")


def test_a_cluster_without_virtual_time_says_what_it_needs(cluster: Cluster) -> None:
    with pytest.raises(RuntimeError, match="virtual_time=True"):
        cluster.advance(1)
