"""JSON values into a table: our strict decoding beside Spark's ``from_json``, from one broker by one source.

The other side makes the same columns, the fields without a column among them, and neither checks nor commits anything.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.options import Options, progress
from bench.report import Comparison, Figures, paired
from bench.spark_processes import cpu_seconds
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.client.blocking.producer import Producer
from oncelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = 400_000
WARM_UP: Final = 2
_TOPIC: Final = "flights"
_SCHEMA: Final = "id BIGINT, flight STRING, at TIMESTAMP, lat DOUBLE, ok BOOLEAN, carrier STRING, delay INT"


def spark_load(options: Options) -> Comparison:
    """JSON of about 100 B into Parquet: ``oncelog load`` beside a query with Spark's ``from_json``."""
    from oncelog.spark.session.local_session import local_session

    count = options.scaled(ROWS)
    goals = {"JSON to Parquet, rows/s": "≥ 1.0 ×", "JSON to Parquet, CPU µs a row": "≤ 1.0 ×"}
    comparison = Comparison("JSON into a table", "oncelog load", "from_json", goals)
    with Broker() as broker, local_session(log=Path(os.devnull), master="local[2]") as spark:
        _fill(broker.bootstrap_servers, count)
        sides = (
            _measured(spark, count, lambda place: _load(spark, broker, place, count)),
            _measured(spark, count, lambda place: _query(spark, broker, place)),
        )
        for number in range(WARM_UP):
            for side in sides:
                side(number)
        return paired(comparison, sides, options.repeat, progress)


def _fill(servers: str, count: int) -> None:
    with Client(servers) as client:
        create_topic(client, NewTopic(_TOPIC, 2))
        with Producer(client) as producer:
            for number in range(count):
                value = {"id": number, "flight": f"N{number % 1000:05}", "at": 1370044800000 + number}
                value |= {
                    "lat": 52.1 + number / 1e6,
                    "ok": number % 2 == 0,
                    "carrier": "LH",
                    "delay": number % 100 - 20,
                }
                producer.send(_TOPIC, json.dumps(value).encode())


def _measured(spark: SparkSession, count: int, run: Callable[[Path], None]) -> Callable[[int], Figures]:
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # a local session has one

    def side(number: int) -> Figures:
        directory = Path(tempfile.mkdtemp(prefix="oncelog-bench-"))
        try:
            began, cpu = time.perf_counter(), cpu_seconds(jvm)
            run(directory / "table")
            elapsed, used = time.perf_counter() - began, cpu_seconds(jvm) - cpu
        finally:
            shutil.rmtree(directory)
        return {"JSON to Parquet, rows/s": count / elapsed, "JSON to Parquet, CPU µs a row": used / count * 1e6}

    return side


def _load(spark: SparkSession, broker: Broker, place: Path, count: int) -> None:
    from oncelog.spark import Shape, load

    report = load(_TOPIC, broker.bootstrap_servers, place, spark=spark, shape=Shape("json", _SCHEMA))
    assert report.rows == count


def _query(spark: SparkSession, broker: Broker, place: Path) -> None:
    from pyspark.sql import functions as f

    frame = spark.read.format("oncelog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    rows = frame.option("subscribe", _TOPIC).load()
    text = f.col("value").cast("string")
    names = f.array(*(f.lit(column.split()[0]) for column in _SCHEMA.split(", ")))
    others = f.map_filter(f.from_json(text, "MAP<STRING,STRING>"), lambda name, value: ~f.array_contains(names, name))
    decoded = rows.withColumn("decoded", f.from_json(text, _SCHEMA)).withColumn(
        "other_fields", f.when(f.size(others) > 0, f.to_json(others))
    )
    own = ("key", "topic", "partition", "offset", "timestamp", "timestampType", "other_fields")
    decoded.select(*own, "decoded.*").write.parquet(str(place))
