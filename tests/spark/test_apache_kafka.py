"""Source, sink and jobs against Apache Kafka: the same programs, its broker killed under them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import oncelog
from oncelog.admin.topics import delete_topics
from oncelog.arrow import RecordsGone
from oncelog.client.blocking import Client
from oncelog.spark import StreamRequest, compact, load, stream
from oncelog.spark.export import export
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.session.errors import DataLoss
from oncelog.spark.sink import modes
from oncelog.spark.sink.fault_points import NAMES
from oncelog.spark.sink.options import Mode
from oncelog.spark.source.batch_reader import OncelogReader
from oncelog.spark.source.options import parse_options
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.jars import SPARK_CONNECTOR
from tests.spark.java_clients import console_consumed, write_with_every_codec
from tests.spark.sink.queries import TWO_PHASE, Copy, add_input, committed_values, make_input
from tests.spark.sink.test_brokers import kill_at
from tests.spark.sink.test_java import COMMITTED, values_of
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def test_load_stream_compact_and_export(spark: SparkSession, kafka: ApacheKafka, tmp_path: Path) -> None:
    servers, table = kafka.bootstrap_servers, tmp_path / "table"
    values = make_input(servers, "jobs", 50)
    shape = Shape("utf8", partition_by="day")
    assert load("jobs", servers, table, spark=spark, shape=shape).rows == 50
    values += add_input(servers, "jobs", 30, first=50)
    once = StreamRequest("available-now")
    assert stream("jobs", servers, table, once, spark=spark, shape=shape).rows == 30
    assert load("jobs", servers, table, spark=spark, shape=shape).files == 0
    again = load("jobs", servers, tmp_path / "again", spark=spark, shape=shape, from_ms=0)
    assert again.rows == 80
    compact(table)
    kept = sorted(str(row.value).encode() for row in spark.read.parquet(str(table)).select("value").collect())
    assert kept == sorted(values)
    plain = tmp_path / "plain"
    load("jobs", servers, plain, spark=spark)
    assert export(plain, "exported", servers, spark=spark).rows == 80
    assert export(plain, "exported", servers, spark=spark).job is None
    assert committed_values(servers, "exported") == sorted(values)


def test_the_commands(kafka: ApacheKafka, tmp_path: Path) -> None:
    servers = ("--bootstrap-servers", kafka.bootstrap_servers, "--json")

    def oncelog(*arguments: str) -> Any:
        command = [sys.executable, "-m", "oncelog", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    make_input(kafka.bootstrap_servers, "commands", 20)
    table = str(tmp_path / "table")
    assert oncelog("load", "commands", "--to", table, *servers)["rows"] == 20
    assert oncelog("compact", table, "--json")["files_after"] == 0  # a file a partition: nothing to do
    assert oncelog("export", table, "from-command", *servers)["rows"] == 20
    assert len(committed_values(kafka.bootstrap_servers, "from-command")) == 20


def test_the_broker_is_killed_under_source_and_sink(spark: SparkSession, kafka: ApacheKafka, tmp_path: Path) -> None:
    def kill_and_start() -> None:
        kafka.kill()
        kafka.start()

    values = make_input(kafka.bootstrap_servers, "killed-in", 90)
    copy = Copy(spark, kafka.bootstrap_servers, "killed-in", "killed-out", tmp_path)
    copy.rows_per_epoch = 45
    kill_at(copy, ("ledger-before-commit",), kill_and_start)
    assert committed_values(kafka.bootstrap_servers, "killed-out") == values
    assert console_consumed(kafka.bootstrap_servers, "killed-out", len(values)) == values
    if not SPARK_CONNECTOR.missing():
        assert values_of(spark, kafka.bootstrap_servers, "killed-out", "kafka", **COMMITTED) == values


def test_a_kill_at_every_point_of_two_phase_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Two-phase commit with the APIs switched on that Apache Kafka 4.3.1 still calls unstable."""
    unstable = {"unstable.api.versions.enable": "true", **TWO_PHASE}
    with ApacheKafka(tmp_path / "kafka", properties=unstable) as kafka:
        with Client(kafka.bootstrap_servers) as client:
            assert modes.choose(client, Mode.AUTO) is Mode.TWO_PHASE
        values = make_input(kafka.bootstrap_servers, "points-in", 100)
        copy = Copy(spark, kafka.bootstrap_servers, "points-in", "points-out", tmp_path)
        copy.order(*(name for name in NAMES if not name.startswith("ledger")))
        copy.run_to_the_end()
        assert copy.ordered == []
        assert committed_values(kafka.bootstrap_servers, "points-out") == values
        assert console_consumed(kafka.bootstrap_servers, "points-out", len(values)) == values


@pytest.mark.peer("spark-connector")
def test_what_a_java_producer_wrote(spark: SparkSession, kafka: ApacheKafka) -> None:
    committed, aborted = write_with_every_codec(spark, kafka.bootstrap_servers, "from-java")
    assert values_of(spark, kafka.bootstrap_servers, "from-java", "oncelog", **COMMITTED) == committed
    assert values_of(spark, kafka.bootstrap_servers, "from-java", "oncelog") == sorted(committed + aborted)


def test_a_topic_created_anew_between_planning_and_reading(kafka: ApacheKafka) -> None:
    make_input(kafka.bootstrap_servers, "anew", 20)
    given = parse_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "anew"})
    planned = OncelogReader(given).partitions()
    read = oncelog.read_arrow("anew", bootstrap_servers=kafka.bootstrap_servers)
    assert read.to_table().num_rows == 20
    with Client(kafka.bootstrap_servers) as client:
        delete_topics(client, ["anew"])
    make_input(kafka.bootstrap_servers, "anew", 40)
    for partition in planned:
        with pytest.raises(DataLoss, match="deleted and created anew"):
            list(OncelogReader(given).read(partition))
    with pytest.raises(RecordsGone, match="deleted and created anew"):
        oncelog.read_arrow("anew", bootstrap_servers=kafka.bootstrap_servers, start=read.positions)
    assert len(read.positions) == len(planned)
