"""Topics in Spark: the ``oncelog`` source, and loading topics into a table exactly once. Needs the ``spark`` extra.

Names are imported when they are asked for: Spark imports every ``pyspark_*`` package in a process of its own whenever
a Python data source is looked up, and the source alone needs neither numpy nor pyarrow there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.spark.compacting import compact
    from oncelog.spark.errors import DataLoss, OptionError, SparkSourceError
    from oncelog.spark.loading import LoadReport, load
    from oncelog.spark.shaping import Shape
    from oncelog.spark.source import OncelogSource
    from oncelog.spark.streaming import StreamRequest, stream
    from oncelog.spark.transacting import transaction
    from oncelog.spark.values import decode_values

__all__ = [
    "DataLoss",
    "LoadReport",
    "OncelogSource",
    "OptionError",
    "Shape",
    "SparkSourceError",
    "StreamRequest",
    "compact",
    "decode_values",
    "load",
    "register",
    "stream",
    "transaction",
]

_MODULES = {
    "DataLoss": "errors",
    "LoadReport": "loading",
    "OncelogSource": "source",
    "OptionError": "errors",
    "Shape": "shaping",
    "SparkSourceError": "errors",
    "StreamRequest": "streaming",
    "compact": "compacting",
    "decode_values": "values",
    "load": "loading",
    "stream": "streaming",
    "transaction": "transacting",
}


def __getattr__(name: str) -> Any:
    """Import one of the public names."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def register(spark: SparkSession) -> None:
    """Make ``format("oncelog")`` known to a session.

    Spark finds it by itself where the package is installed; this is for sessions started before that was so.
    """
    from oncelog.spark.source import OncelogSource

    spark.dataSource.register(OncelogSource)
