"""The broker is killed (``kill -9``) under a running query, and started again: each row once, and the query goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.spark.sink.fault_points import HOLD
from tests.peers.oncelog_serve import OncelogServe
from tests.spark.sink.queries import TWO_PHASE, Copy, committed_values, make_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

POLL_S = 0.02
POINTS = {
    "2pc": ("task-begun", "after-flush", "before-decision", "after-decision"),
    "ledger": ("ledger-before-commit", "ledger-after-commit"),
}


def kill_at(copy: Copy, points: Iterable[str], kill_and_start: Callable[[], None]) -> None:
    """Run a query to its end, without a failure; the broker is killed while a process waits at each point. Before Spark
    4.2 a run is one batch, so that more of them follow."""
    waiting = set(points)
    copy.order(*waiting, what=HOLD)
    query = copy.start()
    while waiting:
        held = {name for name in waiting if copy.was_held(name)}
        if held:
            kill_and_start()
        for name in held:
            (copy.points / f"{name}.go").touch()
        waiting -= held
        assert query.isActive or not waiting, query.exception()
        time.sleep(POLL_S)
    assert copy.end(query) is None
    if not copy.is_at_the_end:
        copy.run_to_the_end()
    assert not copy.failures


@pytest.mark.parametrize("mode", ["2pc", "ledger"])
def test_a_broker_killed_under_source_and_sink(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    with OncelogServe(tmp_path / "broker", properties=TWO_PHASE) as broker:

        def kill_and_start() -> None:
            broker.kill()
            broker.start()

        values = make_input(broker.bootstrap_servers, "in", 80)
        copy = Copy(spark, broker.bootstrap_servers, "in", "out", tmp_path)
        copy.options["exactlyOnce"] = mode
        kill_at(copy, POINTS[mode], kill_and_start)
        assert committed_values(broker.bootstrap_servers, "out") == values
