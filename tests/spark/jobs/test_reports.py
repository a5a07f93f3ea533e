"""The reports on small tables, and the same calls on a stream."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.spark.reports import (
    alerts,
    bars,
    feed,
    heat,
    impossible,
    line,
    monitor,
    page,
    periodic,
    relevance,
    too_often,
)
from oncelog.spark.session.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOON = datetime(2024, 2, 29, 12)  # noqa: DTZ001  # Spark gives times without a zone: the session's, UTC


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def events(spark: SparkSession) -> DataFrame:
    rows = [
        ("ann", "/a", 1.0, at(0)),
        ("bob", "/b", 9.0, at(1)),
        ("ann", "/b", 3.0, at(2)),
        ("ann", "/b", 95.0, at(70)),
    ]
    return spark.createDataFrame(rows, "who STRING, page STRING, took DOUBLE, time TIMESTAMP").coalesce(1)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def test_each_report_on_a_table(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    frame = events(spark)
    assert rows_of(feed(frame, "time", "who", "page", limit=2)) == [("ann", "/b"), ("ann", "/b")]
    assert rows_of(relevance(frame, "page", measures={"slowest": f.max("took")})) == [("/b", 3, 95.0), ("/a", 1, 1.0)]
    hours = monitor(frame, "time", "took", window="1 hour")
    assert sorted(rows_of(hours.select("start", "count", "mean", "lowest", "highest"))) == [
        (at(0), 3, 13 / 3, 1.0, 9.0),
        (at(60), 1, 95.0, 95.0, 95.0),
    ]
    assert rows_of(alerts(hours, mean_above=90).select("start", "reason")) == [(at(60), "mean over 90")]
    assert rows_of(alerts(hours, mean_above=90, at_least=2)) == []
    assert rows_of(alerts(hours, silent_below=2).select("reason")) == [("fewer than 2 events",)]
    assert rows_of(too_often(frame, "who", "time", at_most=1, window="10 minutes").select("who", "count")) == [
        ("ann", 2)
    ]
    days = periodic(frame, "time", "day", by="who", zone="Pacific/Auckland", measures={"mean": f.avg("took")})
    assert rows_of(days.select("period", "who", "count")) == [
        (at(12 * 60), "ann", 3),
        (at(12 * 60), "bob", 1),
    ]
    plots = [
        bars(relevance(frame, "page").collect(), "page", "count", title="Pages <most> used", unit="times"),
        line(hours.orderBy("start").collect(), "start", "mean", title="Mean"),
        heat(frame.collect(), "who", "page", "took", title="Took", unit="s"),
    ]
    html = page("A report", plots)
    assert html.count("<svg") == 3
    assert "Pages &lt;most&gt; used" in html
    pytest.importorskip("matplotlib")
    for number, plot in enumerate(plots):
        plot.png(tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")


def test_nobody_is_in_two_places(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    trips = [
        ("x", "JFK", "LAX", at(0), at(300)),
        ("x", "JFK", "BOS", at(320), at(380)),
        ("x", "BOS", "JFK", at(400), at(460)),
    ]
    frame = spark.createDataFrame(trips, "tail STRING, origin STRING, dest STRING, left TIMESTAMP, landed TIMESTAMP")
    result = impossible(
        frame, "tail", "left", "landed", came_to="dest", leaves_from="origin", seconds_needed=f.lit(3600.0)
    )
    assert rows_of(result.select("dest", "next_origin", "seconds_there")) == [("LAX", "JFK", 1200)]


def test_the_same_calls_on_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    events(spark).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(events(spark).schema).parquet(str(tmp_path / "in"))
    with pytest.raises(OptionError, match="needs 'late'"):
        monitor(stream, "time", "took")
    with pytest.raises(OptionError, match="use it on batches"):
        impossible(stream, "who", "time", "time", came_to="page", leaves_from="page", seconds_needed=stream.took)
    select = alerts(monitor(stream, "time", "took", late="1 hour"), mean_above=90).select("start", "count", "reason")
    query = select.writeStream.format("memory").queryName("alerting").outputMode("update").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert rows_of(spark.table("alerting")) == [(at(60), 1, "mean over 90")]
