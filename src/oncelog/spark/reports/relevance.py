"""Relevance: the most used values, counted from the stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncelog.spark.reports.windows import By, counted, names, windowed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
