"""Topics in Spark: the ``oncelog`` source, and loading topics into a table exactly once. Needs the ``spark`` extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.spark.errors import DataLoss, OptionError, SparkSourceError
from oncelog.spark.loading import LoadReport, load
from oncelog.spark.source import OncelogSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DataLoss", "LoadReport", "OncelogSource", "OptionError", "SparkSourceError", "load", "register"]


def register(spark: SparkSession) -> None:
    """Make ``format("oncelog")`` known to a session.

    Spark finds it by itself where the package is installed; this is for sessions started before that was so.
    """
    spark.dataSource.register(OncelogSource)
