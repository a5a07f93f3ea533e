"""``oncelog cluster`` and the moves of ``oncelog topic`` on three brokers of Apache Kafka."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cli.conftest import Run
from tests.peers.apache_kafka_cluster import ApacheKafkaCluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafkaCluster]:
    with ApacheKafkaCluster(tmp_path_factory.mktemp("kafka"), racks=True) as cluster:
        yield cluster


@pytest.fixture
def run(kafkas: ApacheKafkaCluster, run_at: Callable[[str], Run]) -> Run:
    return run_at(kafkas.addresses[1])


def status(run: Run) -> Any:
    return json.loads(run("cluster", "status", "--json").out)


def replicas(run: Run, topic: str) -> list[list[int]]:
    (result,) = json.loads(run("topic", "describe", topic, "--json").out)
    return [row["replicas"] for row in result["partitions"]]


def test_moves_elections_a_dead_broker_and_its_decommission(
    run: Run, kafkas: ApacheKafkaCluster, tmp_path: Path
) -> None:
    """Metadata are any broker's, who learns a moment later what has happened: they are waited for."""
    assert [row["rack"] for row in status(run)["brokers"]] == ["rack-1", "rack-2", "rack-3"]
    assert run("topic", "create", "t", "--replica-assignment", ",".join(["1"] * 6)).code == 0
    assert run("produce", "t", stdin=b"a\nb\nc\nd\n").code == 0

    grown = run("topic", "reassign", "-t", "t", "--brokers", "1,2,3", "-r", "2", "--wait")
    assert grown.code == 0, grown
    wait_until(lambda: Counter(broker for row in replicas(run, "t") for broker in row) == {1: 4, 2: 4, 3: 4}, "spread")
    assert {row[0] for row in replicas(run, "t")} == {1, 2, 3}
    assert run("topic", "elect", "t").code == 0
    wait_until(lambda: {row["leads"] for row in status(run)["brokers"]} == {2}, "leaders spread")
    wait_until(lambda: run("cluster", "status").code == 0, "healthy")

    kafkas.kill([3])
    unhealthy = "not healthy: broker 3 is fenced, 4 partitions under-replicated"
    wait_until(lambda: unhealthy in run("cluster", "status").out, "the dead broker fenced")
    assert run("cluster", "status").code == 1

    moves = json.loads(run("cluster", "decommission", "3", "--dry-run", "--json").out)
    (tmp_path / "moves.json").write_text(json.dumps(moves))
    assert len(moves["partitions"]) == 4
    gone = run("cluster", "decommission", "3")
    assert gone.out == "broker 3 has no replicas left (4 partitions moved); it can be stopped\n", gone
    wait_until(lambda: {tuple(sorted(row)) for row in replicas(run, "t")} == {(1, 2)}, "moved")
    wait_until(lambda: run("cluster", "decommission", "3").code == 0, "nothing left to move")
    assert sorted(run("consume", "t", "-e").out.split()) == ["a", "b", "c", "d"]

    stuck = tmp_path / "stuck.json"
    stuck.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 3]}]}))
    assert run("topic", "reassign", "--file", str(stuck), "--wait", "--timeout", "0").code == 1
    assert [row["adding"] for row in status(run)["reassignments"]] == [[3]]
    assert "t" in run("topic", "reassign", "--list").out
    assert run("topic", "reassign", "--cancel", "-t", "t").out == "t-0 stays where it was\n"
    assert status(run)["reassignments"] == []
