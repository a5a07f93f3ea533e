"""``oncelog cluster`` and the moves of ``oncelog topic`` on three brokers of Apache Kafka."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cli.conftest import Run
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ApacheKafka]]:
    """Three brokers, in racks a, b and c; the first is the controller, too."""
    directory = tmp_path_factory.mktemp("kafka") / "one"
    quick = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}
    with ExitStack() as stack:
        first = stack.enter_context(ApacheKafka(directory, heap_mb=256, properties={**quick, "broker.rack": "a"}))
        others = [first.another(node_id, {"broker.rack": rack}) for node_id, rack in ((2, "b"), (3, "c"))]
        yield [first, *(stack.enter_context(other) for other in others)]


@pytest.fixture
def run(kafkas: list[ApacheKafka], run_at: Callable[[str], Run]) -> Run:
    return run_at(kafkas[0].bootstrap_servers)


def status(run: Run) -> Any:
    return json.loads(run("cluster", "status", "--json").out)


def replicas(run: Run, topic: str) -> list[list[int]]:
    (found,) = json.loads(run("topic", "describe", topic, "--json").out)
    return [row["replicas"] for row in found["partitions"]]


def test_moves_elections_a_dead_broker_and_its_decommission(
    run: Run, kafkas: list[ApacheKafka], tmp_path: Path
) -> None:
    wait_until(lambda: len(status(run)["brokers"]) == 3, "three brokers")
    assert [row["rack"] for row in status(run)["brokers"]] == ["a", "b", "c"]
    assert run("topic", "create", "t", "--replica-assignment", ",".join(["1"] * 6)).code == 0
    assert run("produce", "t", stdin=b"a\nb\nc\nd\n").code == 0

    grown = run("topic", "reassign", "-t", "t", "--brokers", "1,2,3", "-r", "2", "--wait")
    assert (grown.code, grown.err) == (0, "")
    assert Counter(broker for row in replicas(run, "t") for broker in row) == {1: 4, 2: 4, 3: 4}
    assert {row[0] for row in replicas(run, "t")} == {1, 2, 3}
    assert run("topic", "elect", "t").code == 0
    wait_until(lambda: {row["leads"] for row in status(run)["brokers"]} == {2}, "leaders spread")
    assert run("cluster", "status").code == 0

    kafkas[2].kill()
    wait_until(lambda: status(run)["brokers"][2]["state"] == "fenced", "the dead broker fenced")
    ran = run("cluster", "status")
    assert ran.code == 1
    assert "not healthy: broker 3 is fenced, 4 partitions under-replicated" in ran.out

    moves = json.loads(run("cluster", "decommission", "3", "--dry-run", "--json").out)
    (tmp_path / "moves.json").write_text(json.dumps(moves))
    assert len(moves["partitions"]) == 4
    assert run("cluster", "decommission", "3", "--timeout", "60").out == (
        "broker 3 has no replicas any more (4 partitions moved); it can be stopped\n"
    )
    assert {tuple(sorted(row)) for row in replicas(run, "t")} == {(1, 2)}
    assert run("cluster", "decommission", "3").code == 0
    assert sorted(run("consume", "t", "-e").out.split()) == ["a", "b", "c", "d"]

    stuck = tmp_path / "stuck.json"
    stuck.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 3]}]}))
    assert run("topic", "reassign", "--file", str(stuck), "--wait", "--timeout", "0").code == 1
    assert [row["adding"] for row in status(run)["reassignments"]] == [[3]]
    assert "t" in run("topic", "reassign", "--list").out
    assert run("topic", "reassign", "--cancel", "-t", "t").out == "t-0 stays where it was\n"
    assert status(run)["reassignments"] == []
