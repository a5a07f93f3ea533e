"""A Python data source that does nothing: it yields one Arrow batch that is ready again and again. As a sink it drops
what it gets.

What Spark makes of it is the most that any Python data source can reach on a machine; how near our source comes says
whether Spark is the limit. Same columns as the connector's, batches as large as our source's, and the rows of the
topics that the others read: the same values, rising offsets. Rows that are all alike would cost Parquet's writer less.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bench.texts import texts
from oncelog.spark.format.data_source import source_schema
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

    def writer(self, schema: StructType, overwrite: bool) -> _Dropper:
        """The writer."""
        return _Dropper()


class _Dropper(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # PySpark's own
        """Read the rows to their end."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


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
        first = 0
        while first < left:
            yield _at_offset(batch, first).slice(0, left - first)
            first += batch.num_rows


def _at_offset(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The batch with offsets from ``first`` on."""
    import numpy as np
    import pyarrow as pa

    from oncelog.records.columns.arrow_arrays import number_column

    offsets = number_column(np.arange(first, first + batch.num_rows), pa.int64())
    return batch.set_column(batch.schema.get_field_index("offset"), batch.schema.field("offset"), offsets)


def _batch(rows: int, size: int) -> pa.RecordBatch:
    """Made without ``pa.array``, which would import pandas: 40 MB that no source needs."""
    import numpy as np
    import pyarrow as pa

    from oncelog.records.columns.arrow_arrays import constant_string_column, number_column

    def binary(values: list[bytes]) -> pa.Array[Any]:
        """The values, all of one length, again and again."""
        offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(values[0]))
        data = b"".join(islice(cycle(values), rows))
        return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets.data), pa.py_buffer(data)])

    zeros = np.zeros(rows, np.int32)
    columns: dict[str, pa.Array[Any]] = {
        "key": binary([b"12345678"]),
        "value": binary(texts(size)),
        "topic": constant_string_column("a topic", rows),
        "partition": number_column(zeros, pa.int32()),
        "offset": number_column(np.arange(rows), pa.int64()),
        "timestamp": number_column(np.full(rows, 1_700_000_000_000_000), pa.timestamp("us", "UTC")),
        "timestampType": number_column(zeros, pa.int32()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
