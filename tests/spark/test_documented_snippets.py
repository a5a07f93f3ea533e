"""Examples of Spark in README.md, spark-source.md, spark-sink.md, exactly-once-spark.md, jobs.md and reports.md.

Each page's examples run in their order, in one namespace and one directory, on a broker with the topics they name.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Producer
from oncelog.testing import Broker
from tests.snippets.blocks import blocks_of
from tests.spark.sink.queries import committed_values
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    # PySpark's server of foreachBatch leaves its connections to the collector.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]

HERE: Final = "tests/spark/test_documented_snippets.py"
ROWS: Final = 30
FLIGHT: Final = (
    '{"event": "departure", "time": "2013-06-01 10:%02d:00", "flight": "LH%d", "dep_delay": 100, '
    '"delay_minutes": 100, "destination": "FRA", "origin": "JFK", "tail": "D-%d", "amount": %d}'
)
SCHEMA: Final = "event STRING, flight STRING, delay_minutes DOUBLE, destination STRING, origin STRING"


@pytest.fixture(scope="module")
def lake() -> Iterator[Broker]:
    """A broker with two-phase commit, and the topics of the examples."""
    with Broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        with Client(broker.bootstrap_servers) as client, Producer(client) as producer:
            for name in ("flights", "orders", "out", "all", "large", "alerts", "invoices"):
                create_topic(client, NewTopic(name, partitions=2, replication_factor=1, configs={"retention.ms": "-1"}))
            for number in range(ROWS):
                value = (FLIGHT % (number, number, number, number * 10)).encode()
                for topic in ("flights", "orders"):
                    producer.send(topic, value, key=b"k%d" % number)
        yield broker


class Page:
    """The examples of a page that are run here."""

    def __init__(self, name: str, broker: Broker, spark: SparkSession, directory: Path) -> None:
        self._blocks = [block for block in blocks_of(name) if block.tested_by == HERE]
        self._next = 0
        self._broker, self._directory = broker, directory
        # The JVM does not change its directory.
        self._paths = {f'"{name}"': f'"{directory / name}"' for name in ("alerts-checkpoint", "checkpoints/invoices")}
        self._paths['parquet("flights")'] = f'parquet("{directory / "flights"}")'
        self.names: dict[str, Any] = {"spark": spark, "__name__": "__main__"}

    def run(self, **replaced: str) -> None:
        """Run the next example, with texts of it replaced."""
        code = self._blocks[self._next].text
        self._next += 1
        for old, new in {"localhost:9092": self._broker.bootstrap_servers, **self._paths, **replaced}.items():
            code = code.replace(old, new)
        with contextlib.chdir(self._directory):
            exec(code, self.names)  # our own documentation

    def close(self) -> None:
        """Fail if an example is left over."""
        assert self._next == len(self._blocks), [block.place for block in self._blocks[self._next :]]


def flights(spark: SparkSession, broker: Broker) -> Any:
    """The topic as a batch."""
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "flights"}
    return spark.read.format("oncelog").options(**options).load()


def test_readme_and_tables(spark: SparkSession, lake: Broker, tmp_path: Path) -> None:
    import duckdb
    import pyarrow.dataset

    readme, shell = [block for block in blocks_of("README.md") if block.tested_by == HERE]
    names: dict[str, Any] = {"spark": spark}
    exec(readme.text.replace("localhost:9092", lake.bootstrap_servers), names)
    assert names["df"].count() == ROWS
    command = shell.text.replace("localhost:9092", lake.bootstrap_servers).replace("flights-table", "flights")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, check=True, timeout=HANG_S)
    page = Page("docs/jobs.md", lake, spark, tmp_path)
    page.names |= {"pyarrow": pyarrow, "duckdb": duckdb}
    page.run()
    page.close()
    assert spark.read.parquet(str(tmp_path / "flights")).count() == ROWS


def test_reports(spark: SparkSession, lake: Broker, tmp_path: Path) -> None:
    flights(spark, lake).write.parquet(str(tmp_path / "flights"))
    page = Page("docs/reports.md", lake, spark, tmp_path)
    page.names |= {"SCHEMA": SCHEMA}
    page.run()
    page.names["hours"] = page.names["monitor"](page.names["departures"], "time", "delay_minutes", window="1 hour")
    batch = page.names["departures"]
    # The dots of the page stand for the same steps on the stream.
    decoded = 'events = live.select("timestamp", f.from_json(f.col("value").cast("string"), SCHEMA).alias("e"))\n'
    page.run(**{"...\n": f'{decoded}departures = events.select(f.col("timestamp").alias("time"), "e.*")\n'})
    page.names["departures"] = batch
    page.run()
    page.close()
    assert (tmp_path / "report.html").stat().st_size
    assert (tmp_path / "destinations.png").stat().st_size
    for query in spark.streams.active:
        query.stop()


def test_the_source(spark: SparkSession, lake: Broker, tmp_path: Path) -> None:
    from datetime import UTC, datetime

    import duckdb

    page = Page("docs/spark-source.md", lake, spark, tmp_path)
    page.run()
    assert page.names["df"].isStreaming
    page.names |= {"df": flights(spark, lake), "avro_schema": '{"type": "string"}'}
    # Spark's Avro is a package of its own, which tests/spark/source/test_avro.py has.
    page.run(**{"orders = decode": "# orders = decode"})
    assert page.names["flights"].select("value.flight").distinct().count() == ROWS
    saved: list[str] = []
    page.names |= {"datetime": datetime, "UTC": UTC, "duckdb": duckdb, "save": saved.append}
    servers = f'bootstrap_servers="{lake.bootstrap_servers}"'
    page.run(**{"tzinfo=UTC))": f"tzinfo=UTC), {servers})", '"latest", end=None)': f'"earliest", {servers})'})
    page.close()
    assert len(page.names["frame"]) == ROWS
    assert saved


def test_the_sink(spark: SparkSession, lake: Broker, tmp_path: Path) -> None:
    import oncelog.spark

    servers = lake.bootstrap_servers
    page = Page("docs/spark-sink.md", lake, spark, tmp_path)
    streamed = (
        spark.readStream.format("oncelog")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": "flights", "startingOffsets": "earliest"})
        .load()
    )
    batch, stream = page._blocks[0].text.split("\n\n")
    for code, frame in ((batch, flights(spark, lake)), (stream, streamed)):
        page.names["frame"] = frame
        exec(code.replace("localhost:9092", servers).replace("/data", str(tmp_path)), page.names)
    page._next += 1
    page.names["query"].processAllAvailable()
    page.names["query"].stop()
    sent = Counter(bytes(row.value) for row in flights(spark, lake).select("value").collect())
    assert Counter(committed_values(servers, "out")) == sent + sent
    page.names["oncelog"] = oncelog
    page.run()
    page.close()
    rows = streamed.selectExpr("value", "CAST(get_json_object(CAST(value AS STRING), '$.amount') AS INT) AS amount")
    query = (
        rows.writeStream.foreachBatch(page.names["write"])
        .option("checkpointLocation", str(tmp_path / "writes"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(committed_values(servers, "all")) == ROWS
    assert 0 < len(committed_values(servers, "large")) < ROWS


def test_a_copy_that_is_started_twice_writes_each_row_once(spark: SparkSession, lake: Broker, tmp_path: Path) -> None:
    page = Page("docs/exactly-once-spark.md", lake, spark, tmp_path)
    page.run()
    page.close()
    wait_until(lambda: len(committed_values(lake.bootstrap_servers, "invoices")) >= ROWS, "no invoices")
    assert len(committed_values(lake.bootstrap_servers, "invoices")) == ROWS
