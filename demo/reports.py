"""The reports of the demo: the library's (``oncelog.spark.reports``) over the loaded table.

Live feed, relevance counts, operational monitoring with alerts, abuse detection, reporting; and the proof that the
load was exactly once. Times are UTC in the table and New York's where an hour of the day is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from oncelog.spark.reports import alerts, feed, impossible, monitor, periodic, relevance

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Row = dict[str, Any]

_EVENT = (
    "number BIGINT, event STRING, trip BIGINT, carrier STRING, flight STRING, tail STRING, origin STRING, "
    "destination STRING, at STRING, distance_miles INT, delay_minutes INT"
)

_VIEWS = {
    "events": f"""
        SELECT partition, offset, timestamp AS time, CAST(key AS STRING) AS key, e.*,
               from_utc_timestamp(timestamp, 'America/New_York') AS new_york
        FROM (SELECT *, from_json(CAST(value AS STRING), '{_EVENT}') AS e FROM rows)
    """,
    "departures": "SELECT *, concat(origin, ' → ', destination) AS route FROM events WHERE event = 'departure'",
    "trips": """
        SELECT d.trip, d.tail, d.flight, d.route, d.origin, d.destination, d.distance_miles,
               d.time AS departed, a.time AS arrived, a.delay_minutes AS arrival_delay
        FROM departures d LEFT JOIN events a ON a.trip = d.trip AND a.event = 'arrival'
    """,
}

_PROOF = (
    "SELECT count(*) AS rows, count(DISTINCT number) AS events, min(number) AS first, max(number) AS last FROM events"
)

_OUT_OF_ORDER = """
    SELECT count(*) AS rows
    FROM (SELECT number - lag(number) OVER (PARTITION BY key ORDER BY partition, offset) AS step FROM events)
    WHERE step <= 0
"""

_KEYS = """
    SELECT count(*) AS keys, count_if(first <> last) AS split
    FROM (SELECT min(partition) AS first, max(partition) AS last FROM events GROUP BY key)
"""

NEW_YORK = "America/New_York"
ON_TIME_MINUTES = 15
SECONDS_A_MILE = 3600 / 700
"""Nobody flies faster than 700 mph."""


def _feed(spark: SparkSession) -> DataFrame:
    time = f.date_format("time", "dd MMM HH:mm").alias("time")
    route = f.concat("origin", f.lit(" → "), "destination").alias("route")
    return feed(
        spark.table("events"), "number", time, "event", "flight", "tail", route, f.col("delay_minutes").alias("delay")
    )


def _routes(spark: SparkSession) -> DataFrame:
    return relevance(spark.table("departures"), "route", top=10, count="flights", measures={"mean_delay": _mean()})


def _carriers(spark: SparkSession) -> DataFrame:
    return relevance(
        spark.table("departures"), "carrier", count="flights", measures={"on_time_percent": _on_time("delay_minutes")}
    )


def _hours(spark: SparkSession) -> DataFrame:
    scheduled = f.expr("new_york - make_dt_interval(0, 0, delay_minutes)")
    hours = relevance(
        spark.table("departures").withColumns({"month": f.month(scheduled), "hour": f.hour(scheduled)}),
        ("month", "hour"),
        count="departures",
        measures={"mean_delay": _mean()},
    )
    return hours.where("departures >= 30").orderBy("month", "hour")


def _days(spark: SparkSession) -> DataFrame:
    days = periodic(
        spark.table("departures"), "time", "day", zone=NEW_YORK, count="departures", measures={"mean_delay": _mean()}
    )
    return days.select(f.date_format("period", "yyyy-MM-dd").alias("day"), "departures", "mean_delay")


def _alerts(spark: SparkSession) -> DataFrame:
    late = {"late": f.round(100 * f.avg((f.col("delay_minutes") > 60).cast("int")))}
    hours = monitor(spark.table("departures"), "new_york", "delay_minutes", window="1 hour", measures=late)
    worst = alerts(hours.withColumn("mean", f.round("mean")), mean_above=90, at_least=20).orderBy(f.col("mean").desc())
    hour = f.date_format("start", "yyyy-MM-dd HH:00").alias("hour")
    columns = {"count": "departures", "mean": "mean_delay", "late": "over_an_hour_percent"}
    return worst.select(hour, *(f.col(old).alias(new) for old, new in columns.items()))


def _abuse(spark: SparkSession) -> DataFrame:
    trips = spark.table("trips")
    needed = f.col("distance_miles") * SECONDS_A_MILE
    twice = impossible(
        trips, "tail", "departed", "arrived", came_to="destination", leaves_from="origin", seconds_needed=needed
    )
    there = f.round(f.col("seconds_there") / 60).alias("minutes_there")
    wanted = f.round(f.col("seconds_needed") / 60).alias("minutes_needed")
    lands, leaves = (
        f.date_format(moment, "dd MMM HH:mm").alias(name)
        for moment, name in (("arrived", "lands"), ("next_departed", "leaves"))
    )
    found = twice.select("tail", "flight", "route", lands, "next_flight", "next_route", leaves, there, wanted)
    return found.orderBy(f.col("minutes_there") - f.col("minutes_needed"), "tail")


def _months(spark: SparkSession) -> DataFrame:
    departures, trips = spark.table("departures"), spark.table("trips")
    landed = {"arrival_delay": f.round(f.avg("arrival_delay"), 1), "on_time_percent": _on_time("arrival_delay")}
    months = periodic(trips, "departed", "month", zone=NEW_YORK, count="flights", measures=landed)
    routes = periodic(departures, "time", "month", by="route", zone=NEW_YORK)
    busiest = routes.groupBy("period").agg(f.max_by("route", "count").alias("busiest_route"))
    delays = {"delay": f.avg("delay_minutes")}
    days = periodic(departures, "time", "day", zone=NEW_YORK, measures=delays)
    worst = days.groupBy(f.date_trunc("month", "period").alias("period")).agg(
        f.max_by(f.dayofmonth("period"), "delay").alias("worst_day")
    )
    joined = months.where("period IS NOT NULL").join(busiest, "period").join(worst, "period").orderBy("period")
    return joined.select(f.date_format("period", "MMM").alias("month"), *joined.columns[1:])


def _mean() -> Column:
    return f.round(f.avg("delay_minutes"), 1)


def _on_time(delay: str) -> Column:
    return f.round(100 * f.avg((f.col(delay) <= ON_TIME_MINUTES).cast("int")), 1)


_REPORTS: dict[str, Callable[[SparkSession], DataFrame]] = {
    "feed": _feed,
    "routes": _routes,
    "carriers": _carriers,
    "hours": _hours,
    "days": _days,
    "alerts": _alerts,
    "abuse": _abuse,
    "months": _months,
}


def open_views(spark: SparkSession, table: Path) -> None:
    """The plain table as ``rows``, what its values say as ``events``, and what follows from that."""
    spark.read.parquet(str(table)).createOrReplaceTempView("rows")
    for name, query in _VIEWS.items():
        spark.sql(query).createOrReplaceTempView(name)
    spark.sql("CACHE TABLE events")
    spark.sql("CACHE TABLE trips")


def proof(spark: SparkSession, acknowledged: int) -> Row:
    """The figures behind "exactly once", and whether they say so."""
    facts = _rows(spark, _PROOF)[0]
    facts["acknowledged"] = acknowledged
    facts["out_of_order"] = _rows(spark, _OUT_OF_ORDER)[0]["rows"]
    keys = _rows(spark, _KEYS)[0]
    facts["keys"], facts["split_keys"] = keys["keys"], keys["split"]
    facts["missing"] = acknowledged - facts["events"]
    facts["twice"] = facts["rows"] - facts["events"]
    facts["holds"] = (
        facts["rows"] == facts["events"] == acknowledged
        and (facts["first"], facts["last"]) == (0, acknowledged - 1)
        and not facts["out_of_order"]
        and not facts["split_keys"]
    )
    return facts


def report(spark: SparkSession, name: str) -> list[Row]:
    """A report by its name."""
    return [row.asDict() for row in _REPORTS[name](spark).collect()]


REPORT_NAMES = tuple(_REPORTS)


def _rows(spark: SparkSession, query: str) -> list[Row]:
    return [row.asDict() for row in spark.sql(query).collect()]
