"""Operational monitoring: a measure over time, and the windows in which it is out of bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncelog.spark.reports.windows import By, counted, windowed
from oncelog.spark.session.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
