"""On a standalone cluster: a master and two workers, processes of their own on this machine, one of which loses its
executors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from oncelog.testing import Broker
from tests.spark.cluster.driver import ROWS
from tests.spark.jvms import class_path, java_options, spark_home
from tests.spark.sink.queries import committed_values, make_input
from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


def java(stack: ExitStack, log: Path, main: str, *arguments: str) -> None:
    """One of Spark's own processes, ended with the test."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment |= {"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13"}  # workers start executors with them
    output = stack.enter_context(log.open("wb"))
    modules = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "-Dspark.master.rest.enabled=false"]
    command = ["java", *modules, *java_options(), "-Xmx256m", "-cp", class_path(), main, *arguments]
    process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def end() -> None:
        process.terminate()
        process.wait(HANG_S)

    stack.callback(end)


def said(log: Path, pattern: str) -> str:
    """The first group of ``pattern`` in a log, as soon as it is there."""

    def text() -> str:
        return log.read_text(errors="replace")

    wait_until(lambda: re.search(pattern, text()), lambda: f"{pattern} in {log.name}: {text()[-2000:]}", poll_s=0.1)
    return re.findall(pattern, text())[0]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[Path]]]:
    """The master's address, and the directories in which the workers keep their executors."""
    own = ("--port", "0", "--webui-port", "0", "--host")
    with ExitStack() as stack:
        java(stack, tmp_path / "master.log", "org.apache.spark.deploy.master.Master", *own, "127.0.0.1")
        master = said(tmp_path / "master.log", r"Starting Spark master at (spark://\S+)")
        places = [tmp_path / "worker-0", tmp_path / "worker-1"]
        for number, place in enumerate(places, 1):  # speculation never takes the host that has the first attempt
            options = (*own, f"127.0.0.{number}", "--cores", "1", "--memory", "1g", "--work-dir", str(place))
            java(stack, place.with_suffix(".log"), "org.apache.spark.deploy.worker.Worker", *options, master)
        for place in places:
            said(place.with_suffix(".log"), r"Successfully registered with master (\S+)")
        yield master, places


def test_a_load_and_the_sink_with_a_lost_executor_and_a_speculative_twin(
    cluster: tuple[str, list[Path]], sink_broker: Broker, tmp_path: Path
) -> None:
    master, workers = cluster
    values = make_input(sink_broker.bootstrap_servers, "cluster", ROWS, partitions=4)
    command = [sys.executable, "-m", "tests.spark.cluster.driver", master, sink_broker.bootstrap_servers, str(tmp_path)]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, (done.stderr + (tmp_path / "spark.log").read_text(errors="replace"))[-4000:]
    told = json.loads(done.stdout)
    assert told["load"]["rows"] == ROWS
    rows = pq.read_table(tmp_path / "table", columns=["value"])["value"].to_pylist()
    assert sorted(row.encode() for row in rows) == values
    for mode in ("2pc", "ledger"):
        assert told[mode] == {"failures": [], "held": True, "left": []}  # Spark made it good, no run failed
        assert committed_values(sink_broker.bootstrap_servers, f"copy-{mode}") == values
    executors = [[*place.glob("app-*/*")] for place in workers]
    assert all(executors), "a worker ran no executor"
    assert sum(map(len, executors)) >= 4, "no executor was lost"
