"""Reports over an activity stream, as functions from DataFrames to DataFrames: what such a stream is kept for.

``feed`` (the latest events), ``relevance`` (what is used most), ``monitor`` with ``alerts``, ``too_often`` and
``impossible`` (abuse), ``periodic`` (a line for each day, week or month), ``plots`` (HTML and PNG). Batch and streaming
take the same calls: a streaming frame needs ``late`` (its watermark), and a sink that takes updates.

The rule: columns in, columns out; nothing is collected, cached or written here, and no UDF is used.
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
