"""The broker is killed (``kill -9``) under a running query, and started again: each row once, and the query goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.peers.oncelog_serve import OncelogServe
from tests.spark.sink.queries import TWO_PHASE, Copy, committed_values, make_input

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

POLL_S = 0.02


def kill_at_epochs(query: StreamingQuery, epochs: tuple[int, ...], kill_and_start: Callable[[], None]) -> int:
    """Kill the broker as soon as each of these epochs is over, while the next one runs; how often."""
    killed = 0
    for epoch in epochs:
        while query.isActive and (query.lastProgress or {"batchId": -1})["batchId"] < epoch:
            time.sleep(POLL_S)
        if query.isActive:
            kill_and_start()
            killed += 1
    return killed


@pytest.mark.parametrize("mode", ["2pc", "ledger"])
def test_a_broker_killed_under_source_and_sink(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    with OncelogServe(tmp_path / "broker", properties=TWO_PHASE) as broker:

        def kill_and_start() -> None:
            broker.kill()
            broker.start()

        values = make_input(broker.bootstrap_servers, "in", 120)
        copy = Copy(spark, broker.bootstrap_servers, "in", "out", tmp_path)
        copy.options["exactlyOnce"] = mode
        copy.rows_per_epoch = 30
        query = copy.start()
        assert kill_at_epochs(query, (0, 2), kill_and_start) == 2
        query.awaitTermination()
        assert committed_values(broker.bootstrap_servers, "out") == values
