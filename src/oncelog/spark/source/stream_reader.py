"""The part of a streaming reader common to all Spark versions: a new query's start, a micro-batch's ranges and rows.

``admission_reader`` and ``self_limited_reader`` add where micro-batches end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from oncelog.spark.session.pickling import VersionedPickle
from oncelog.spark.source.batch_reader import rows_of
from oncelog.spark.source.offset_ranges import ReadLimits
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.plan.stream_planner import StreamPlanner
from oncelog.spark.source.stream_position import Position

if TYPE_CHECKING:
    import pyarrow as pa


class OncelogStreamReader(VersionedPickle, DataSourceStreamReader):
    """Offsets are topic → partition → next offset, as in the checkpoints of Spark's Kafka connector."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        # A task needs neither the client nor what the driver remembers between micro-batches.
        return {"_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._options = state["_options"]
        self._forget()

    def _forget(self) -> None:
        options = self._options
        self._planner = StreamPlanner(options)
        self._limits = ReadLimits(
            options.min_offsets_per_trigger, options.max_offsets_per_trigger, options.max_trigger_delay_ms
        )

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The offsets at which a new query begins: the logs' ends unless ``startingOffsets`` is set."""
        return self._planner.initial().to_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        return list(self._planner.ranges(Position.from_json(start), Position.from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self._options, partition)

    def stop(self) -> None:
        self._planner.close()
