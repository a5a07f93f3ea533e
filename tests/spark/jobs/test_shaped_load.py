"""Loads that decode, partition and quarantine, against Spark and a broker; and the stream that does the same."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.client.blocking import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.spark import OptionError, load
from oncelog.spark.jobs.load_report import LoadReport
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.jobs.stream_query import StreamRequest
from oncelog.spark.table.compact import compact
from oncelog.spark.table.directory import TableError
from oncelog.spark.targets.entry import stream
from tests.spark.conftest import Topic
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MakeTopic = Callable[..., Topic]
DAY = 86_400_000
START = 1_700_006_400_000
"""2023-11-15T00:00:00Z."""


def send(topic: Topic, *values: bytes | None, partition: int = 0, step_ms: int = DAY // 4) -> None:
    records = [Record(-1, START + at * step_ms, b"k", value, ()) for at, value in enumerate(values)]
    with Client(topic.bootstrap_servers) as client:
        client.produce(topic.partition(partition), build_batch(records))


def rows_of(spark: SparkSession, place: Path, *columns: str) -> list[Any]:
    return [
        tuple(row) for row in spark.read.parquet(str(place)).select(*columns).orderBy("partition", "offset").collect()
    ]


def flight(number: int, **more: object) -> bytes:
    return json.dumps({"number": number, "tail": f"N{number}", **more}).encode()


def test_json_values_become_columns_under_their_day_and_bad_rows_are_kept_apart(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    from pyarrow import dataset  # and so pandas, half a second, in all workers where it is at the top

    topic, place = topic_with(0), tmp_path / "table"
    send(topic, flight(0), flight(1, extra={"a": 1}), b"no json", None, b'{"number": "x"}', b'{"tail": "T"}', b"[]")
    send(topic, flight(7), partition=1)
    shape = Shape("json", "number INT, tail STRING", partition_by="day")
    report = load(topic.name, topic.bootstrap_servers, place, spark=spark, shape=shape)
    assert (report.rows, report.quarantined) == (5, 3)
    assert rows_of(spark, place, "partition", "offset", "number", "tail", "other_fields", "day") == [
        (0, 0, 0, "N0", None, day(0)),
        (0, 1, 1, "N1", '{"extra":{"a":1}}', day(0)),
        (0, 3, None, None, None, day(0)),
        (0, 5, None, "T", None, day(1)),
        (1, 0, 7, "N7", None, day(0)),
    ]
    bad = rows_of(spark, place / "_quarantine", "partition", "offset", "value", "reason")
    assert [(row[:2], bytes(row[2]), row[3]) for row in bad] == [
        ((0, 2), b"no json", "not JSON: expecting value at character 1"),
        ((0, 4), b'{"number": "x"}', "field number is not int"),
        ((0, 6), b"[]", "not a JSON object of this schema"),
    ]
    plain = dataset.dataset(place, format="parquet", partitioning="hive")
    assert plain.count_rows(filter=dataset.field("day") == str(day(1))) == 1
    assert load(topic.name, topic.bootstrap_servers, place, spark=spark, shape=shape).files == 0


def day(number: int) -> Any:
    from datetime import date, timedelta

    return date(2023, 11, 15) + timedelta(days=number)


def test_a_new_column_is_null_in_old_rows_and_a_missing_one_in_new_rows(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    topic = topic_with(0, partitions=1)

    def run(schema: str) -> LoadReport:
        return load(topic.name, topic.bootstrap_servers, tmp_path, spark=spark, shape=Shape("json", schema))

    send(topic, flight(0))
    run("number INT, tail STRING")
    send(topic, flight(1, speed=2.5))
    assert run("number INT, tail STRING, speed DOUBLE").new_columns == ["speed"]
    send(topic, b'{"speed": 3, "tail": "x"}')
    run("number INT, speed FLOAT")
    expected = [(0, 0, 0, "N0", None), (0, 1, 1, "N1", 2.5), (0, 2, None, "x", 3.0)]
    columns = ("partition", "offset", "number", "tail", "speed")
    assert rows_of(spark, tmp_path, *columns) == expected
    send(topic, flight(3))
    with pytest.raises(TableError, match="column 'number' is int in the table and string in the schema"):
        run("number STRING")
    compact(tmp_path)
    assert rows_of(spark, tmp_path, *columns) == expected


def test_bad_rows_go_to_a_topic_once(spark: SparkSession, topic_with: MakeTopic, tmp_path: Path) -> None:
    topic, bad = topic_with(0), topic_with(0, partitions=1)
    send(topic, b"\xff", b"good", b"\xfe")
    report = load(
        topic.name, topic.bootstrap_servers, tmp_path, spark=spark, shape=Shape("utf8"), quarantine_topic=bad.name
    )
    assert (report.rows, report.quarantined, report.quarantine) == (1, 2, bad.name)
    assert rows_of(spark, tmp_path, "partition", "offset", "value") == [(0, 1, "good")]
    kept = bad.read(spark, includeHeaders="true", **{"kafka.isolation.level": "read_committed"}).collect()
    assert [bytes(row.value) for row in kept] == [b"\xff", b"\xfe"]
    headers = {header.key: bytes(header.value).decode() for header in kept[1].headers}
    assert headers == {
        "oncelog.topic": topic.name,
        "oncelog.partition": "0",
        "oncelog.offset": "2",
        "oncelog.reason": "not UTF-8",
    }


def test_loading_again_from_a_time_replaces_days_and_bad_rows(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    topic = topic_with(0, partitions=1)
    send(topic, *(flight(n, at=START + n * DAY // 2) if n % 3 else b"bad" for n in range(8)))
    shape = Shape("json", "number INT", partition_by="hour", event_time="$.at")
    first = load(topic.name, topic.bootstrap_servers, tmp_path, spark=spark, shape=shape)
    before = rows_of(spark, tmp_path, "partition", "offset", "number", "day", "hour", "event_time")
    assert {row[4] for row in before} == {0, 12}
    again = load(topic.name, topic.bootstrap_servers, tmp_path, spark=spark, shape=shape, from_ms=START + DAY)
    assert (first.quarantined, again.quarantined) == (3, 1)
    assert rows_of(spark, tmp_path, "partition", "offset", "number", "day", "hour", "event_time") == before
    assert [row[1] for row in rows_of(spark, tmp_path / "_quarantine", "partition", "offset")] == [0, 3, 6]


def test_a_stream_goes_on_where_a_load_ended_and_a_backfill_fills_what_is_before_it(
    spark: SparkSession, topic_with: MakeTopic, tmp_path: Path
) -> None:
    topic = topic_with(40)
    how = StreamRequest("200 milliseconds", starting="latest", compact_every=2)
    told: list[int] = []

    def on_batch(report: LoadReport) -> None:
        told.append(report.rows)
        if report.rows < 60:
            topic.produce(20)
        else:
            how.stop.set()

    how.on_batch = on_batch
    runs: list[LoadReport] = []
    running = threading.Thread(
        target=lambda: runs.append(stream(topic.name, topic.bootstrap_servers, tmp_path, how, spark=spark))
    )
    running.start()
    while not (tmp_path / "_oncelog" / "table.json").exists() or len(list(tmp_path.glob("rows-*"))) < 2:
        running.join(0.05)
        assert running.is_alive() or runs
    filled = load(topic.name, topic.bootstrap_servers, tmp_path, spark=spark, backfill=True)
    assert filled.rows == 40
    topic.produce(20)
    running.join(HANG_S)
    assert runs[0].rows == 60
    rest = topic.produced - 100
    once = StreamRequest("available-now")
    assert stream(topic.name, topic.bootstrap_servers, tmp_path, once, spark=spark).rows == rest
    with pytest.raises(OptionError, match="must be an interval such as '10 seconds', or 'available-now', got 'often'"):
        stream(topic.name, topic.bootstrap_servers, tmp_path, StreamRequest("often"), spark=spark)
    values = sorted(bytes(row[0]) for row in spark.read.parquet(str(tmp_path)).select("value").collect())
    assert values == topic.values()
    assert compact(tmp_path).files_after <= 2
    values = sorted(bytes(row[0]) for row in spark.read.parquet(str(tmp_path)).select("value").collect())
    assert values == topic.values()
