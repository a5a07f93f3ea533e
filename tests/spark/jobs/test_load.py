"""``oncelog load`` as a process that is killed, and the table that others read meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.spark import load
from tests.spark.conftest import Topic
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MakeTopic = Callable[..., Topic]

DYING_LOAD = """
import os, signal, sys
from oncelog.spark import load

published = []

def on_event(event):
    if event.kind == "publishing" and len(published) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if event.kind == "published":
        published.append(event)

load(sys.argv[1], sys.argv[2], sys.argv[3], rows_per_step=40, on_event=on_event)
"""


def table_values(spark: SparkSession, place: Path) -> list[bytes]:
    return sorted(bytes(row.value) for row in spark.read.parquet(str(place)).select("value").collect())


def test_a_load_killed_between_two_files_leaves_a_readable_table_and_the_next_completes_it(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    topic = topic_with(100)
    place = tmp_path / "table"
    command = [sys.executable, "-c", DYING_LOAD, topic.name, topic.bootstrap_servers, str(place)]
    assert subprocess.run(command, check=False, timeout=HANG_S).returncode == -signal.SIGKILL
    seen = table_values(spark, place)
    assert len(seen) == len(set(seen)) == 60
    report = load(topic.name, topic.bootstrap_servers, place, spark=spark)
    assert report.rows == 40
    assert table_values(spark, place) == topic.values()
    assert load(topic.name, topic.bootstrap_servers, place, spark=spark).files == 0


def test_the_table_has_the_sources_columns_and_rows(spark: SparkSession, topic_with: MakeTopic, tmp_path: Path) -> None:
    first, second = topic_with(30, partitions=1), topic_with(20, partitions=3)
    topics = [first.name, second.name]
    load(topics, first.bootstrap_servers, tmp_path, spark=spark, options={"includeHeaders": "true"})
    table = spark.read.parquet(str(tmp_path))
    source = first.read(spark, includeHeaders="true").union(second.read(spark, includeHeaders="true"))
    assert table.schema == source.schema
    assert table.exceptAll(source).count() == 0
    assert source.exceptAll(table).count() == 0


def test_the_command_reports_in_json_and_in_words(topic_with: MakeTopic, tmp_path: Path) -> None:
    topic = topic_with(0)
    command = [sys.executable, "-c", "from oncelog.cli.main import run; run()", "load", topic.name]
    command += ["--bootstrap-servers", topic.bootstrap_servers, "--to", str(tmp_path)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert '"rows": 0' in done.stdout
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout.startswith("nothing new")
