"""A batch query's readers, as PySpark calls them: ranges planned once on the driver, rows read by tasks.

With option ``pushdown`` ``filtering_reader`` takes filters, too, where Spark has any for Python sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from oncelog.spark.session.pickling import VersionedPickle
from oncelog.spark.source.offset_ranges import OffsetRange, RangeBounds, divide, ranges_between
from oncelog.spark.source.options import AtOffsets, SourceOptions
from oncelog.spark.source.plan.offset_planner import OffsetPlanner, open_client

if TYPE_CHECKING:
    import pyarrow as pa


class OncelogReader(VersionedPickle, DataSourceReader):
    """Plans a batch query once and reads its ranges."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._bounds = RangeBounds()

    def partitions(self) -> list[InputPartition]:
        """The ranges of the query: one per partition, more with ``minPartitions`` or ``maxRecordsPerPartition``."""
        options, bounds = self._options, self._bounds
        if options.ranges is not None:
            return [part for one in options.ranges if (part := bounds.narrowed(one)) is not None]
        with open_client(options) as client:
            planner = OffsetPlanner(client, options)
            partitions = planner.partitions()
            topic_ids = planner.topic_ids(partitions)  # before any offset: they have to be of these topics, or fail
            end = planner.ending(partitions)
            start = planner.starting(partitions, AtOffsets("earliest"))
            start = planner.within_log(start, end)
            if bounds.from_ms is not None:
                first = planner.at_or_after(start, bounds.from_ms)
                start = {partition: max(offset, first[partition]) for partition, offset in start.items()}
        ranges = [part for one in ranges_between(start, end, topic_ids) if (part := bounds.narrowed(one)) is not None]
        return list(divide(ranges, options.min_partitions, options.max_records_per_partition))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range; PySpark makes up a partition of None when there are none."""
        return rows_of(self._options, partition)


def rows_of(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a range that was planned here."""
    from oncelog.spark.source.read.range_reader import read_range  # executors need it, the planning process does not

    return read_range(options, partition) if isinstance(partition, OffsetRange) else iter(())
