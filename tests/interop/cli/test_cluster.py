"""``oncelog cluster`` against a broker of ours that is alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing import Cluster
from tests.interop.cli.conftest import Run
from tests.waiting import wait_until


def test_a_healthy_cluster(run: Run) -> None:
    run("topic", "create", "t", "-p", "3")
    ran = run("cluster", "status", "--json")
    decoded = json.loads(ran.out)
    assert (ran.code, decoded["healthy"], decoded["topics"], decoded["partitions"]) == (0, True, 1, 3)
    (broker,) = decoded["brokers"]
    assert (broker["state"], broker["is_controller"], broker["leads"], broker["replicas"]) == ("up", True, 3, 3)
    (directory,) = broker["directories"]
    assert directory["usable_bytes"] > 0
    assert len(decoded["at_min_isr"]) == 3
    shown = run("cluster", "status")
    assert (shown.code, shown.out.splitlines()[1]) == (0, "healthy")


def test_no_broker_is_not_healthy(run: Run) -> None:
    ran = run("cluster", "status", "-b", "127.0.0.1:1", "-X", "bootstrap.timeout.ms=0")
    assert (ran.code, ran.out) == (1, "")
    assert "no broker at 127.0.0.1:1" in ran.err


def test_a_plan_that_changes_nothing_is_carried_out(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "t", "-p", "2")
    assert run("topic", "reassign", "-t", "t", "--brokers", "1", "--wait").out == "nothing has to move\n"
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[1]}]}')
    assert run("topic", "reassign", "--file", str(plan), "--wait").out == "t-1 moved\n"
    assert run("topic", "reassign", "--file", str(plan), "--dry-run").out.split() == [
        *("TOPIC", "PARTITION", "MOVES", "TO"),
        *("t", "1", "1"),
    ]
    assert json.loads(run("topic", "reassign", "--file", str(plan), "--dry-run", "--json").out) == json.loads(
        plan.read_text()
    )
    assert run("topic", "reassign", "--list").out == "no reassignment is under way\n"
    assert run("topic", "reassign", "--list", "--json").out == "[]\n"
    assert run("topic", "reassign", "--cancel").out == "no reassignment is under way\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-t", "t", "--brokers", "1,2"], "broker 2 is not in the cluster, or is fenced; the brokers are 1"),
        (
            ["-t", "t", "--brokers", "1", "-r", "2"],
            "replication factor 2 is larger than the number of available brokers (1)",
        ),
        (["-t", "t:7", "--brokers", "1"], "partition 7 of topic 't' (1 partitions)"),
        (["-t", "missing", "--brokers", "1"], "missing"),
        (["--file", "/nowhere.json"], "/nowhere.json: no such file or directory"),
    ],
)
def test_a_move_that_cannot_be_is_refused_in_one_line(run: Run, arguments: list[str], says: str) -> None:
    run("topic", "create", "t", "-p", "1")
    ran = run("topic", "reassign", *arguments)
    assert (ran.code, ran.err.count("\n")) == (1, 1), ran
    assert says in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["reassign"],
        ["reassign", "-t", "t"],
        ["reassign", "--list", "--cancel"],
        ["reassign", "--file", "f", "-t", "t"],
        ["reassign", "--cancel", "--brokers", "1"],
        ["reassign", "--cancel", "-r", "1"],
        ["reassign", "-t", "t", "--brokers", "one"],
        ["reassign", "--list", "--unthrottle", "-t", "t"],
        ["reassign", "--throttle", "1", "--cancel"],
        ["reassign", "--throttle", "1", "-t", "t"],
        ["reassign", "--throttle", "0", "--file", "f"],
        ["elect", "--unclean"],
        ["elect", "t", "--all"],
    ],
)
def test_options_that_do_not_go_together(run: Run, arguments: list[str]) -> None:
    ran = run("topic", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran


@pytest.mark.slow
def test_a_move_that_is_throttled_and_let_go(run_at: Callable[[str], Run]) -> None:
    small = {"replica.fetch.max.bytes": "2000", "replica.fetch.response.max.bytes": "2000"}
    with Cluster(2, small) as cluster:
        run = run_at(cluster.bootstrap_servers)
        run("topic", "create", "t", "--replica-assignment", "1", "-c", "min.insync.replicas=1")
        with Client(cluster.bootstrap_servers) as client:
            for _ in range(60):
                batch = build_batch([Record(-1, 1_700_000_000_000, None, b"x" * 1000)])
                client.produce(TopicPartition(TopicName("t"), 0), batch)
        move = ("topic", "reassign", "-t", "t", "--brokers", "1,2", "-r", "2", "--throttle")
        ran = run(*move, "100")
        assert (ran.code, "oncelog topic reassign --unthrottle" in ran.err) == (0, True), ran
        servers = [broker._server for broker in cluster.brokers.values()]
        throttle = [server.node.cluster.leader_throttle for server in servers if server is not None]
        wait_until(lambda: throttle[0].quota.total_bytes > 1000, "the first bytes")
        assert "t" in run("topic", "reassign", "--list").out, "60 kB take long at 100 bytes a second"
        assert (
            run("topic", "reassign", "--throttle", "200").out
            == "1 partition being moved, at 200 bytes a second at most\n"
        )
        assert [item.limit for item in throttle] == [200, 200]
        assert run("topic", "reassign", "--unthrottle").out == "throttles removed from 1 topic and 2 brokers\n"
        wait_until(lambda: run("topic", "reassign", "--list").out.startswith("no reassignment"), "the end of the move")
        assert run("topic", "reassign", "--unthrottle").out == "nothing is throttled\n"
        assert run("topic", "reassign", "--throttle", "5").out == "nothing is being moved\n"
        assert (
            run("topic", "reassign", "-t", "t", "--brokers", "2", "-r", "1", "--throttle", "9000000", "--wait").code
            == 0
        )
        assert [item.limit for item in throttle] == [None, None], "taken away when it is done"
        (row,) = json.loads(run("topic", "describe", "t", "--json").out)
        assert "throttled" not in str(row)


def test_a_broker_refuses_a_move_to_one_that_is_not_there(run: Run, tmp_path: Path) -> None:
    run("topic", "create", "t", "-p", "1")
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,9]}]}')
    ran = run("topic", "reassign", "--file", str(plan))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("oncelog: t-0: "), ran


def test_no_election_is_needed_where_all_lead_that_should(run: Run) -> None:
    run("topic", "create", "t", "-p", "2")
    assert run("topic", "elect").out == "no election was needed\n"
    assert run("topic", "elect", "t:0").out == "no election was needed\n"
    assert run("topic", "elect", "t:0", "--unclean").out == "no election was needed\n"
    assert run("topic", "elect", "t:2").code == 1


def test_the_only_broker_cannot_be_taken_out(run: Run) -> None:
    assert (
        run("cluster", "decommission", "1").out
        == "broker 1 has no replicas left (0 partitions moved); it can be stopped\n"
    )
    run("topic", "create", "t", "-p", "1")
    ran = run("cluster", "decommission", "1")
    assert (ran.code, ran.err.count("\n")) == (1, 1), ran
    assert "t-0 has 1 replica, and without broker 1 no other broker could take its replica" in ran.err
    for options in ((), ("--dry-run",)):
        ran = run("cluster", "decommission", "7", *options)
        assert (ran.code, ran.err) == (1, "oncelog: there is no broker 7 in this cluster; its brokers are 1\n")


@pytest.mark.slow
def test_brokers_that_are_gone_and_brokers_that_do_not_answer(run_at: Callable[[str], Run]) -> None:
    with Cluster(3) as cluster:
        run = run_at(cluster.bootstrap_servers)
        run("topic", "create", "t", "--replica-assignment", "1:2:3")
        assert json.loads(run("cluster", "status", "--json").out)["healthy"]
        cluster.kill(2)
        cluster.freeze(3, expires=False)
        quick = ("-X", "request.timeout.ms=500", "-X", "socket.connection.setup.timeout.ms=500")
        ran = run("cluster", "status", "--json", *quick)
        decoded = json.loads(ran.out)
        assert (ran.code, decoded["healthy"]) == (1, False)
        assert [(row["broker_id"], row["state"]) for row in decoded["brokers"]] == [
            (1, "up"),
            (2, "fenced"),
            (3, "unreachable"),
        ]
        assert decoded["problems"][:2] == ["broker 2 is fenced", "broker 3 is unreachable"]
        assert "accepts connections but does not answer" in decoded["brokers"][2]["error"]
        assert "accepts connections but does not answer" in run("cluster", "status", *quick).out


@pytest.mark.slow
def test_a_broker_is_emptied_and_its_leaders_are_spread(run_at: Callable[[str], Run]) -> None:
    with Cluster(4) as cluster:
        run = run_at(cluster.bootstrap_servers)
        assert run("topic", "create", "t", "-p", "8").code == 0
        assert run("produce", "t", stdin=b"a\nb\nc\n").code == 0
        ran = run("cluster", "decommission", "4", "--at-once", "2")
        assert ran.code == 0, ran
        (result,) = json.loads(run("topic", "describe", "t", "--json").out)
        assert {broker for row in result["partitions"] for broker in row["replicas"]} == {1, 2, 3}
        assert all(sorted(row["isr"]) == [1, 2, 3] for row in result["partitions"])
        assert max(Counter(row["replicas"][0] for row in result["partitions"]).values()) == 3
        ran = run("cluster", "unregister", "4")
        assert (ran.code, ran.err.count("\n")) == (1, 1), "it is running"
        assert "broker 4: Broker ID 4 is running: stop it first (INVALID_REQUEST)" in ran.err
        cluster.kill(4)
        assert run("cluster", "status").code == 0
        assert len(json.loads(run("cluster", "status", "--json").out)["brokers"]) == 4
        assert run("cluster", "unregister", "4").out == "broker 4 is unregistered\n"
        wait_until(lambda: len(json.loads(run("cluster", "status", "--json").out)["brokers"]) == 3, "is forgotten")
        assert sorted(run("consume", "t", "-e").out.split()) == ["a", "b", "c"]


@pytest.mark.slow
def test_a_topic_is_spread_its_leaders_chosen_and_a_move_taken_back(
    run_at: Callable[[str], Run], tmp_path: Path
) -> None:
    with Cluster(3) as cluster:
        run = run_at(cluster.bootstrap_servers)
        assert run("topic", "create", "t", "--replica-assignment", "1,1,1", "-c", "min.insync.replicas=1").code == 0
        assert run("produce", "t", stdin=b"a\nb\nc\n").code == 0
        assert run("topic", "reassign", "-t", "t", "--brokers", "1,2,3", "-r", "2", "--wait").code == 0
        assert run("topic", "elect").code == 0
        (result,) = json.loads(run("topic", "describe", "t", "--json").out)
        assert Counter(row["leader"] for row in result["partitions"]) == {1: 1, 2: 1, 3: 1}
        cluster.freeze(3, expires=False)
        plan = tmp_path / "plan.json"
        plan.write_text('{"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}')
        quick = ("-b", cluster.brokers[1].bootstrap_servers)
        assert run("topic", "reassign", "--file", str(plan), "--wait", "--timeout", "0", *quick).code == 1
        assert run("topic", "reassign", "--cancel", *quick).out == "t-0 stays where it was\n"
        assert run("topic", "reassign", "--list", *quick).out == "no reassignment is under way\n"
