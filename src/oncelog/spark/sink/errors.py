"""Errors of the sink: one line each, for the person who runs the query."""

from __future__ import annotations

from oncelog.spark.errors import SparkSourceError


class SinkError(SparkSourceError):
    """Anything the sink refuses to do."""
