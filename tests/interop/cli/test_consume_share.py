"""``oncelog consume --share``: when it ends, and what is left of the records then."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Producer
from oncelog.testing import Broker, Cluster
from tests.interop.cli.conftest import Run
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
LOCK_MS = "1000"
SETTINGS = {"group.share.min.record.lock.duration.ms": LOCK_MS, "group.share.record.lock.duration.ms": LOCK_MS}


def filled(server: Broker | Cluster, topic: NewTopic, count: int, **configs: str) -> None:
    changes = {"share.auto.offset.reset": "earliest"} | configs
    with Client(server.bootstrap_servers) as client:
        create_topic(client, topic)
        alter_configs(client, ResourceType.GROUP, "g", change=changes)
        with Producer(client) as producer:
            for number in range(count):
                producer.send(topic.name, b"%d" % number, partition=number % topic.partitions)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


def test_release_ends_before_a_lock_does(broker: Broker, run_at: Callable[[str], Run]) -> None:
    """With the lock would end the delivery: the record would come again and again, until it is archived."""
    filled(broker, NewTopic("jobs"), 1)
    run = run_at(broker.bootstrap_servers)
    looked = run("consume", "jobs", "--share", "g", "--release")
    assert (looked.code, looked.out) == (0, "0\n")
    assert "ended before the first lock did" in looked.err
    shown = run("consume", "jobs", "--share", "g", "--count", "1", "--json").out
    assert '"delivery_count":2' in shown


def test_release_says_that_its_locks_fill_the_window(run_at: Callable[[str], Run]) -> None:
    with Broker({"group.share.min.partition.max.record.locks": "100"}) as broker:
        filled(broker, NewTopic("jobs"), 100, **{"share.partition.max.record.locks": "100"})
        run = run_at(broker.bootstrap_servers)
        assert run("produce", "jobs", stdin=b"more").code == 0
        looked = run("consume", "jobs", "--share", "g", "--release", "--exit")
        assert (looked.code, len(looked.out.split())) == (0, 100)
        assert "jobs-0 has as many locked records as share.partition.max.record.locks allows" in looked.err


def test_exit_waits_for_a_slow_answer(run_at: Callable[[str], Run]) -> None:
    with Broker() as broker:
        filled(broker, NewTopic("jobs"), 3)
        with broker.faults.delay("ShareFetch", 1.5):
            assert run_at(broker.bootstrap_servers)("consume", "jobs", "--share", "g", "--exit") == (0, "0\n1\n2\n", "")


def test_exit_names_partitions_that_cannot_be_read(run_at: Callable[[str], Run]) -> None:
    with Cluster(3) as cluster:
        filled(cluster, NewTopic("jobs", 3, 1), 3)
        cluster.brokers[cluster.leader("jobs", 1)].kill()
        wait_until(lambda: cluster.leader("jobs", 1) is None, "the end of the leader")
        # Brokers take a while to move the group's coordinator.
        limit = ("-X", "default.api.timeout.ms=5000")
        ran = run_at(cluster.bootstrap_servers)("consume", "jobs", "--share", "g", "--exit", *limit)
        assert (ran.code, sorted(ran.out.split())) == (1, ["0", "2"])
        assert "could not be read: jobs-1" in ran.err
