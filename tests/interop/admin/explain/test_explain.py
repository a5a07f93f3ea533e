"""Causes made for real, on oncelog and on Apache Kafka, and what ``oncelog explain`` says of them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from oncelog.admin.explain.findings import Cause, Report, Severity
from oncelog.admin.explain.targets import explain_group, explain_producer, explain_topic, explain_txn
from oncelog.admin.topics import NewTopic, create_topic, delete_records
from oncelog.client.blocking import Client
from oncelog.client.blocking.group import GroupConsumer
from oncelog.client.blocking.system import ThisMachine
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing import Broker, Cluster
from tests.interop.admin.conftest import FAST
from tests.interop.admin.lab import ByHand, at
from tests.interop.cli.conftest import Run
from tests.interop.cli.conftest import run_at as run_at
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
MINUTE_MS = 60_000


class Later(ThisMachine):
    """A machine whose wall clock is ahead: what was done now lies in its past."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


def write(client: Client, topic: str, partition: int, count: int, size: int = 10, moment_ms: int = 0) -> None:
    client.produce(at(topic, partition), build_batch([Record(i, moment_ms, None, bytes(size)) for i in range(count)]))


def cause(report: Report, cause: Cause) -> Severity | None:
    return next((finding.severity for finding in report.findings if finding.cause is cause), None)


def causes(report: Report) -> set[Cause]:
    return {finding.cause for finding in report.findings}


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic of this test with two partitions and 20 records in each."""
    name = f"t-{abs(hash(request.node.nodeid)) % 10**9}"
    create_topic(client, NewTopic(name, partitions=2))
    for partition in range(2):
        write(client, name, partition, 20)
    return name


def joined(client: Client, group: str, topic: str) -> GroupConsumer:
    consumer = GroupConsumer(client, group, [topic])
    wait_until(lambda: bool(consumer.poll(50)) or len(consumer.assignment) == 2, "the assignment")
    return consumer


def test_a_member_that_reads_and_does_not_commit(client: Client, servers: str, topic: str) -> None:
    group = f"g-{topic}"
    with joined(client, group, topic) as consumer, Client(servers, config=FAST, system=Later(2 * MINUTE_MS)) as later:
        consumer.processed(at(topic, 0), 5)
        consumer.processed(at(topic, 1), 20)
        consumer.commit()
        result = explain_group(later, group)
        assert cause(result, Cause.MEMBER_DOES_NOT_COMMIT) is Severity.STUCK
        [told] = [finding for finding in result.findings if finding.cause is Cause.MEMBER_DOES_NOT_COMMIT]
        assert "with 15 offsets to read" in told.sentences[0]
        assert told.since_ms is not None
        assert cause(explain_group(client, group), Cause.BUSY) is Severity.NOTE
    left = explain_group(client, group)
    assert cause(left, Cause.NO_MEMBERS) is Severity.STUCK
    assert left.is_stuck


def test_offsets_outside_the_log_and_a_partition_that_nobody_reads(client: Client, topic: str) -> None:
    group = f"g-{topic}"
    commit_offsets(client, group, {at(topic, 0): Committed(3), at(topic, 1): Committed(99)})
    delete_records(client, {at(topic, 0): 10})
    result = explain_group(client, group)
    assert {Cause.BEHIND_RETENTION, Cause.BEYOND_END, Cause.NO_MEMBERS} <= causes(result)
    [behind] = [finding for finding in result.findings if finding.cause is Cause.BEHIND_RETENTION]
    assert behind.evidence == {"position": 3, "log_start": 10, "removed": 7}


def test_a_group_that_stands_at_an_open_transaction(client: Client, topic: str) -> None:
    producer = ByHand(client, f"x-{topic}")
    producer.begin(at(topic, 0))
    commit_offsets(client, f"g-{topic}", {at(topic, 0): Committed(20)})
    group = explain_group(client, f"g-{topic}")
    assert Cause.HELD_BY_TRANSACTION in causes(group)
    assert group.transactions[0].transactional_id == producer.name
    assert explain_txn(client, producer.name).subject == explain_producer(client, producer.producer_id).subject
    assert cause(explain_topic(client, topic), Cause.HELD_BY_TRANSACTION) is not None
    producer.end()
    wait_until(lambda: not explain_topic(client, topic).findings, "the marker")
    assert cause(explain_group(client, f"g-{topic}"), Cause.HELD_BY_TRANSACTION) is None


def test_only_markers_between_position_and_end_are_no_lag(client: Client, topic: str) -> None:
    producer = ByHand(client, f"x-{topic}")
    producer.begin(at(topic, 0))
    producer.end()
    wait_until(lambda: not explain_topic(client, topic).findings, "the marker")
    commit_offsets(client, f"g-{topic}", {at(topic, 0): Committed(21)})
    assert cause(explain_group(client, f"g-{topic}"), Cause.ONLY_MARKERS_LEFT) is Severity.NOTE


def test_aborted_records_between_position_and_end_are_no_lag(client: Client, topic: str) -> None:
    commit_offsets(client, f"g-{topic}", {at(topic, 0): Committed(20)})
    producer = ByHand(client, f"x-{topic}")
    producer.begin(at(topic, 0))
    producer.end(commit=False)
    wait_until(lambda: not explain_topic(client, topic).findings, "the marker")
    group = explain_group(client, f"g-{topic}")
    assert cause(group, Cause.ONLY_MARKERS_LEFT) is Severity.NOTE


def test_who_is_not_known_is_refused_or_told(client: Client) -> None:
    with pytest.raises(BrokerRefused, match="no such group"):
        explain_group(client, "nobody")
    with pytest.raises(BrokerRefused):
        explain_topic(client, "nowhere")
    assert "knows producer id 987654321" in explain_producer(client, 987_654_321).summary


def test_a_group_that_rebalances_again_and_again_names_its_member(client: Client, servers: str, topic: str) -> None:
    group = f"g-{topic}"

    def consumer(client_id: str) -> Consumer:
        quick = {"heartbeat.interval.ms": 200, "session.timeout.ms": 6_000}
        opened = Consumer({"bootstrap.servers": servers, "group.id": group, "client.id": client_id} | quick)
        opened.subscribe([topic])
        return opened

    steady = consumer("steady")
    wait_until(lambda: [steady.poll(0.01)] and len(steady.assignment()) == 2, "its partitions")
    for _ in range(4):
        other = consumer("comes-and-goes")
        wait_until(lambda: [steady.poll(0.01), other.poll(0.01)] and other.assignment(), "its partition")  # noqa: B023
        other.close()
        wait_until(lambda: [steady.poll(0.01)] and len(steady.assignment()) == 2, "both partitions")
    result = explain_group(client, group)
    steady.close()
    [told] = [finding for finding in result.findings if finding.cause is Cause.REBALANCES_REPEATEDLY]
    assert (told.evidence["client_id"], told.evidence["joined_anew"]) == ("comes-and-goes", 4)


def test_a_permission_that_is_missing() -> None:
    with Broker(security="scram") as broker:
        broker.add_user("app")
        with Client(broker.link_servers, config=broker.security.link_config()) as client:
            create_topic(client, NewTopic("t"))
            commit_offsets(client, "g", {at("t"): Committed(0)})
            group = explain_group(client, "g", principal="User:app")
            [told] = [finding for finding in group.findings if finding.cause is Cause.NOT_PERMITTED]
            assert told.sentences[0] == "User:app may not Read group 'g' (DefaultDeny)."
            broker.allow("app", "read", topic="t", group="g")
            assert cause(explain_group(client, "g", principal="User:app"), Cause.NOT_PERMITTED) is None


def report_on(cluster: Cluster, topic: str) -> Report:
    with Client(cluster.bootstrap_servers, config=FAST) as client:
        return explain_topic(client, topic)


def test_replicas_that_are_missing() -> None:
    with Cluster(3) as cluster:
        with Client(cluster.bootstrap_servers, config=FAST) as client:
            create_topic(client, NewTopic("t", assignment={0: [1, 2]}, configs={"min.insync.replicas": "2"}))
            create_topic(client, NewTopic("alone", assignment={0: [2]}))
            write(client, "t", 0, 10)
        assert not report_on(cluster, "t").findings
        cluster.kill(2)
        wait_until(lambda: cause(report_on(cluster, "t"), Cause.UNDER_MIN_ISR) is Severity.STUCK, "the shrunken set")
        wait_until(lambda: cause(report_on(cluster, "alone"), Cause.NO_LEADER) is Severity.STUCK, "the lost leader")


def test_records_that_wait_for_a_replica_that_stands_still() -> None:
    with Cluster(3) as cluster:
        with Client(cluster.bootstrap_servers, config=FAST) as client:
            create_topic(client, NewTopic("t", assignment={0: [1, 2]}))
            write(client, "t", 0, 10)
            cluster.freeze(2, expires=False)
            client.produce(at("t"), build_batch([Record(0, 0, None, b"waits")]), acks=1)
        report = report_on(cluster, "t")
        cluster.thaw(2)
        assert cause(report, Cause.SLOW_FOLLOWER) is Severity.RISK
        [told] = [finding for finding in report.findings if finding.cause is Cause.SLOW_FOLLOWER]
        assert told.evidence["waiting"] == 1


def test_the_command_prints_and_exits(oncelog_broker: Broker, run_at: Callable[[str], Run]) -> None:
    run = run_at(oncelog_broker.bootstrap_servers)
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        create_topic(client, NewTopic("t"))
        write(client, "t", 0, 5)
        commit_offsets(client, "g", {at("t"): Committed(77)})
    told = run("explain", "group", "g")
    assert told.code == 0
    assert "t-0: beyond-end (stuck)" in told.out
    as_json = json.loads(run("explain", "group", "g", "--json").out)
    assert as_json["findings"][0]["cause"] in ("beyond-end", "no-members")
    assert run("explain", "group", "g", "--fail-on-stuck").code == 2
    assert run("explain", "partition", "t", "0", "--fail-on-stuck").code == 0
    assert run("explain", "topic", "absent").code == 1
