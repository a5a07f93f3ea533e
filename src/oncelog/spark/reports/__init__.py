"""Reports over an activity stream, as functions from DataFrames to DataFrames, for batches and streams alike.

A stream needs ``late`` (its watermark) and a sink that accepts updates. Nothing is collected, cached or written here,
and no UDF is used.
"""

from oncelog.spark.reports.frames import alerts, feed, impossible, monitor, periodic, relevance, too_often
from oncelog.spark.reports.plots import Plot, bars, heat, line, page

__all__ = [
    "Plot",
    "alerts",
    "bars",
    "feed",
    "heat",
    "impossible",
    "line",
    "monitor",
    "page",
    "periodic",
    "relevance",
    "too_often",
]
