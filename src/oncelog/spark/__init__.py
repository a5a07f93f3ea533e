"""oncelog for Spark: the ``oncelog`` source and sink, and jobs that load topics into tables exactly once.

Needs the ``spark`` extra. ``session`` is the base of every room; ``source`` and ``sink`` are the two sides of
``format``, which Spark calls. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from oncelog.spark.format.data_source import OncelogSource, register
    from oncelog.spark.format.foreach_batch import transaction
    from oncelog.spark.jobs.load_report import LoadReport
    from oncelog.spark.jobs.shape import Shape
    from oncelog.spark.jobs.stream_query import StreamRequest
    from oncelog.spark.session.errors import DataLoss, OptionError, SparkSourceError
    from oncelog.spark.source.value_formats import decode_values
    from oncelog.spark.targets.entry import compact, load, stream

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

# Whenever a Python data source is looked up, Spark imports every pyspark_* package in a separate process, where the
# source needs neither numpy nor pyarrow. No module may share its name with a public function (load, stream, compact,
# transaction): importing the module would replace the function.
_ELSEWHERE: Final = {
    "DataLoss": ".session.errors",
    "LoadReport": ".jobs.load_report",
    "OncelogSource": ".format.data_source",
    "OptionError": ".session.errors",
    "Shape": ".jobs.shape",
    "SparkSourceError": ".session.errors",
    "StreamRequest": ".jobs.stream_query",
    "compact": ".targets.entry",
    "decode_values": ".source.value_formats",
    "load": ".targets.entry",
    "register": ".format.data_source",
    "stream": ".targets.entry",
    "transaction": ".format.foreach_batch",
}

__getattr__ = lazy_names(__name__, _ELSEWHERE)
