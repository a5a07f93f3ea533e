"""A Python data source that does nothing: it yields one Arrow batch that is ready again and again.

What Spark makes of it is the most that any Python data source can reach on a machine; how near our source comes says
whether Spark is the limit. Same columns as the connector's, batches as large as our source's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oncelog.spark.source.data_source import source_schema
from oncelog.spark.source.options import parse_options

if TYPE_CHECKING:
    import pyarrow as pa

_BESIDE = 50
"""Bytes of the other columns of a row."""
_OPTIONS = parse_options({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "nothing"})


class Ceiling(DataSource):
    """Options ``rows``, ``partitions``, ``bytes`` (of a value), ``batch`` (bytes of a batch, as our source has)."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "ceiling"

    def schema(self) -> StructType:
        """The connector's columns."""
        return source_schema(_OPTIONS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader."""
        return _Reader(*(int(self.options[name]) for name in ("rows", "partitions", "bytes", "batch")))


class _Reader(DataSourceReader):
    def __init__(self, rows: int, partitions: int, size: int, batch: int) -> None:
        self._rows, self._partitions, self._size, self._batch = rows, partitions, size, batch

    def partitions(self) -> list[InputPartition]:
        """So many tasks."""
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Its share of the rows."""
        left = self._rows // self._partitions
        batch = _batch(max(1, self._batch // (self._size + _BESIDE)), self._size)
        while left > 0:
            part = batch.slice(0, left)
            left -= part.num_rows
            yield part


def _batch(rows: int, size: int) -> pa.RecordBatch:
    """Made without ``pa.array``, which would import pandas: 40 MB that no source needs."""
    import numpy as np
    import pyarrow as pa

    from oncelog.records.columns.arrow_arrays import constant_string_column, number_column

    def same(value: bytes) -> pa.Array[Any]:
        offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(value))
        return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets.data), pa.py_buffer(value * rows)])

    zeros = np.zeros(rows, np.int32)
    columns: dict[str, pa.Array[Any]] = {
        "key": same(b"12345678"),
        "value": same(os.urandom(size)),
        "topic": constant_string_column("a topic", rows),
        "partition": number_column(zeros, pa.int32()),
        "offset": number_column(np.arange(rows), pa.int64()),
        "timestamp": number_column(np.full(rows, 1_700_000_000_000_000), pa.timestamp("us", "UTC")),
        "timestampType": number_column(zeros, pa.int32()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
