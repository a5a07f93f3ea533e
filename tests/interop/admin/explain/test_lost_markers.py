"""A marker that an unclean election loses (KAFKA-20716), on three brokers of oncelog and of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from oncelog.admin.explain.findings import Cause, Severity
from oncelog.admin.explain.targets import explain_topic, explain_txn
from oncelog.admin.explain.whole_cluster import explain_cluster
from oncelog.admin.reassignments import Election, elect_leaders
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.admin.transactions.abort_marker import abort, find_one
from oncelog.admin.transactions.cluster_scan import Scope, scan
from oncelog.base.ids import TRANSACTION_STATE
from oncelog.client.blocking import Client
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.testing import Cluster
from tests.interop.admin.conftest import FAST
from tests.interop.admin.explain.test_explain import write
from tests.interop.admin.lab import ByHand, at
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.integration]
PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "1",
}
QUICK = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
COORDINATOR, LEADER, FOLLOWER = 1, 2, 3


@dataclass(frozen=True)
class Three:
    """Broker 1 coordinates and stays."""

    bootstrap_servers: str
    stop: Callable[[int], None]
    start: Callable[[int], None]


@contextmanager
def three_of_ours() -> Iterator[Three]:
    with Cluster(3, PROPERTIES) as cluster:
        first = cluster.brokers[COORDINATOR].bootstrap_servers
        yield Three(first, cluster.kill, cluster.restart)


@contextmanager
def three_of_apache_kafka(directory: Path) -> Iterator[Three]:
    brokers: dict[int, ApacheKafka] = {}
    with ApacheKafka(directory / "1", heap_mb=256, properties=PROPERTIES | QUICK) as first:
        brokers = {number: first.another(number) for number in (LEADER, FOLLOWER)}
        running: set[int] = set()

        def start(number: int) -> None:
            brokers[number].start()
            running.add(number)

        def stop(number: int) -> None:
            running.discard(number)
            brokers[number].kill()

        try:
            for number in brokers:
                start(number)
            yield Three(first.bootstrap_servers, stop, start)
        finally:
            for number in [*running]:
                brokers[number].stop()


@pytest.fixture(params=["oncelog", pytest.param("kafka", marks=pytest.mark.java)])
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Three]:
    with three_of_ours() if request.param == "oncelog" else three_of_apache_kafka(tmp_path) as brokers:
        yield brokers


def state(client: Client, topic: str) -> tuple[int, set[int]]:
    """The leader and the in-sync set."""
    info = client.metadata({at(topic).topic})[at(topic).topic].partitions[0]
    return info.leader, {*info.isr}


def prepare(client: Client) -> None:
    """Let the first broker coordinate everything."""
    wait_until(lambda: [client.refresh_brokers()] and len(client.view.brokers) == 3, "three brokers")
    compacted = {"cleanup.policy": "compact"}
    for name in (TRANSACTION_STATE, "__consumer_offsets"):
        create_topic(client, NewTopic(name, assignment={0: [COORDINATOR]}, configs=compacted))


def lose_marker(brokers: Three, client: Client, topic: str, *, commit: bool) -> None:
    """End a transaction while a follower that has its records is away, and let that one lead."""
    create_topic(client, NewTopic(topic, assignment={0: [LEADER, FOLLOWER]}))
    write(client, topic, 0, 2)
    producer = ByHand(client, f"x-{topic}")
    # A transaction before has its marker, so the partition knows the producer.
    producer.begin(at(topic))
    producer.end()
    producer.begin(at(topic))
    wait_until(lambda: state(client, topic)[1] == {LEADER, FOLLOWER}, "both in sync")
    brokers.stop(FOLLOWER)
    wait_until(lambda: state(client, topic) == (LEADER, {LEADER}), "the follower to leave")
    producer.end(commit=commit)
    assert not scan(client, Scope((topic,))).transactions
    brokers.stop(LEADER)
    wait_until(lambda: state(client, topic)[0] < 0, "the leader to go")
    brokers.start(FOLLOWER)

    def elected() -> bool:
        elect_leaders(client, Election.UNCLEAN, [at(topic)])
        return state(client, topic)[0] == FOLLOWER

    wait_until(elected, "an unclean election")
    brokers.start(LEADER)
    wait_until(lambda: state(client, topic)[1] == {LEADER, FOLLOWER}, "the former leader to follow")
    wait_until(lambda: bool(scan(client, Scope((topic,))).transactions), "the transaction to be open again")


def test_markers_lost_by_an_unclean_election_are_named(three: Three) -> None:
    with Client(three.bootstrap_servers, config=FAST) as client:
        prepare(client)
        lose_marker(three, client, "lost-commit", commit=True)
        commit_offsets(client, "waiting", {at("lost-commit"): Committed(4)})
        report = explain_topic(client, "lost-commit")
        [told] = report.findings
        assert (told.cause, told.severity) == (Cause.LOST_MARKER, Severity.STUCK)
        text = " ".join(told.sentences)
        assert "The coordinator has committed it" in text
        assert "unclean.leader.election.enable, KAFKA-20716" in text
        assert told.groups == ("waiting",)
        assert "hides its records here from committed readers" in told.advice
        assert [command.split()[1:3] for command in told.commands] == [["consume", "--partition"], ["txn", "abort"]]
        [line] = [row for row in explain_cluster(client).problems if row.cause is Cause.LOST_MARKER]
        assert (line.name, line.groups) == ("x-lost-commit", ("waiting",))
        assert Cause.LOST_MARKER in {finding.cause for finding in explain_txn(client, "x-lost-commit").findings}

        hang = find_one(client, at("lost-commit"), 4)
        assert abort(client, hang, min_age_ms=0).error is None
        assert explain_topic(client, "lost-commit").findings == []


def test_an_abort_marker_that_is_lost_can_be_written_again() -> None:
    with three_of_ours() as brokers, Client(brokers.bootstrap_servers, config=FAST) as client:
        prepare(client)
        lose_marker(brokers, client, "lost-abort", commit=False)
        [aborted] = explain_topic(client, "lost-abort").findings
        assert aborted.cause is Cause.LOST_MARKER
        assert aborted.advice == "An abort marker ends it, as its coordinator had decided:"


def test_a_late_batch_after_a_clean_election_is_no_lost_marker() -> None:
    config = PROPERTIES | {"transaction.partition.verification.enable": "false"}
    with Cluster(3, config) as cluster, Client(cluster.bootstrap_servers, config=FAST) as client:
        create_topic(client, NewTopic("late", assignment={0: [LEADER, FOLLOWER]}))
        producer = ByHand(client, "x-late")
        producer.begin(at("late"))
        producer.end()
        producer.write(at("late"))
        wait_until(lambda: state(client, "late")[1] == {LEADER, FOLLOWER}, "both in sync")
        cluster.elect("late", 0, FOLLOWER)
        wait_until(lambda: state(client, "late")[0] == FOLLOWER, "the election")
        [told] = explain_topic(client, "late").findings
        assert told.cause is Cause.HELD_BY_TRANSACTION
