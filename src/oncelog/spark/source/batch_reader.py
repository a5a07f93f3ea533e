"""A batch query's reader as PySpark calls it: the driver plans ranges once, tasks read them.

With option ``pushdown``, ``filtering_reader`` also accepts filters if Spark offers them to Python sources.
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
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._bounds = RangeBounds()

    def partitions(self) -> list[InputPartition]:
        options, bounds = self._options, self._bounds
        if options.ranges is not None:
            return [clip for offset_range in options.ranges if (clip := bounds.clip(offset_range)) is not None]
        with open_client(options) as client:
            planner = OffsetPlanner(client, options)
            partitions = planner.partitions()
            topic_ids = planner.topic_ids(partitions)  # before the offsets: a topic replaced meanwhile then fails
            end = planner.ending(partitions)
            start = planner.starting(partitions, AtOffsets("earliest"))
            start = planner.within_log(start, end)
            if bounds.from_ms is not None:
                first = planner.at_or_after(start, bounds.from_ms)
                start = {partition: max(offset, first[partition]) for partition, offset in start.items()}
        ranges = [
            clip
            for offset_range in ranges_between(start, end, topic_ids)
            if (clip := bounds.clip(offset_range)) is not None
        ]
        return list(divide(ranges, options.min_partitions, options.max_records_per_partition))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range. PySpark passes None as the partition if there are no ranges."""
        return rows_of(self._options, partition)


def rows_of(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from oncelog.spark.source.read.range_reader import read_range  # needed by executors, not by the planning process

    return read_range(options, partition) if isinstance(partition, OffsetRange) else iter(())
