"""Abuse detection: somebody does something too often, or is where they cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.spark.reports.windows import By, counted, windowed
from oncelog.spark.session.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
