"""Processes of a streaming query are killed at every named point; each row is in the topic once all the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.fault_points import NAMES
from oncelog.testing import Broker
from tests.spark.sink.queries import Copy, committed_values, make_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def copy(spark: SparkSession, broker: Broker, name: str, directory: Path, rows: int = 100) -> tuple[Copy, list[bytes]]:
    values = make_input(broker.bootstrap_servers, f"{name}-in", rows)
    return Copy(spark, broker.bootstrap_servers, f"{name}-in", f"{name}-out", directory), values


def test_a_kill_at_every_point_of_two_phase_commit(spark: SparkSession, sink_broker: Broker, tmp_path: Path) -> None:
    query, values = copy(spark, sink_broker, "points", tmp_path)
    points = [name for name in NAMES if not name.startswith("ledger")]
    query.order(*points)
    query.run_to_the_end()
    assert query.ordered == []
    assert len(query.failures) >= len(points) // 2
    assert committed_values(sink_broker.bootstrap_servers, query.sink) == values


def test_a_kill_at_every_point_of_the_ledger(spark: SparkSession, sink_broker: Broker, tmp_path: Path) -> None:
    query, values = copy(spark, sink_broker, "ledger", tmp_path)
    query.options["exactlyOnce"] = "ledger"
    query.order("ledger-before-commit", "ledger-after-commit")
    query.run_to_the_end()
    assert query.ordered == []
    assert committed_values(sink_broker.bootstrap_servers, query.sink) == values


def test_foreach_batch_writes_two_topics_at_once_and_not_again(
    spark: SparkSession, sink_broker: Broker, tmp_path: Path
) -> None:
    import oncelog.spark

    values = make_input(sink_broker.bootstrap_servers, "each-in", 60)
    options = {"kafka.bootstrap.servers": sink_broker.bootstrap_servers}
    seen: list[bool] = []

    def write(batch, epoch):  # type: ignore[no-untyped-def]  # PySpark's callback
        with oncelog.spark.transaction(batch, epoch, options) as transaction:
            seen.append(transaction.is_done)
            transaction.write(batch.select("value"), topic="each-one")
            transaction.write(batch.select("value"), topic="each-two")
        if len(seen) == 1:
            with pytest.raises(SinkError, match="was already decided by a transaction"):
                oncelog.spark.transaction(batch, epoch, options).__enter__()
            raise RuntimeError("after the commit, before Spark's")

    def run() -> None:
        rows = spark.readStream.format("oncelog").options(**options, subscribe="each-in", startingOffsets="earliest")
        query = rows.load().writeStream.foreachBatch(write).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    with pytest.raises(Exception, match="after the commit"):
        run()
    run()
    assert seen[:2] == [False, True]
    for topic in ("each-one", "each-two"):
        assert committed_values(sink_broker.bootstrap_servers, topic) == values
