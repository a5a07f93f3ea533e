"""The part of a streaming query's reader that is the same on every version of Spark: where a new query begins, the
ranges of a micro-batch, their rows.

Nothing is kept in it but the options and what the driver's process remembers between micro-batches. A copy that is
pickled to a task has none of these. ``admission_reader`` and ``self_limited_reader`` find where micro-batches end:
with Spark's admission control, and where Spark has none for Python sources.
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
        """The offsets at which a new query begins: the log's end unless ``startingOffsets`` says otherwise."""
        return self._planner.initial().to_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The ranges of one micro-batch."""
        return list(self._planner.ranges(Position.from_json(start), Position.from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        return rows_of(self._options, partition)

    def stop(self) -> None:
        """Close the client: the query is over."""
        self._planner.close()
