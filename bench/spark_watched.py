"""Our Spark source with a watch in each task: how long Spark waited for its rows, and how long it waited for Spark.

A task hands Spark a batch and goes on once Spark has taken it. The time until then is Spark's: its Python worker
writes the batch to a socket, its JVM reads it and runs the query. Where that is nearly all of a task's time, Spark is
the limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oncelog.spark.format.data_source import OncelogSource
from oncelog.spark.source.batch_reader import OncelogReader

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = "ONCELOG_BENCH_WATCH"
"""Names the file that each task adds a line to: seconds for our part, seconds for Spark's."""


class Watched(OncelogSource):
    """As ``format("oncelog")`` in batches."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "watched"

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader whose tasks are watched."""
        return _Reader(self._checked(self._parsed().check_batch(), schema))


class _Reader(OncelogReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        ours = spark = 0.0
        counter = time.perf_counter()
        for batch in super().read(partition):
            given = time.perf_counter()
            ours += given - counter
            yield batch
            counter = time.perf_counter()
            spark += counter - given
        ours += time.perf_counter() - counter
        with Path(os.environ[LOG]).open("a", encoding="ascii") as log:
            log.write(f"{ours} {spark}\n")


def spark_share(log: Path) -> float:
    """Of the tasks' time since the last call, the part that was Spark's; 0 without tasks."""
    ours = spark = 0.0
    for line in log.read_text(encoding="ascii").splitlines():
        mine, its = map(float, line.split())
        ours, spark = ours + mine, spark + its
    log.write_text("", encoding="ascii")
    return spark / (ours + spark) if ours + spark else 0.0
