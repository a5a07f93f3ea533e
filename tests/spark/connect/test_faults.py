"""Through a server of Spark Connect: its Python processes are killed, and a stream's own process twice; each row is
there once all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from oncelog.testing import Broker
from tests.spark.conftest import Topic
from tests.spark.connect.test_jobs import values_in
from tests.spark.sink.queries import Copy, add_input, committed_values, make_input
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

POINTS: Final = ("after-flush", "after-decision", "after-commit")
"""In a task, in the process that commits, and when it has: every point is in ``tests/spark/sink/test_faults.py``."""


@pytest.mark.long
def test_a_kill_in_a_task_and_two_in_the_commit(connect: SparkSession, sink_broker: Broker, tmp_path: Path) -> None:
    servers = sink_broker.bootstrap_servers
    values = make_input(servers, "connect-in", 100)
    query = Copy(connect, servers, "connect-in", "connect-out", tmp_path)
    query.order(*POINTS)
    query.run_to_the_end()
    assert query.ordered == []
    assert committed_values(servers, "connect-out") == values
    values = sorted([*values, *add_input(servers, "connect-in", 20, 100)])
    assert query.run() is None
    assert committed_values(servers, "connect-out") == values


def test_a_batch_writes_two_topics_at_once_and_not_again_under_its_querys_id(
    connect: SparkSession, sink_broker: Broker, tmp_path: Path
) -> None:
    servers = sink_broker.bootstrap_servers
    values = make_input(servers, "connect-each-in", 60)
    options = {"kafka.bootstrap.servers": servers}
    died = str(tmp_path / "died")
    seen = str(tmp_path / "seen")

    def write(batch, epoch):  # type: ignore[no-untyped-def]  # PySpark's callback, which runs on the server
        import pathlib

        import oncelog.spark

        with oncelog.spark.transaction(batch, epoch, options) as transaction:
            with pathlib.Path(seen).open("a") as file:
                file.write(f"{transaction.attempt.query} {transaction.is_done}\n")
            transaction.write(batch.select("value"), topic="connect-each-one")
            transaction.write(batch.select("value"), topic="connect-each-two")
        if not pathlib.Path(died).exists():
            pathlib.Path(died).touch()
            raise RuntimeError("after the commit, before Spark's")

    def run() -> str:
        source = connect.readStream.format("oncelog").options(**options, subscribe="connect-each-in")
        rows = source.option("startingOffsets", "earliest").load()
        query = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        running.awaitTermination()
        return str(running.id)

    with pytest.raises(Exception, match="after the commit"):
        run()
    query_id = run()
    assert Path(seen).read_text().split("\n") == [f"{query_id} False", f"{query_id} True", ""]
    for topic in ("connect-each-one", "connect-each-two"):
        assert committed_values(servers, topic) == values


@pytest.mark.long
def test_a_stream_that_is_killed_twice_has_each_row_once(
    server: str, topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    topic = topic_with(30)
    table = tmp_path / "table"
    command = [sys.executable, "-m", "oncelog", "stream", topic.name, "--to", str(table), "--remote", server]
    command += ["--bootstrap-servers", topic.bootstrap_servers, "--trigger", "100 milliseconds"]

    def rows() -> int:
        return len(values_in(table)) if [*table.glob("rows-*")] else 0

    for expected in (30, 60, 90):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            wait_until(
                lambda least=expected, process=process: rows() >= least or process.poll() is not None,  # type: ignore[misc]
                lambda: f"{rows()} rows are there",
                poll_s=0.1,
            )
            assert process.poll() is None, process.communicate()[1][-2000:]
            topic.produce(30 if expected < 90 else 0)
            if expected < 90:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.terminate()  # the batch under way is finished
            process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert values_in(table) == topic.values()
