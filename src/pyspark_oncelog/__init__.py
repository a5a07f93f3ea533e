"""Lets Spark find ``format("oncelog")`` without registration: it looks into every top-level ``pyspark_*`` package."""

from oncelog.spark.format.data_source import OncelogSource as DefaultSource

__all__ = ["DefaultSource"]
