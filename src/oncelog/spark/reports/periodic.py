"""The periodic report: a line for each day, week, month, quarter or year."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.spark.reports.windows import By, counted, names, watermarked
from oncelog.spark.session.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
