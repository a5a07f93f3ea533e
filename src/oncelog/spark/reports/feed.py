"""The live feed: the latest events, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
