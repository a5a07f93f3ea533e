"""A batch query's readers, as PySpark calls them: ranges planned once on the driver, rows read by tasks.

With option ``pushdown`` the reader takes filters, too. It is a class of its own, because Spark refuses any reader that
has ``pushFilters`` unless ``spark.sql.python.filterPushdown.enabled`` is on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from oncelog.spark.source.options import AtOffsets, SourceOptions
from oncelog.spark.source.plan.offset_planner import OffsetPlanner, open_client
from oncelog.spark.source.plan.offset_ranges import OffsetRange, divide, ranges_between
from oncelog.spark.source.plan.pushdown import PushedFilters

if TYPE_CHECKING:
    import pyarrow as pa


class OncelogReader(DataSourceReader):
    """Plans a batch query once and reads its ranges."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """The ranges of the query: one per partition, more with ``minPartitions`` or ``maxRecordsPerPartition``."""
        options, pushed = self._options, self._pushed
        if options.ranges is not None:
            return [part for one in options.ranges if (part := pushed.narrowed(one)) is not None]
        with open_client(options) as client:
            planner = OffsetPlanner(client, options)
            partitions = planner.partitions()
            topic_ids = planner.topic_ids(partitions)  # before any offset: they have to be of these topics, or fail
            end = planner.ending(partitions)
            start = planner.starting(partitions, AtOffsets("earliest"))
            start = planner.within_log(start, end)
            if pushed.from_ms is not None:
                first = planner.at_or_after(start, pushed.from_ms)
                start = {partition: max(offset, first[partition]) for partition, offset in start.items()}
        ranges = [part for one in ranges_between(start, end, topic_ids) if (part := pushed.narrowed(one)) is not None]
        return list(divide(ranges, options.min_partitions, options.max_records_per_partition))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range; PySpark makes up a partition of None when there are none."""
        return rows_of(self._options, partition)


class FilteringReader(OncelogReader):
    """A reader that narrows its ranges by filters on ``partition``, ``offset`` and ``timestamp``."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's name
        """Take in filters; those that Spark has to apply still are returned."""
        return [one for one in filters if not self._pushed.take(one)]


def rows_of(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a range that was planned here."""
    from oncelog.spark.source.read.range_reader import read_range  # executors need it, the planning process does not

    return read_range(options, partition) if isinstance(partition, OffsetRange) else iter(())
