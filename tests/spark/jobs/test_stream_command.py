"""``oncelog stream`` as a process: told to stop, killed, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.conftest import Topic
from tests.spark.starting import NOT_IN_TIME
from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


def start(topic: Topic, place: Path) -> subprocess.Popen[str]:
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
    command += ["--bootstrap-servers", topic.bootstrap_servers, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def values_in(place: Path) -> list[bytes]:
    if not [*place.glob("rows-*")]:
        return []
    return sorted(row["value"] for row in pq.read_table(place, columns=["value"]).to_pylist())


def started(topic: Topic, place: Path, rows: int) -> subprocess.Popen[str]:
    """The running command, when so many rows are there; started again where Spark did not wait for its own process."""
    while True:
        process = start(topic, place)
        wait_until(
            lambda running=process: running.poll() is not None or len(values_in(place)) >= rows,
            lambda: f"{rows} rows: {len(values_in(place))} are there",
            poll_s=0.05,
        )
        if process.poll() is None:
            return process
        errors = process.communicate()[1]
        assert NOT_IN_TIME in errors, errors[-2000:]


def test_signals_end_it_cleanly_and_a_kill_is_made_good_by_the_next(
    topic_with: Callable[..., Topic], tmp_path: Path
) -> None:
    topic = topic_with(50)
    process = started(topic, tmp_path, 50)
    topic.produce(25)
    process.kill()
    os.killpg(process.pid, signal.SIGKILL)  # the JVM, too: nothing of it is left to write
    process.communicate()
    seen = values_in(tmp_path)
    assert len(seen) == len(set(seen))
    process = started(topic, tmp_path, 75)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does, to the JVM, too
    out, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, errors[-2000:]
    assert json.loads(out)["rows"] == 75 - len(seen)
    assert values_in(tmp_path) == topic.values()
