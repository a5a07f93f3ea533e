"""A Spark data source for ranges of old files, one task each. Only ``load`` uses it: the ranges are a private
option."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oncelog.legacy.tables.files import OldLogRange
from oncelog.spark.format.data_source import connector_columns
from oncelog.spark.json_values.decoding import OPTION, JsonDecoding
from oncelog.spark.session import versions
from oncelog.spark.session.pickling import VersionedPickle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SHORT_NAME: Final = "oncelog-old-logs"


class OldLogSource(DataSource):
    """Files of old logs as a DataFrame with the columns of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return SHORT_NAME

    def schema(self) -> StructType:
        decoding = self._decoding()
        added = [] if decoding is None else decoding.added_columns()
        return StructType([*connector_columns().fields, *added])

    def reader(self, schema: StructType) -> DataSourceReader:
        return OldLogReader([OldLogRange(**load) for load in json.loads(self.options["ranges"])], self._decoding())

    def _decoding(self) -> JsonDecoding | None:
        text = self.options.get(OPTION)
        return None if text is None else JsonDecoding.parse(text)


class OldLogReader(VersionedPickle, DataSourceReader):
    def __init__(self, ranges: Sequence[OldLogRange], decoding: JsonDecoding | None) -> None:
        self._ranges, self._decoding = ranges, decoding

    def partitions(self) -> Sequence[InputPartition]:
        return list(self._ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range. PySpark passes an artificial partition if there are none."""
        from oncelog.legacy.tables.rows import arrow_rows
        from oncelog.spark.table.parquet_files import table_schema

        if isinstance(partition, OldLogRange):
            rows = arrow_rows(partition, table_schema(include_headers=False))
            if self._decoding is None:
                yield from rows
                return
            from oncelog.spark.json_values.decoder import JsonDecoder

            yield from map(JsonDecoder(self._decoding).decode, rows)


def frame_of(session: SparkSession, ranges: Iterable[OldLogRange], options: Mapping[str, str]) -> DataFrame:
    versions.register(session, OldLogSource)
    reader = session.read.format(SHORT_NAME).options(**options)
    return reader.option("ranges", json.dumps([asdict(range_) for range_ in ranges])).load()
