"""The reports as functions of frames: feed, relevance, monitoring, abuse and periods.

Measures are counted by name; windows of time and watermarks of streams are the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.spark.session.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


By = Sequence[str] | str


def names(by: By) -> list[str]:
    """Column names, one or many."""
    return [by] if isinstance(by, str) else list(by)


def watermarked(frame: DataFrame, time: str, late: str | None) -> DataFrame:
    """A stream with its watermark; a batch as it is. Raises OptionError for a stream without ``late``."""
    if not frame.isStreaming:
        return frame
    if late is None:
        raise OptionError("a report over a stream needs 'late': how much later than others an event may come, '1 hour'")
    return frame.withWatermark(time, late)


def counted(measures: Mapping[str, Column] | None, count: str) -> list[Column]:
    """The count and the other measures, under their names."""
    from pyspark.sql import functions as f

    return [f.count(f.lit(1)).alias(count), *(column.alias(name) for name, column in (measures or {}).items())]


def windowed(
    frame: DataFrame, time: str, window: str, by: By, measures: Sequence[Column], late: str | None
) -> DataFrame:
    """``start`` and ``end`` of each window of time, the groups, the measures."""
    from pyspark.sql import functions as f

    grouped = watermarked(frame, time, late).groupBy(f.window(time, window).alias("_window"), *names(by))
    found = grouped.agg(*measures)
    start, end = f.col("_window.start").alias("start"), f.col("_window.end").alias("end")
    return found.select(start, end, *(one for one in found.columns if one != "_window"))


def feed(
    frame: DataFrame, time: str | Column, *columns: str | Column, limit: int = 10, where: Column | None = None
) -> DataFrame:
    """The ``limit`` newest rows by ``time`` with ``columns`` (all, if none are named).

    Of a stream every row is given, as it comes: a stream has no newest row, its sink has.

    >>> feed(events, "time", "flight", "route", limit=20).show()  # doctest: +SKIP
    """
    chosen = frame if where is None else frame.where(where)
    if not frame.isStreaming:
        from pyspark.sql import functions as f

        order = f.col(time) if isinstance(time, str) else time
        chosen = chosen.orderBy(order.desc()).limit(limit)
    return chosen.select(*columns) if columns else chosen


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
    """The count of each value of ``by``, highest first, with other ``measures`` (name → aggregate) beside it.

    With ``time`` and ``window`` (``"1 hour"``) for each window on its own: columns ``start`` and ``end`` come first; a
    stream needs them, and ``late``. ``top`` keeps that many rows, of a batch; ties are broken by the groups' names.

    >>> relevance(departures, "route", top=10, count="flights")  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    wanted = counted(measures, count)
    if time is not None and window is not None:
        found = windowed(frame, time, window, by, wanted, late)
        order = [f.col("start"), f.col(count).desc(), *(f.col(one) for one in names(by))]
    else:
        found = frame.groupBy(*names(by)).agg(*wanted)
        order = [f.col(count).desc(), *(f.col(one) for one in names(by))]
    if frame.isStreaming:
        return found
    return found.orderBy(*order) if top is None else found.orderBy(*order).limit(top)


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
    """``start``, ``end``, ``count``, ``mean``, ``lowest``, ``highest`` of ``value`` and ``measures`` for each window of
    ``time`` (and group ``by``).

    >>> monitor(departures, "time", "delay_minutes", window="1 hour", by="origin")  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    known = {"mean": f.avg(value), "lowest": f.min(value), "highest": f.max(value), **(measures or {})}
    return windowed(frame, time, window, by, counted(known, "count"), late)


def alerts(
    monitored: DataFrame,
    *,
    mean_above: float | None = None,
    mean_below: float | None = None,
    at_least: int = 1,
    silent_below: int | None = None,
) -> DataFrame:
    """The windows of ``monitor`` that are out of bounds, with the ``reason``.

    ``mean_above`` and ``mean_below`` are the bounds of what is well, looked at where a window has ``at_least`` rows;
    ``silent_below`` reports windows with fewer rows than that. A window without any row is no row and is not reported.

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

    found = windowed(frame, time, window, who, counted(None, "count"), late)
    return found.where(f.col("count") > at_most)


def impossible(
    frame: DataFrame, who: str, begins: str, ends: str, *, came_to: str, leaves_from: str, seconds_needed: Column
) -> DataFrame:
    """Pairs of neighbouring rows of one ``who`` in which the next begins elsewhere, sooner than it can be there.

    Each row is a stay or a trip: it ``begins`` and ``ends`` (timestamps), from ``leaves_from`` to ``came_to``.
    ``seconds_needed`` is the least time between, an expression over the first row. Gives the first row's columns, those
    of the next with ``next_`` before their names, ``seconds_there`` and ``seconds_needed``. For batches: of a stream,
    the next row is not known (use ``foreachBatch`` over the table that it is loaded into).

    >>> impossible(trips, "tail", "departed", "arrived", came_to="destination", leaves_from="origin",
    ...            seconds_needed=f.col("distance_miles") / 700 * 3600)  # doctest: +SKIP
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if frame.isStreaming:
        raise OptionError("'impossible' looks at neighbouring rows, which a stream does not have: use it on batches")
    order = Window.partitionBy(who).orderBy(begins, ends)
    coming = [f.lead(one).over(order).alias(f"next_{one}") for one in frame.columns]
    pairs = frame.select("*", *coming)
    there = f.unix_timestamp(f"next_{begins}") - f.unix_timestamp(ends)
    found = pairs.withColumn("seconds_there", there).withColumn("seconds_needed", seconds_needed)
    elsewhere = f.col(f"next_{leaves_from}") != f.col(came_to)
    return found.where(elsewhere & (f.col("seconds_there") < f.col("seconds_needed")))


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
    """``period`` (its first moment), the groups ``by``, ``count`` and ``measures``, in order of time.

    ``every`` is one of ``PERIODS``; ``zone`` is where a day begins at midnight (``America/New_York``), otherwise the
    session's. Of a stream the open periods are updated as rows come.

    >>> periodic(flights, "time", "month", measures={"delay": f.avg("delay_minutes")})  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    if every not in PERIODS:
        raise OptionError(f"a report's period must be one of {', '.join(PERIODS)}, got {every!r}")
    there = f.col(time) if zone is None else f.from_utc_timestamp(f.col(time), zone)
    marked = watermarked(frame, time, late)
    grouped = marked.groupBy(f.date_trunc(every, there).alias("period"), *names(by)).agg(*counted(measures, count))
    return grouped if frame.isStreaming else grouped.orderBy("period", *names(by))
