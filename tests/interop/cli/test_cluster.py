"""``oncelog cluster`` against a broker of ours that is alone."""

from __future__ import annotations

import json

from tests.interop.cli.conftest import Run


def test_a_healthy_cluster(run: Run) -> None:
    run("topic", "create", "t", "-p", "3")
    ran = run("cluster", "status", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["healthy"], found["topics"], found["partitions"]) == (0, True, 1, 3)
    (broker,) = found["brokers"]
    assert (broker["state"], broker["is_controller"], broker["leads"], broker["replicas"]) == ("up", True, 3, 3)
    (directory,) = broker["directories"]
    assert directory["usable_bytes"] > 0
    assert len(found["at_min_isr"]) == 3
    shown = run("cluster", "status")
    assert (shown.code, shown.out.splitlines()[1]) == (0, "healthy")


def test_no_broker_is_not_healthy(run: Run) -> None:
    ran = run("cluster", "status", "-b", "127.0.0.1:1", "-X", "bootstrap.timeout.ms=0")
    assert (ran.code, ran.out) == (1, "")
    assert "no broker at 127.0.0.1:1" in ran.err
