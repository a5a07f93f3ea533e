"""Our consumers that share their work through ZooKeeper, on a broker of ours: the blocking interface, the commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import pytest

from oncelog.admin.groups import describe_group
from oncelog.admin.topics import NewTopic, add_partitions, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.tree import Create
from oncelog.cli.main import invoke
from oncelog.client.blocking import Client, GroupConsumer, Producer
from oncelog.client.errors import ConfigError
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.programs.group import committed_offsets
from oncelog.client.zookeeper import Subscription, ZooKeeperConsumer
from oncelog.legacy.zookeeper_groups.connection import ZooKeeperUnreachable, open_session
from oncelog.legacy.zookeeper_groups.machine.member import ZooKeeperRebalanceFailed
from oncelog.legacy.zookeeper_groups.machine.nodes import owner_path
from oncelog.legacy.zookeeper_groups.stored_offsets import all_offsets, write_offsets
from oncelog.testing import Broker
from tests.peers.process import free_ports
from tests.peers.zookeeper import ZooKeeper
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
_NUMBERS = count()
FAST = {"auto.offset.reset": "smallest", "rebalance.backoff.ms": "100", "zookeeper.session.timeout.ms": "2000"}


class Cluster(NamedTuple):
    """A broker in ZooKeeper mode, a client of it, and names of a test's own."""

    connect: str
    client: Client
    topic: str
    group: str

    def consumer(self, *, topics: Subscription | None = None, **keys: str) -> ZooKeeperConsumer:
        """A consumer of the group; keys with ``_`` for ``.``."""
        properties = FAST | {key.replace("_", "."): value for key, value in keys.items()}
        read = topics or Subscription.to_topics([self.topic])
        return ZooKeeperConsumer(self.connect, self.group, read, properties=properties)

    def send(self, values: range) -> None:
        """Send numbers, each in a partition by turns."""
        partitions = len(self.client.topic(self.topic).partitions)
        with Producer(self.client) as producer:
            for value in values:
                producer.send(self.topic, value=str(value).encode(), partition=value % partitions)

    def partition(self, number: int) -> TopicPartition:
        """One of the topic's."""
        return TopicPartition(TopicName(self.topic), number)

    def offsets(self) -> list[int]:
        """The group's offsets in ZooKeeper, by partition."""
        session = open_session(self.connect, 6_000, 6_000)
        try:
            return list(all_offsets(session, self.group).values())
        finally:
            session.stop()


@pytest.fixture(scope="module")
def broker(zookeeper: ZooKeeper) -> Iterator[tuple[str, str]]:
    connect = f"{zookeeper.connect}/consumers-of-ours"
    config = {"node.id": "1", "zookeeper.connect": connect, "offsets.topic.num.partitions": "1"}
    with Broker(config) as running:
        yield connect, running.bootstrap_servers


@pytest.fixture
def cluster(broker: tuple[str, str]) -> Iterator[Cluster]:
    number = next(_NUMBERS)
    with Client(broker[1]) as client:
        create_topic(client, NewTopic(f"t{number}", partitions=4))
        yield Cluster(broker[0], client, f"t{number}", f"g{number}")


def read(consumer: ZooKeeperConsumer, number: int) -> list[int]:
    """Read so many records, and report them."""
    results: list[int] = []

    def more() -> bool:
        for fetched in consumer.poll(50):
            results.extend(int(record.value or b"") for record in read_fetched(fetched))
            assert consumer.processed(fetched.partition, fetched.next_offset)
        return len(results) >= number

    wait_until(more, lambda: f"{number} records, there are {len(results)}")
    return sorted(results)


def owned(*consumers: ZooKeeperConsumer) -> list[int]:
    """The numbers of partitions that each owns, while all of them are polled."""
    for consumer in consumers:
        consumer.poll(10)
    return [len(consumer.assignment) for consumer in consumers]


def test_it_reads_commits_and_goes_on_where_it_was(cluster: Cluster) -> None:
    cluster.send(range(20))
    with cluster.consumer() as consumer:
        assert read(consumer, 20) == list(range(20))
        consumer.commit()
        assert cluster.offsets() == [5, 5, 5, 5]
        assert consumer.owner_of(cluster.partition(0)) == f"{consumer.consumer_id}-0"
    cluster.send(range(20, 40))
    with cluster.consumer() as consumer:
        assert read(consumer, 20) == list(range(20, 40))
    assert cluster.offsets() == [10, 10, 10, 10]


def test_partitions_go_to_who_joins_and_come_back_from_who_leaves(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        wait_until(lambda: owned(consumer) == [4], "all partitions")
        with cluster.consumer() as other:
            wait_until(lambda: owned(consumer, other) == [2, 2], "half of them each")
        wait_until(lambda: owned(consumer) == [4], "all again")


def test_partitions_and_topics_that_appear_are_read(cluster: Cluster) -> None:
    with cluster.consumer(topics=Subscription.to_filter(f"{cluster.topic}.*")) as consumer:
        wait_until(lambda: owned(consumer) == [4], "the topic")
        add_partitions(cluster.client, cluster.topic, 5)
        wait_until(lambda: owned(consumer) == [5], "the new partition")
        create_topic(cluster.client, NewTopic(f"{cluster.topic}-more", partitions=2))
        wait_until(lambda: owned(consumer) == [7], "the new topic")


def test_a_session_that_ends_is_begun_again(cluster: Cluster) -> None:
    cluster.send(range(4))
    with cluster.consumer() as consumer:
        assert read(consumer, 4) == list(range(4))
        session = consumer._runner._session
        assert session is not None
        session.stop()
        session.lost = True
        consumer._changed()
        wait_until(lambda: owned(consumer) == [4] and consumer._runner._session is not session, "another session")
        cluster.send(range(4, 8))
        assert set(read(consumer, 4)) >= set(range(4, 8))


def test_a_partition_that_stays_somebody_elses_ends_the_consumer(cluster: Cluster) -> None:
    session = open_session(cluster.connect, 6_000, 6_000)
    try:
        path = owner_path(cluster.group, cluster.partition(2))
        parts = path.split("/")[:-1]
        session.ensure(["/".join(parts[:length]) for length in range(2, len(parts) + 1)])
        session.transact([Create(path, b"g_stranger-0", ephemeral=True)])
        with cluster.consumer() as consumer, pytest.raises(ZooKeeperRebalanceFailed, match="belonged to g_stranger-0"):
            wait_until(lambda: owned(consumer) == [4], "never")
    finally:
        session.stop()


def test_offsets_move_to_kafka_and_back(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--zookeeper", cluster.connect]
    cluster.send(range(8))
    with cluster.consumer() as consumer:
        read(consumer, 8)
        refused = ["group", "migrate", cluster.group, *place, "--from", "zookeeper", "--to", "kafka"]
        assert invoke(refused) == 1
        assert "1 of its consumers are running" in capsys.readouterr().err
    assert invoke(["group", "migrate", cluster.group, *place, "--from", "zookeeper", "--to", "kafka", "--json"]) == 0
    assert [row["offset"] for row in json.loads(capsys.readouterr().out)["offsets"]] == [2, 2, 2, 2]
    with cluster.consumer(offsets_storage="kafka", dual_commit_enabled="false") as consumer:
        cluster.send(range(8, 16))
        assert read(consumer, 8) == list(range(8, 16))
    assert cluster.offsets() == [2, 2, 2, 2]
    committed = committed_offsets(cluster.client, cluster.group)
    assert [one.offset for _, one in sorted(committed.items())] == [4, 4, 4, 4]
    assert invoke(["group", "migrate", cluster.group, *place, "--from", "zookeeper", "--to", "kafka"]) == 1
    assert "kafka is ahead of zookeeper in 4 partitions" in capsys.readouterr().err
    assert invoke(["group", "migrate", cluster.group, *place, "--from", "kafka", "--to", "zookeeper"]) == 0
    assert cluster.offsets() == [4, 4, 4, 4]


def test_offsets_are_not_moved_under_members_of_the_coordinator(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    session = open_session(cluster.connect, 6_000, 6_000)
    write_offsets(session, cluster.group, {cluster.partition(0): 1})
    session.stop()
    with GroupConsumer(cluster.client, cluster.group, [cluster.topic]) as member:
        wait_until(lambda: member.poll(10) is not None and member.has_joined, "the member")
        move = ["group", "migrate", cluster.group, "--zookeeper", cluster.connect]
        assert invoke([*move, "--from", "zookeeper", "--to", "kafka"]) == 1
    assert "members at its coordinator" in capsys.readouterr().err
    assert describe_group(cluster.client, cluster.group).state == "Empty"


def test_the_commands_show_and_reset_a_group(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--zookeeper", cluster.connect]
    cluster.send(range(40))
    printed = ["consume", cluster.topic, *place, "--group", cluster.group, "--from", "beginning", "--exit", "-q"]
    assert invoke([*printed, "-f", "%s\\n"]) == 0
    assert invoke(["group", "list", *place, "--json"]) == 0
    rows = {row["group"]: row for row in json.loads(capsys.readouterr().out.partition("[\n")[2].join(["[", ""]))}
    assert rows[cluster.group] == {
        "group": cluster.group,
        "state": "Empty",
        "members": 0,
        "topics": [cluster.topic],
    }
    with cluster.consumer() as consumer:
        wait_until(lambda: owned(consumer) == [4], "all partitions")
        assert invoke(["group", "describe", cluster.group, *place, "--json"]) == 0
        [result] = json.loads(capsys.readouterr().out)
        assert (result["state"], result["members"][0]["member_id"]) == ("Running", consumer.consumer_id)
        assert [(row["committed"], row["lag"]) for row in result["partitions"]] == [(10, 0)] * 4
        reset = ["group", "reset-offsets", cluster.group, *place, "--to-earliest", "--execute"]
        assert invoke(reset) == 1
    assert invoke(reset) == 0
    assert cluster.offsets() == [0, 0, 0, 0]
    assert invoke(["group", "describe", "nobody", *place]) == 1
    assert "no such group" in capsys.readouterr().err


def test_a_mistake_of_ours_is_raised_where_it_is_heard(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> None:
        raise ZeroDivisionError

    with cluster.consumer() as consumer:
        wait_until(lambda: owned(consumer) == [4], "all partitions")
        monkeypatch.setattr(consumer._runner, "run", mistaken)
        consumer._changed()
        with pytest.raises(ZeroDivisionError):
            wait_until(lambda: owned(consumer) == [0], "never")


def test_what_cannot_be_is_said() -> None:
    [port] = free_ports(1)
    with pytest.raises(ZooKeeperUnreachable, match=f"127.0.0.1:{port}"):
        ZooKeeperConsumer(f"127.0.0.1:{port}", "g", ["t"], properties={"zookeeper.connection.timeout.ms": "100"})
    with pytest.raises(ConfigError, match="group id"):
        ZooKeeperConsumer(f"127.0.0.1:{port}", "a/b", ["t"])
