"""Everything that is wrong in a cluster, planted on oncelog and on Apache Kafka, in Python, on the command line and in
the console.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from oncelog.admin.explain.cluster_report import ClusterReport, Problem
from oncelog.admin.explain.findings import Cause, Severity
from oncelog.admin.explain.targets import explain_group, explain_topic
from oncelog.admin.explain.whole_cluster import explain_cluster
from oncelog.admin.topics import NewTopic, create_topic, delete_records
from oncelog.admin.transactions.abort_marker import abort
from oncelog.admin.transactions.cluster_scan import Scope, scan
from oncelog.client.blocking import Client, GroupConsumer
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing import Broker, Cluster
from tests.interop.admin.conftest import FAST
from tests.interop.admin.explain.test_explain import MINUTE_MS, Later, write
from tests.interop.admin.lab import WITHOUT_VERIFICATION, ByHand, at
from tests.interop.cli.conftest import Run
from tests.interop.cli.conftest import run_at as run_at
from tests.unit.console.visits import visiting
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROUTINE = 50


@pytest.fixture
def plants(client: Client) -> Iterator[list[GroupConsumer]]:
    """Fifty live transactions that a group waits for, two hangs, a member that never commits, a new group."""
    create_topic(client, NewTopic("w-routine", partitions=ROUTINE))
    for topic in ("w-orders", "w-fresh", "w-silent", "w-calm"):
        create_topic(client, NewTopic(topic))
    routine = [ByHand(client, f"w-routine-{number}", timeout_ms=900_000) for number in range(ROUTINE)]
    for number, producer in enumerate(routine):
        producer.begin(at("w-routine", number))
    commit_offsets(client, "w-routine-readers", {at("w-routine", number): Committed(0) for number in range(ROUTINE)})
    late = ByHand(client, "w-late")
    late.begin(at("w-orders"))
    late.end()
    late.write(at("w-orders"))
    commit_offsets(client, "w-billing", {at("w-orders"): Committed(2)})
    # Its transaction has ended before, elsewhere: nothing but the hang has ever been in this partition.
    unlisted = ByHand(client, "w-unlisted")
    unlisted.begin(at("w-calm"))
    unlisted.end()
    unlisted.write(at("w-fresh"))
    with ExitStack() as opened:
        consumers = [
            opened.enter_context(GroupConsumer(client, group, [topic]))
            for group, topic in (("w-newcomers", "w-fresh"), ("w-mute", "w-silent"))
        ]
        wait_until(lambda: all([*map(_assigned, consumers)]), "the assignments")
        write(client, "w-silent", 0, 3, moment_ms=int(time.time() * 1000))
        yield consumers
    # Apache Kafka is shared with other tests.
    for topic in ("w-orders", "w-fresh"):
        for hang in scan(client, Scope((topic,)), min_age_ms=0).transactions:
            assert abort(client, hang, min_age_ms=0).error is None
    for producer in routine:
        producer.end(commit=False, wait=False)


def _assigned(consumer: GroupConsumer) -> bool:
    consumer.poll(20)
    return bool(consumer.assignment)


def ours(report: ClusterReport) -> dict[str, Problem]:
    """The lines of this test by name, in their order."""
    return {problem.name: problem for problem in report.problems if problem.name.startswith("w-")}


HANGS = ["w-late", "w-unlisted"]


def test_the_worst_is_first_whatever_is_routine(
    client: Client, servers: str, plants: list[GroupConsumer], run_at: Callable[[str], Run]
) -> None:
    lines = ours(explain_cluster(client))
    assert {name: line.verdict for name, line in lines.items()} == dict.fromkeys(HANGS, "suspected"), "no routine"
    assert [lines[name].groups for name in HANGS] == [("w-billing",), ("w-newcomers",)]
    # One verdict: in the list, in explain, and in find-hanging.
    [row] = explain_topic(client, "w-orders").transactions
    [listed] = scan(client, Scope(("w-orders",))).transactions
    assert row.verdict == listed.verdict.value == "suspected"

    with Client(servers, config=FAST, system=Later(10 * MINUTE_MS)) as later:
        for consumer in plants:
            consumer.poll(20)
        report = explain_cluster(later)
        told = explain_group(later, "w-mute")
    lines = ours(report)
    assert [*lines][:3] == [*HANGS, "w-mute"]
    assert {report.problems.index(lines[name]) for name in HANGS} <= set(range(report.counts["hanging"]))
    assert [(lines[name].verdict, lines[name].groups) for name in HANGS] == [
        ("hanging", ("w-billing",)),
        ("hanging", ("w-newcomers",)),
    ]
    mute = lines["w-mute"]
    assert (mute.cause, mute.severity) == (Cause.NOTHING_COMMITTED, Severity.STUCK)
    assert [finding.severity for finding in told.findings if finding.cause is mute.cause] == [Severity.STUCK]
    assert "an unknown number of offsets" in told.summary
    routine = [line for name, line in lines.items() if name.startswith("w-routine-")]
    assert {(line.severity, line.groups) for line in routine} == {(Severity.NOTE, ("w-routine-readers",))}
    assert len(routine) == ROUTINE
    assert report.counts["groups_stuck"] >= 3
    assert report.counts["groups_waiting"] < ROUTINE, "groups, not rows"

    run = run_at(servers)
    shown = run("explain", "cluster", "--fail-on-stuck")
    assert shown.code == 2
    assert any(line.split()[:4] == ["stuck", "suspected", "transaction", "w-late"] for line in shown.out.splitlines())
    document = json.loads(run("explain", "cluster", "--json", "--ignore", "held-by-transaction").out)
    assert "held-by-transaction" not in {problem["cause"] for problem in document["problems"]}
    with visiting(servers) as visitor:
        body, page = visitor.get("/overview.json").json(), visitor.get("/overview").text
        way_out = visitor.get("/transactions/one.json?topic=w-orders&partition=0&start_offset=2").json()
    rows = {line["name"]: line for line in body["problems"]["rows"]}
    assert [(rows[name]["verdict"], rows[name]["text"][:30]) for name in HANGS] == [
        ("suspected", lines[name].text[:30]) for name in HANGS
    ], "the same words"
    assert "w-newcomers" in page
    assert (way_out["transaction"]["verdict"], way_out["dry_run"]["would_abort"]) == ("suspected", True)


def test_a_healthy_job_turns_nothing_red(client: Client) -> None:
    create_topic(client, NewTopic("w-copied", partitions=6))
    job = ByHand(client, "w-job")
    for _ in range(3):
        job.begin(*(at("w-copied", partition) for partition in range(6)))
        commit_offsets(client, "w-readers", {at("w-copied", partition): Committed(0) for partition in range(6)})
        report = explain_cluster(client)
        assert report.counts["live"] >= 1
        assert {line.cause for line in ours(report).values()} <= {Cause.NO_MEMBERS}, "a group of no consumer here"
        job.end()


def test_offsets_outside_the_log_and_a_lost_broker() -> None:
    with Cluster(3) as cluster:
        with Client(cluster.bootstrap_servers, config=FAST) as client:
            create_topic(client, NewTopic("t", partitions=2, assignment={0: [1, 2], 1: [1, 3]}))
            create_topic(client, NewTopic("alone", assignment={0: [2], 1: [2]}))
            for partition in range(2):
                write(client, "t", partition, 20)
            commit_offsets(client, "behind", {at("t", 0): Committed(3)})
            commit_offsets(client, "beyond", {at("t", 0): Committed(99)})
            commit_offsets(client, "done", {at("t", 1): Committed(20), at("alone", 0): Committed(0)})
            delete_records(client, {at("t", 0): 10})
            causes = {problem.name: problem.cause for problem in explain_cluster(client).problems}
            assert causes == {"behind": Cause.BEHIND_RETENTION, "beyond": Cause.BEYOND_END}
        cluster.kill(2)

        def lost() -> Problem | None:
            with Client(cluster.bootstrap_servers, config=FAST) as after:
                lines = explain_cluster(after).problems
            return next((line for line in lines if line.cause is Cause.NO_LEADER and len(line.partitions) == 2), None)

        wait_until(lambda: lost() is not None, "the lost leaders, in one line")
        line = lost()
        assert line is not None
        assert {str(partition) for partition in line.partitions} == {"alone-0", "alone-1"}
        assert "done" in line.groups


def test_a_cluster_that_shows_little_says_what_is_not_known() -> None:
    with Broker({**WITHOUT_VERIFICATION}, security="scram") as broker:
        broker.add_user("app")
        with Client(broker.link_servers, config=broker.security.link_config()) as client:
            create_topic(client, NewTopic("secret"))
            commit_offsets(client, "g", {at("secret"): Committed(0)})
        broker.allow("app", "describe", topic="secret", group="g")
        with Client(broker.bootstrap_servers, config=broker.client_config("app")) as client:
            report = explain_cluster(client)
    assert report.unknown
    assert report.summary.endswith("as far as could be seen.")


def test_a_follower_that_keeps_records_from_consumers_is_on_the_list() -> None:
    patient = {"replica.lag.time.max.ms": "600000", "min.insync.replicas": "1"}
    with Cluster(3, patient) as cluster, Client(cluster.bootstrap_servers, config=FAST) as client:
        create_topic(client, NewTopic("slow", assignment={0: [1, 2]}))
        write(client, "slow", 0, 1)
        assert Cause.SLOW_FOLLOWER not in {problem.cause for problem in explain_cluster(client).problems}
        cluster.isolate(2, from_=1)
        records = [Record(index, int(time.time() * 1000), None, b"v") for index in range(5)]
        client.produce(at("slow"), build_batch(records), acks=1)
        [line] = [row for row in explain_cluster(client).problems if row.cause is Cause.SLOW_FOLLOWER]
        assert (line.kind, line.name, line.severity) == ("partitions", "slow-0", Severity.RISK)
        assert "has 5 records that no consumer may read yet" in line.text
        cluster.heal()


def test_members_that_may_not_read_are_on_the_list_with_their_principal() -> None:
    with Broker(security="scram") as broker:
        broker.add_user("app")
        with Client(broker.link_servers, config=broker.security.link_config()) as client:
            create_topic(client, NewTopic("secret"))
            write(client, "secret", 0, 3)
            commit_offsets(client, "readers", {at("secret"): Committed(0)})
            with GroupConsumer(client, "readers", ["secret"]) as member:
                wait_until(lambda: _assigned(member), "the assignment")
                [line] = explain_cluster(client, principal="User:app").problems
                assert (line.name, line.cause, line.severity) == ("readers", Cause.NOT_PERMITTED, Severity.STUCK)
                assert Cause.NOT_PERMITTED not in {row.cause for row in explain_cluster(client).problems}
