"""``broker.share`` and ``cluster.share``: what members hold, and what becomes of it in virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Producer, ShareConsumer, ShareSettings
from oncelog.testing import Broker, Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
LOCK_MS = 30_000
EXPLICIT = ShareSettings(acknowledgement="explicit")
EARLIEST = {"share.auto.offset.reset": "earliest"}


def filled(server: Broker | Cluster) -> None:
    """Three records in the topic ``jobs``, and a group that begins with them."""
    with Client(server.bootstrap_servers) as client:
        create_topic(client, NewTopic("jobs"))
        alter_configs(client, ResourceType.GROUP, "g", change=EARLIEST)
        with Producer(client) as producer:
            for number in range(3):
                producer.send("jobs", b"%d" % number)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(virtual_time=True) as running:
        filled(running)
        yield running


def taken(consumer: ShareConsumer) -> list:
    """The records that a member polls, once it gets some."""
    records = []
    wait_until(lambda: records.extend(consumer.poll()) or records, "records")
    return records


def test_states_counts_and_holders(broker):
    assert broker.share.deliveries() == []
    with Client(broker.bootstrap_servers) as client:
        consumer = ShareConsumer(client, "g", ["jobs"], settings=EXPLICIT)
        first, second, third = taken(consumer)
        [held] = broker.share.deliveries("jobs", "g")
        assert (held.first_offset, held.last_offset, held.state, held.delivery_count) == (0, 2, "acquired", 1)
        assert (held.topic, held.partition, held.group_id) == ("jobs", 0, "g")
        assert held.member_id
        assert held.locked_until_ms is not None
        consumer.release(first)
        consumer.accept(second)
        consumer.commit()
        states = [(each.first_offset, each.state, each.member_id) for each in broker.share.deliveries("jobs")]
        assert states == [(0, "available", None), (1, "acknowledged", None), (2, "acquired", held.member_id)]
        consumer.accept(third)
        assert broker.share.deliveries("other") == broker.share.deliveries("jobs", "other") == []
        consumer.close()


def test_what_a_closed_consumer_has_left(broker):
    """The leader forgets the share partition with its last member; the coordinator has it."""
    with Client(broker.bootstrap_servers) as client:
        consumer = ShareConsumer(client, "g", ["jobs"], settings=EXPLICIT)
        consumer.accept(taken(consumer)[1])
        consumer.close()
        wait_until(lambda: all(each.state != "acquired" for each in broker.share.deliveries()), "the end of the locks")
        left = [(each.first_offset, each.state, each.delivery_count) for each in broker.share.deliveries("jobs")]
        assert left == [(0, "available", 1), (1, "acknowledged", 1), (2, "available", 1)]
        assert broker.share.deliveries("other") == broker.share.deliveries("jobs", "other") == []
        consumer = ShareConsumer(client, "g", ["jobs"], settings=EXPLICIT)
        for record in taken(consumer):
            consumer.accept(record)
        consumer.close()
    assert broker.share.deliveries() == []


def test_a_lock_expires_in_virtual_time(broker):
    with Client(broker.bootstrap_servers) as client, Client(broker.bootstrap_servers) as another:
        hanging = ShareConsumer(client, "g", ["jobs"], settings=EXPLICIT)
        taken(hanging)
        broker.advance(LOCK_MS - 10_000)
        assert [each.state for each in broker.share.deliveries()] == ["acquired"]
        broker.advance(10_001)
        assert [(each.state, each.delivery_count) for each in broker.share.deliveries()] == [("available", 1)]
        other = ShareConsumer(another, "g", ["jobs"], settings=EXPLICIT)
        assert [record.delivery_count for record in taken(other)] == [2, 2, 2]
        for consumer in (other, hanging):
            consumer.close()


def test_a_killed_broker_forgets_locks_and_nothing_else(broker):
    with Client(broker.bootstrap_servers) as client:
        consumer = ShareConsumer(client, "g", ["jobs"], settings=EXPLICIT)
        first, *_ = taken(consumer)
        consumer.accept(first)
        consumer.commit()
        broker.kill()
        assert broker.share.deliveries() == []
        broker.start()
        assert sorted(record.offset for record in taken(consumer)) == [1, 2]
        consumer.close()


def test_a_cluster_shows_what_any_leader_holds():
    with Cluster(3) as cluster:
        filled(cluster)
        with Client(cluster.bootstrap_servers) as client:
            consumer = ShareConsumer(client, "g", ["jobs"], settings=EXPLICIT)
            first, *_ = taken(consumer)
            [held] = cluster.share.deliveries("jobs")
            assert (held.first_offset, held.last_offset) == (0, 2)
            consumer.accept(first)
            consumer.commit()
            leader = cluster.leader("jobs")
            cluster.brokers[leader].kill()
            again = taken(consumer)
            assert {record.offset for record in again} == {1, 2}
            consumer.close()
