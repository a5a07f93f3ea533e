"""Ranges of old files as a Spark source, a task each. For ``load`` alone: the ranges are an option of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oncelog.spark import versions
from oncelog.spark.old_logs.files import OldLogRange
from oncelog.spark.shipped import Shipped
from oncelog.spark.source.data_source import connector_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SHORT_NAME: Final = "oncelog-old-logs"


class OldLogSource(DataSource):
    """Files of old logs as a DataFrame with the columns of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SHORT_NAME

    def schema(self) -> StructType:
        """The connector's columns."""
        return connector_columns()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of the ranges in the options."""
        return OldLogReader([OldLogRange(**one) for one in json.loads(self.options["ranges"])])


class OldLogReader(Shipped, DataSourceReader):
    """Reads each range in a task of its own."""

    def __init__(self, ranges: Sequence[OldLogRange]) -> None:
        self._ranges = ranges

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges, in their order."""
        return list(self._ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range; PySpark makes up a partition of None when there are none."""
        from oncelog.spark.old_logs.rows import arrow_rows
        from oncelog.spark.table.parquet_files import table_schema

        if isinstance(partition, OldLogRange):
            yield from arrow_rows(partition, table_schema(include_headers=False))


def frame_of(session: SparkSession, ranges: Iterable[OldLogRange]) -> DataFrame:
    """The rows of some ranges, a task each."""
    versions.register(session, OldLogSource)
    return session.read.format(SHORT_NAME).option("ranges", json.dumps([asdict(one) for one in ranges])).load()
