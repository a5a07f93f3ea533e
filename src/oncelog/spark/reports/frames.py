"""The reports as functions of DataFrames: feed, relevance, monitoring, abuse and periods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.spark.session.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


By = Sequence[str] | str


def names(by: By) -> list[str]:
    return [by] if isinstance(by, str) else list(by)


def watermarked(frame: DataFrame, time: str, late: str | None) -> DataFrame:
    """A stream with its watermark; a batch unchanged. Raises OptionError for a stream without ``late``."""
    if not frame.isStreaming:
        return frame
    if late is None:
        raise OptionError("a report over a stream needs 'late': how much later than others an event may come, '1 hour'")
    return frame.withWatermark(time, late)


def counted(measures: Mapping[str, Column] | None, count: str) -> list[Column]:
    from pyspark.sql import functions as f

    return [f.count(f.lit(1)).alias(count), *(column.alias(name) for name, column in (measures or {}).items())]


def windowed(
    frame: DataFrame, time: str, window: str, by: By, measures: Sequence[Column], late: str | None
) -> DataFrame:
    """Aggregate by time window and group: ``start``, ``end``, the groups, the measures."""
    from pyspark.sql import functions as f

    grouped = watermarked(frame, time, late).groupBy(f.window(time, window).alias("_window"), *names(by))
    aggregated = grouped.agg(*measures)
    start, end = f.col("_window.start").alias("start"), f.col("_window.end").alias("end")
    return aggregated.select(start, end, *(column for column in aggregated.columns if column != "_window"))


def feed(
    frame: DataFrame, time: str | Column, *columns: str | Column, limit: int = 10, where: Column | None = None
) -> DataFrame:
    """The ``limit`` newest rows by ``time`` with ``columns`` (default: all); for a stream, every row as it arrives.

    >>> feed(events, "time", "flight", "route", limit=20).show()  # doctest: +SKIP
    """
    rows = frame if where is None else frame.where(where)
    if not frame.isStreaming:
        from pyspark.sql import functions as f

        order = f.col(time) if isinstance(time, str) else time
        rows = rows.orderBy(order.desc()).limit(limit)
    return rows.select(*columns) if columns else rows


def relevance(
    frame: DataFrame,
    by: By,
    *,
    top: int | None = None,
    count: str = "count",
    measures: Mapping[str, Column] | None = None,
    time: str | None = None,
    window: str | None = None,
    late: str | None = None,
) -> DataFrame:
    """The count of each value of ``by``, highest first, with other ``measures`` (name → aggregate).

    ``time`` and ``window`` (``"1 hour"``) count each window separately, with ``start`` and ``end`` first; a stream
    needs both. ``top`` limits the rows of a batch; group names break ties.

    >>> relevance(departures, "route", top=10, count="flights")  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    aggregates = counted(measures, count)
    if time is not None and window is not None:
        counts = windowed(frame, time, window, by, aggregates, late)
        order = [f.col("start"), f.col(count).desc(), *(f.col(name) for name in names(by))]
    else:
        counts = frame.groupBy(*names(by)).agg(*aggregates)
        order = [f.col(count).desc(), *(f.col(name) for name in names(by))]
    if frame.isStreaming:
        return counts
    return counts.orderBy(*order) if top is None else counts.orderBy(*order).limit(top)


def monitor(
    frame: DataFrame,
    time: str,
    value: str,
    *,
    window: str = "1 hour",
    by: By = (),
    measures: Mapping[str, Column] | None = None,
    late: str | None = None,
) -> DataFrame:
    """``start``, ``end``, ``count``, ``mean``, ``lowest``, ``highest`` of ``value``, and ``measures``, for each window
    of ``time`` and group ``by``.

    >>> monitor(departures, "time", "delay_minutes", window="1 hour", by="origin")  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    aggregates = {"mean": f.avg(value), "lowest": f.min(value), "highest": f.max(value), **(measures or {})}
    return windowed(frame, time, window, by, counted(aggregates, "count"), late)


def alerts(
    monitored: DataFrame,
    *,
    mean_above: float | None = None,
    mean_below: float | None = None,
    at_least: int = 1,
    silent_below: int | None = None,
) -> DataFrame:
    """The windows of ``monitor`` that are out of bounds, with the ``reason``.

    ``mean_above`` and ``mean_below`` bound the mean of windows with ``at_least`` rows. ``silent_below`` reports windows
    with fewer rows, but not those with none, which have no row here.

    >>> alerts(monitored, mean_above=90, at_least=20)  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    enough, mean = f.col("count") >= at_least, f.col("mean")
    reasons = []
    if mean_above is not None:
        reasons.append(f.when(enough & (mean > mean_above), f.lit(f"mean over {mean_above:g}")))
    if mean_below is not None:
        reasons.append(f.when(enough & (mean < mean_below), f.lit(f"mean under {mean_below:g}")))
    if silent_below is not None:
        reasons.append(f.when(f.col("count") < silent_below, f.lit(f"fewer than {silent_below} events")))
    if not reasons:
        raise OptionError("alerts need a bound: mean_above, mean_below or silent_below")
    return monitored.withColumn("reason", f.coalesce(*reasons)).where(f.col("reason").isNotNull())


def too_often(
    frame: DataFrame, who: By, time: str, *, at_most: int, window: str = "1 minute", late: str | None = None
) -> DataFrame:
    """The groups ``who`` with more than ``at_most`` rows in a ``window``: ``start``, ``end``, ``who``, ``count``.

    >>> too_often(requests, "client_ip", "time", at_most=100, window="10 seconds")  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    windows = windowed(frame, time, window, who, counted(None, "count"), late)
    return windows.where(f.col("count") > at_most)


def impossible(
    frame: DataFrame, who: str, begins: str, ends: str, *, came_to: str, leaves_from: str, seconds_needed: Column
) -> DataFrame:
    """Pairs of consecutive rows of one ``who`` in which the next begins elsewhere, sooner than it could get there.

    Each row is a stay or a trip: it ``begins`` and ``ends`` (timestamps), from ``leaves_from`` to ``came_to``.
    ``seconds_needed`` is the minimum time between, an expression over the first row. Returns the first row's columns,
    the next row's with the prefix ``next_``, ``seconds_there`` and ``seconds_needed``. Batches only: a stream does not
    know the next row.

    >>> impossible(trips, "tail", "departed", "arrived", came_to="destination", leaves_from="origin",
    ...            seconds_needed=f.col("distance_miles") / 700 * 3600)  # doctest: +SKIP
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if frame.isStreaming:
        raise OptionError("'impossible' compares consecutive rows, which a stream does not have: use it on batches")
    order = Window.partitionBy(who).orderBy(begins, ends)
    coming = [f.lead(column).over(order).alias(f"next_{column}") for column in frame.columns]
    pairs = frame.select("*", *coming)
    seconds_between = f.unix_timestamp(f"next_{begins}") - f.unix_timestamp(ends)
    timed = pairs.withColumn("seconds_there", seconds_between).withColumn("seconds_needed", seconds_needed)
    elsewhere = f.col(f"next_{leaves_from}") != f.col(came_to)
    return timed.where(elsewhere & (f.col("seconds_there") < f.col("seconds_needed")))


PERIODS: Final = ("hour", "day", "week", "month", "quarter", "year")


def periodic(
    frame: DataFrame,
    time: str,
    every: str,
    *,
    by: By = (),
    measures: Mapping[str, Column] | None = None,
    zone: str | None = None,
    count: str = "count",
    late: str | None = None,
) -> DataFrame:
    """``period`` (its start), the groups ``by``, ``count`` and ``measures``, in order of time.

    ``every`` is one of ``PERIODS``; ``zone`` is the time zone of midnight (``America/New_York``), by default the
    session's. For a stream, open periods are updated as rows arrive.

    >>> periodic(flights, "time", "month", measures={"delay": f.avg("delay_minutes")})  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    if every not in PERIODS:
        raise OptionError(f"a report's period must be one of {', '.join(PERIODS)}, got {every!r}")
    local_time = f.col(time) if zone is None else f.from_utc_timestamp(f.col(time), zone)
    source = watermarked(frame, time, late)
    grouped = source.groupBy(f.date_trunc(every, local_time).alias("period"), *names(by)).agg(*counted(measures, count))
    return grouped if frame.isStreaming else grouped.orderBy("period", *names(by))
