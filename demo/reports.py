"""What the data says, in Spark SQL over the loaded table: the uses an activity stream was made for.

Live feed, relevance counts, operational monitoring with alerts, abuse detection, reporting; and the proof that the
load was exactly once. Times are UTC in the table and New York's where an hour of the day is meant.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

_REPORTS = {
    "feed": """
        SELECT date_format(time, 'dd MMM HH:mm') AS time, event, flight, tail,
               concat(origin, ' → ', destination) AS route, delay_minutes AS delay
        FROM events ORDER BY number DESC LIMIT 10
    """,
    "routes": """
        SELECT route, count(*) AS flights, round(avg(delay_minutes), 1) AS mean_delay
        FROM departures GROUP BY route ORDER BY flights DESC LIMIT 10
    """,
    "carriers": """
        SELECT carrier, count(*) AS flights, round(100 * avg(CAST(delay_minutes <= 15 AS INT)), 1) AS on_time_percent
        FROM departures GROUP BY carrier ORDER BY flights DESC
    """,
    "hours": """
        SELECT month(scheduled) AS month, hour(scheduled) AS hour, count(*) AS departures,
               round(avg(delay_minutes), 1) AS mean_delay
        FROM (SELECT *, new_york - make_dt_interval(0, 0, delay_minutes) AS scheduled FROM departures)
        GROUP BY month, hour HAVING count(*) >= 30 ORDER BY month, hour
    """,
    "days": """
        SELECT date_format(new_york, 'yyyy-MM-dd') AS day, count(*) AS departures,
               round(avg(delay_minutes), 1) AS mean_delay
        FROM departures GROUP BY day ORDER BY day
    """,
    "alerts": """
        SELECT date_format(date_trunc('hour', new_york), 'yyyy-MM-dd HH:00') AS hour, count(*) AS departures,
               round(avg(delay_minutes)) AS mean_delay,
               round(100 * avg(CAST(delay_minutes > 60 AS INT))) AS over_an_hour_percent
        FROM departures GROUP BY hour HAVING count(*) >= 20 AND mean_delay > 90 ORDER BY mean_delay DESC
    """,
    "abuse": """
        SELECT tail, flight, route, date_format(arrived, 'dd MMM HH:mm') AS lands,
               next_flight, next_route, date_format(next_departed, 'dd MMM HH:mm') AS leaves,
               round((unix_timestamp(next_departed) - unix_timestamp(arrived)) / 60) AS minutes_there,
               round(distance_miles / 700 * 60) AS minutes_needed
        FROM (
            SELECT *, lead(departed) OVER one AS next_departed, lead(flight) OVER one AS next_flight,
                   lead(route) OVER one AS next_route, lead(origin) OVER one AS next_origin
            FROM trips WINDOW one AS (PARTITION BY tail ORDER BY departed, trip)
        )
        WHERE next_origin <> destination
          AND unix_timestamp(next_departed) - unix_timestamp(arrived) < distance_miles / 700 * 3600
        ORDER BY minutes_there - minutes_needed, tail
    """,
    "months": """
        WITH routes AS (
            SELECT month(new_york) AS month, route, count(*) AS flights FROM departures GROUP BY month, route
        ), days AS (
            SELECT month(new_york) AS month, dayofmonth(new_york) AS day, avg(delay_minutes) AS delay
            FROM departures GROUP BY month, day
        ), landed AS (
            SELECT month(from_utc_timestamp(departed, 'America/New_York')) AS month, count(*) AS flights,
                   round(avg(arrival_delay), 1) AS arrival_delay,
                   round(100 * avg(CAST(arrival_delay <= 15 AS INT)), 1) AS on_time_percent
            FROM trips GROUP BY month
        )
        SELECT date_format(make_date(2013, l.month, 1), 'MMM') AS month, l.flights, l.arrival_delay, l.on_time_percent,
               (SELECT max_by(route, flights) FROM routes r WHERE r.month = l.month) AS busiest_route,
               (SELECT max_by(day, delay) FROM days d WHERE d.month = l.month) AS worst_day
        FROM landed l WHERE l.month IS NOT NULL ORDER BY l.month
    """,
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
    """One of the reports, by name."""
    return _rows(spark, _REPORTS[name])


REPORT_NAMES = tuple(_REPORTS)


def _rows(spark: SparkSession, query: str) -> list[Row]:
    return [row.asDict() for row in spark.sql(query).collect()]
