"""Jobs on a standalone cluster: a master and two workers, processes of their own on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.conftest import Topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 120.0


def java(stack: ExitStack, log: Path, main: str, *arguments: str) -> None:
    """One of Spark's own processes, ended with the test."""
    import pyspark

    home = Path(next(iter(pyspark.__path__)))
    jars = home / "jars" / "*"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment |= {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"}  # workers start executors with them
    output = stack.enter_context(log.open("wb"))
    modules = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "-Dspark.master.rest.enabled=false"]
    command = ["java", *modules, "-Xmx256m", "-cp", str(jars), main, *arguments]
    process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def end() -> None:
        process.terminate()
        process.wait(30)

    stack.callback(end)


def said(log: Path, pattern: str) -> str:
    """The first group of ``pattern`` in a log, as soon as it is there."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"{log.name} never said {pattern}: {log.read_text(errors='replace')[-2000:]}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[Path]]]:
    """The master's address, and the directories in which the workers keep their executors."""
    own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        java(stack, tmp_path / "master.log", "org.apache.spark.deploy.master.Master", *own)
        master = said(tmp_path / "master.log", r"Starting Spark master at (spark://\S+)")
        places = [tmp_path / "worker-0", tmp_path / "worker-1"]
        for place in places:
            resources = ("--cores", "1", "--memory", "1g", "--work-dir", str(place))
            java(stack, place.with_suffix(".log"), "org.apache.spark.deploy.worker.Worker", *own, *resources, master)
        for place in places:
            said(place.with_suffix(".log"), r"Successfully registered with master (\S+)")
        yield master, places


@pytest.mark.timeout(600)  # five Java processes on a machine that may be busy
def test_a_load_runs_on_two_workers(
    cluster: tuple[str, list[Path]], topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    master, workers = cluster
    topic = topic_with(400, partitions=4)
    environment = {**os.environ, "ONCELOG_SPARK_MASTER": master, "SPARK_LOCAL_IP": "127.0.0.1"}

    def oncelog(*arguments: str) -> dict[str, object]:
        command = [
            sys.executable,
            "-m",
            "oncelog",
            *arguments,
            "--bootstrap-servers",
            topic.bootstrap_servers,
            "--json",
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        report: dict[str, object] = json.loads(done.stdout)
        return report

    table = tmp_path / "table"
    load = ["load", topic.name, "--to", str(table), "--value-format", "utf8", "--partition-by", "day"]
    assert oncelog(*load)["rows"] == 400
    rows = pq.read_table(table, columns=["value"])["value"].to_pylist()
    assert sorted(rows, key=str) == [value.decode() for value in topic.values()]
    for place in workers:
        assert [*place.glob("app-*/*")], f"{place.name} ran no executor"
