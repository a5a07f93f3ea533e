"""Ours and Java's consumers of 1.0.2 and 0.8.2.2 in one group: every record has one reader while nothing changes, none
is lost whatever does, and Java's consumers live through it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Producer
from oncelog.testing import Broker
from tests.interop.zookeeper_groups.group import Group
from tests.peers.old_kafka import OldKafka, run_old
from tests.peers.zookeeper import ZooKeeper
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer("kafka-0.8.2.2", "kafka-1.0.2", "kafka-3.9.1"),
]
PARTITIONS = 6


_NUMBERS = count()


class Load:
    """Records with values of their own, in all partitions of a topic."""

    def __init__(self, client: Client, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.sent: set[str] = set()

    def send(self, many: int = 120) -> None:
        """Send so many more."""
        with Producer(self.client) as producer:
            for number in range(len(self.sent), len(self.sent) + many):
                producer.send(self.topic, value=str(number).encode(), partition=number % PARTITIONS)
                self.sent.add(str(number))


class Brokers(NamedTuple):
    """A cluster in ZooKeeper mode."""

    bootstrap_servers: str
    connect: str


@pytest.fixture(scope="module", params=["3.9.1", "oncelog"])
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper
) -> Iterator[Brokers]:
    """Apache Kafka 3.9.1, the last that works with ZooKeeper, and a broker of ours that serves old clients."""
    connect = f"{zookeeper.connect}/mixed-{request.param}"
    if request.param == "oncelog":
        config = {"node.id": "1", "zookeeper.connect": connect, "oncelog.legacy.protocol": "true"}
        with Broker(config) as ours:
            yield Brokers(ours.bootstrap_servers, connect)
    else:
        with OldKafka("3.9.1", connect, tmp_path_factory.mktemp("kafka")) as theirs:
            yield Brokers(theirs.bootstrap_servers, connect)


@pytest.fixture
def load(brokers: Brokers) -> Iterator[Load]:
    with Client(brokers.bootstrap_servers) as client:
        topic = f"t{next(_NUMBERS)}"
        create_topic(client, NewTopic(topic, partitions=PARTITIONS))
        yield Load(client, topic)


@pytest.fixture
def group(brokers: Brokers, load: Load, tmp_path: Path) -> Iterator[Group]:
    with Group(brokers.connect, f"g{load.topic}", load.topic, tmp_path) as group:
        group.begin_at_zero()
        yield group


def read_once(group: Group, load: Load) -> None:
    """Send more, and see that each of all was read, and by one."""
    load.send()
    group.wait_read(load.sent)
    assert {value: times for value, times in group.values().items() if times > 1} == {}, group.errors()


def test_joins_and_leaves_in_order_repeat_nothing_and_lose_nothing(group: Group, load: Load) -> None:
    group.join("java", "1.0.2")
    group.wait_for("java", partitions=PARTITIONS)
    read_once(group, load)
    ours = group.join("ours")
    group.wait_for("java", "ours", partitions=PARTITIONS)
    read_once(group, load)
    old = group.join("old", "0.8.2.2")
    group.wait_for("java", "old", "ours", partitions=PARTITIONS)
    read_once(group, load)
    ours.stop()
    group.wait_for("java", "old", partitions=PARTITIONS)
    read_once(group, load)
    group.join("other")
    group.wait_for("java", "old", "other", partitions=PARTITIONS)
    old.stop()
    group.wait_for("java", "other", partitions=PARTITIONS)
    read_once(group, load)
    wait_until(lambda: sum(group.offsets().values()) == len(load.sent), "the offsets")


def test_kills_lose_nothing_and_java_outlives_ours(group: Group, load: Load) -> None:
    java, ours = group.join("java", "1.0.2"), group.join("ours")
    group.join("other")
    group.wait_for("java", "other", "ours", partitions=PARTITIONS)
    read_once(group, load)
    ours.kill()
    load.send()
    group.wait_for("java", "other", partitions=PARTITIONS)
    group.wait_read(load.sent)
    java.kill()
    load.send()
    group.wait_for("other", partitions=PARTITIONS)
    group.wait_read(load.sent)
    group.join("old", "0.8.2.2")
    group.wait_for("old", "other", partitions=PARTITIONS)
    load.send()
    group.wait_read(load.sent)


def test_a_frozen_member_loses_its_partitions_and_takes_nothing_back_when_it_thaws(group: Group, load: Load) -> None:
    ours = group.join("ours")
    group.join("java", "1.0.2")
    group.wait_for("java", "ours", partitions=PARTITIONS)
    read_once(group, load)
    wait_until(lambda: sum(group.offsets().values()) == len(load.sent), "the offsets")
    ours.freeze()
    group.wait_for("java", partitions=PARTITIONS)
    load.send()
    group.wait_read(load.sent)
    wait_until(lambda: sum(group.offsets().values()) == len(load.sent), "the offsets")
    before = len(ours.lines())
    ours.thaw()
    group.wait_for("java", "ours", partitions=PARTITIONS)
    assert sum(group.offsets().values()) == len(load.sent)
    assert len(ours.lines()) == before
    read_once(group, load)


def test_a_frozen_consumer_of_javas_is_waited_for_no_longer_than_its_session(group: Group, load: Load) -> None:
    group.join("ours")
    old = group.join("old", "0.8.2.2")
    group.wait_for("old", "ours", partitions=PARTITIONS)
    read_once(group, load)
    old.freeze()
    group.wait_for("ours", partitions=PARTITIONS)
    load.send()
    group.wait_read(load.sent)
    old.thaw()
    group.wait_for("old", "ours", partitions=PARTITIONS)


def test_javas_tools_see_ours(group: Group, load: Load, brokers: Brokers) -> None:
    group.join("ours")
    group.wait_for("ours", partitions=PARTITIONS)
    read_once(group, load)
    wait_until(lambda: sum(group.offsets().values()) == len(load.sent), "the offsets")
    tool = "kafka.admin.ConsumerGroupCommand"
    described = run_old("1.0.2", tool, "--zookeeper", brokers.connect, "--describe", "--group", group.name)
    rows = [line.split() for line in described.stdout.splitlines() if line.startswith(load.topic)]
    assert [(row[1], row[2], row[4], row[5]) for row in sorted(rows)] == [
        (str(partition), str(len(load.sent) // PARTITIONS), "0", f"{group.name}_ours")
        for partition in range(PARTITIONS)
    ], described


def test_javas_tools_list_no_groups_before_there_are_any(zookeeper: ZooKeeper) -> None:
    connect = f"{zookeeper.connect}/fresh/path"
    with Broker({"node.id": "1", "zookeeper.connect": connect}):
        for tool in ("kafka.admin.ConsumerGroupCommand", "kafka.admin.TopicCommand"):
            listed = run_old("1.0.2", tool, "--zookeeper", connect, "--list")
            assert (listed.returncode, listed.stdout) == (0, ""), listed


@pytest.mark.parametrize("release", ["1.0.2", "0.8.2.2"])
def test_offsets_in_kafka_with_dual_commit_are_those_of_java(group: Group, load: Load, release: str) -> None:
    keys = {"offsets_storage": "kafka", "dual_commit_enabled": "true"}
    java = group.join("java", release, **keys)
    group.wait_for("java", partitions=PARTITIONS)
    read_once(group, load)
    java.stop()
    ours = group.join("ours", **keys)
    group.wait_for("ours", partitions=PARTITIONS)
    read_once(group, load)
    ours.stop()
    group.join("again", release, **keys)
    group.wait_for("again", partitions=PARTITIONS)
    read_once(group, load)
