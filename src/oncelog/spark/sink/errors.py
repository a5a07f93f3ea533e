"""What the sink may fail with; each text is one line for the person who runs the query."""

from __future__ import annotations

from oncelog.spark.errors import SparkSourceError


class SinkError(SparkSourceError):
    """Anything the sink refuses to do."""
