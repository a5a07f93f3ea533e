"""``format("oncelog")``: topics as a Spark source, batch and streaming, in Python (PySpark's Python data source API).

The columns and option names are those of Spark's Kafka connector, so a query changes by the name of its format only.
The driver plans offsets (``offsets``), each task reads a range (``reading``); nothing is kept between them but the
options and the offsets Spark itself keeps, in the same JSON as the connector's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncelog.spark.errors import DataLoss, OptionError
from oncelog.spark.offsets import Planner, open_client
from oncelog.spark.options import AtOffsets, SourceOptions, parse_options
from oncelog.spark.ranges import (
    OffsetRange,
    Offsets,
    divide,
    from_json_offsets,
    limit_rows,
    ranges_between,
    to_json_offsets,
)

if TYPE_CHECKING:
    import pyarrow as pa

SHORT_NAME = "oncelog"

_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def source_schema(*, include_headers: bool) -> StructType:
    """The columns a query gets."""
    return StructType([*_COLUMNS, StructField("headers", ArrayType(_HEADER))] if include_headers else _COLUMNS)


class OncelogSource(DataSource):
    """Topics of a Kafka cluster (oncelog or Apache Kafka) as a DataFrame."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SHORT_NAME

    def schema(self) -> StructType:
        """The connector's columns. Raises OptionError, so that a wrong option fails when the query is written."""
        return source_schema(include_headers=self._parsed().include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch query's reader."""
        return OncelogReader(self._checked(self._parsed().check_batch(), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        """A streaming query's reader."""
        return OncelogStreamReader(self._checked(self._parsed().check_stream(), schema))

    def _parsed(self) -> SourceOptions:
        return parse_options(self.options)

    def _checked(self, options: SourceOptions, schema: StructType) -> SourceOptions:
        if schema != source_schema(include_headers=options.include_headers):
            raise OptionError("Kafka source has a fixed schema and cannot be set with a custom one")
        return options


class OncelogReader(DataSourceReader):
    """Plans a batch query once and reads its ranges."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One range per partition, more with ``minPartitions`` or ``maxRecordsPerPartition``."""
        options = self._options
        if options.ranges is not None:
            return list(options.ranges)
        with open_client(options) as client:
            planner = Planner(client, options)
            partitions = planner.partitions()
            end = planner.ending(partitions)
            start = planner.starting(partitions, AtOffsets("earliest"))
            start = planner.within_log(start, end)
        return list(divide(ranges_between(start, end), options.min_partitions, options.max_records_per_partition))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range; PySpark makes up a partition of None when there are none."""
        return _read(self._options, partition)


class OncelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches. Offsets are topic → partition → next offset, as in the connector's checkpoints."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """Where a new query begins: at the log's end unless ``startingOffsets`` says otherwise."""
        with open_client(self._options) as client:
            planner = Planner(client, self._options)
            return to_json_offsets(planner.starting(planner.partitions(), AtOffsets("latest")))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """Remember where the log ends now; this run reads no further."""
        self._target = self._latest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """``maxOffsetsPerTrigger``."""
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The end of the next micro-batch. New partitions are read from their beginning."""
        begin = from_json_offsets(start)
        end = dict(self._target) if self._target is not None else self._latest()
        for partition, offset in begin.items():
            if end.setdefault(partition, offset) < offset:
                self._lost(DataLoss(partition, offset, end[partition], "the log ends there; was it created anew?"))
        if isinstance(limit, ReadMaxRows):
            new = [partition for partition in end if partition not in begin]
            end = limit_rows({**begin, **self._earliest(new)}, end, limit.max_rows)
        return to_json_offsets(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - PySpark's name
        """Where the log ends, for the query's status."""
        return to_json_offsets(self._latest())

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The ranges of one micro-batch."""
        options, begin, until = self._options, from_json_offsets(start), from_json_offsets(end)
        with open_client(options) as client:
            planner = Planner(client, options)
            new = planner.earliest(partition for partition in until if partition not in begin)
            for partition, first in new.items():
                if first > 0:
                    self._lost(DataLoss(partition, 0, first, "a new partition does not begin at 0"))
            begin = planner.within_log({**begin, **new}, until)
        return list(divide(ranges_between(begin, until), options.min_partitions, options.max_records_per_partition))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        return _read(self._options, partition)

    def _latest(self) -> Offsets:
        with open_client(self._options) as client:
            planner = Planner(client, self._options)
            return planner.latest(planner.partitions())

    def _earliest(self, partitions: list[Any]) -> Offsets:
        if not partitions:
            return {}
        with open_client(self._options) as client:
            return Planner(client, self._options).earliest(partitions)

    def _lost(self, loss: DataLoss) -> None:
        if self._options.fail_on_data_loss:
            raise loss


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from oncelog.spark.reading import read_range  # executors need it, the planning process does not

    return read_range(options, partition) if isinstance(partition, OffsetRange) else iter(())
