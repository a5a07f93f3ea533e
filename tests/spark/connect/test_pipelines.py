"""Declarative Pipelines with topics as sources and sinks: run three times, then refreshed from the beginning."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.testing import Broker
from tests.spark.sink.queries import add_input, committed_values, make_input
from tests.spark.starting import NOT_IN_TIME
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

SPEC = """
name: rows
storage: file://{directory}/storage
libraries:
  - glob:
      include: transformations/**
"""
DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import oncelog.spark

spark = SparkSession.active()
CLUSTER = {{"kafka.bootstrap.servers": "{servers}"}}


def topic(reader):
    return reader.format("oncelog").options(**CLUSTER, subscribe="pipeline-in")


@dp.table
def pipeline_rows():
    found = topic(spark.readStream).option("startingOffsets", "earliest").load()
    return oncelog.spark.decode_values(found, "utf8")


@dp.table
def pipeline_decoded():
    found = topic(spark.readStream).option("startingOffsets", "earliest").load()
    return oncelog.spark.decode_values(found, "json", "number INT").select("offset", "value.number")


@dp.materialized_view
def pipeline_counts():
    return topic(spark.read).load().groupBy("partition").count()


dp.create_sink(name="direct", format="oncelog", options={{**CLUSTER, "topic": "pipeline-direct"}})
dp.create_sink(name="of_table", format="oncelog", options={{**CLUSTER, "topic": "pipeline-of-table"}})


@dp.append_flow(target="direct")
def to_direct():
    return topic(spark.readStream).option("startingOffsets", "earliest").load().select("value")


@dp.append_flow(target="of_table")
def to_of_table():
    return spark.readStream.table("pipeline_rows").select("value")
"""


def run(server: str, directory: Path, *arguments: str) -> None:
    """Do as ``spark-pipelines run``, on the server; again where Spark did not wait for its own processes."""
    command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(directory / "spark-pipeline.yml")]
    environment = {**os.environ, "SPARK_REMOTE": server}
    while True:
        done = subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        if done.returncode == 0:
            return
        assert NOT_IN_TIME in done.stdout + done.stderr, (done.stdout + done.stderr)[-4000:]


@pytest.mark.spark_versions(">=4.1")  # 4.0 has no Declarative Pipelines
def test_a_pipeline_run_three_times_has_each_row_once(
    server: str, connect: SparkSession, sink_broker: Broker, tmp_path: Path
) -> None:
    servers = sink_broker.bootstrap_servers
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "rows.py").write_text(DEFINITIONS.format(servers=servers))
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(directory=tmp_path))
    values = make_input(servers, "pipeline-in", 20)

    def rows_of(name: str) -> list[Row]:
        connect.catalog.refreshTable(name)  # another session wrote it
        return connect.read.table(name).collect()

    def table() -> list[bytes]:
        return sorted(row.value.encode() for row in rows_of("pipeline_rows"))

    for _ in range(2):
        run(server, tmp_path)
        assert table() == values
        assert committed_values(servers, "pipeline-direct") == values
        assert committed_values(servers, "pipeline-of-table") == values
        assert [row.number for row in rows_of("pipeline_decoded")] == [None] * len(values)  # they are no JSON
        assert sum(row["count"] for row in rows_of("pipeline_counts")) == len(values)
        values = sorted([*values, *add_input(servers, "pipeline-in", 10, len(values))])
    before = committed_values(servers, "pipeline-direct")
    run(server, tmp_path, "--full-refresh-all")
    assert table() == values  # made anew
    assert Counter(committed_values(servers, "pipeline-direct")) == Counter(before) + Counter(values)  # a new query
