"""``oncelog stream`` as a process: told to stop, killed, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.conftest import Topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 120.0


def start(topic: Topic, place: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "oncelog",
        "stream",
        topic.name,
        "--to",
        str(place),
        "--trigger",
        "100 milliseconds",
    ]
    command += ["--bootstrap-servers", topic.bootstrap_servers, "--json", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def values_in(place: Path) -> list[bytes]:
    if not [*place.glob("rows-*")]:
        return []
    return sorted(row["value"] for row in pq.read_table(place, columns=["value"]).to_pylist())


def wait_for(process: subprocess.Popen[str], place: Path, rows: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(values_in(place)) < rows:
        assert process.poll() is None, process.communicate()[1][-2000:]
        assert time.monotonic() < deadline, f"{len(values_in(place))} rows of {rows}"
        time.sleep(0.05)


@pytest.mark.timeout(400)  # it starts Spark twice; a loaded machine takes its time
def test_signals_end_it_cleanly_and_a_kill_is_made_good_by_the_next(
    topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    topic = topic_with(50)
    process = start(topic, tmp_path)
    wait_for(process, tmp_path, 50)
    topic.produce(25)
    process.kill()
    os.killpg(process.pid, signal.SIGKILL)  # the JVM, too: nothing of it is left to write
    process.communicate()
    seen = values_in(tmp_path)
    assert len(seen) == len(set(seen))
    process = start(topic, tmp_path)
    wait_for(process, tmp_path, 75)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does, to the JVM, too
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors[-2000:]
    assert json.loads(out)["rows"] == 75 - len(seen)
    assert values_in(tmp_path) == topic.values()
