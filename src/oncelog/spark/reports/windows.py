"""Measures by name, windows of time and watermarks of streams, for all reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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
