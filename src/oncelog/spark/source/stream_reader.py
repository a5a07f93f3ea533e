"""A streaming query's reader, as PySpark calls it: offsets in JSON, ranges, rows.

Nothing is kept in it but the options and what the driver's process remembers between micro-batches: the offsets that
``Trigger.AvailableNow`` stops at, when the last batch was admitted, and a client. A copy that is pickled to a task
has none of these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from oncelog.spark.source.batch_reader import rows_of
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.plan.read_limits import ReadLimits
from oncelog.spark.source.plan.stream_planner import StreamPlanner
from oncelog.spark.source.plan.stream_position import Position

if TYPE_CHECKING:
    import pyarrow as pa


class OncelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches. Offsets are topic → partition → next offset, as in the connector's checkpoints."""

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
        self._target: Position | None = None
        self._latest: Position | None = None
        self._end: Position | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The offsets at which a new query begins: the log's end unless ``startingOffsets`` says otherwise."""
        return self._planner.initial().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """Remember where the log ends now; this run reads no further, and waits for nothing."""
        self._target = self._planner.latest()
        self._limits.min_offsets = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """``maxOffsetsPerTrigger``, or ``minOffsetsPerTrigger`` where that is all there is."""
        highest, lowest = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if highest is not None:
            return ReadMaxRows(highest)
        return ReadAllAvailable() if lowest is None else ReadMinRows(lowest)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The end of the next micro-batch; ``start`` when it is held back. New partitions begin at their beginning."""
        begin = Position.from_json(start)
        self._latest = latest = self._planner.latest_after(begin, self._target)
        self._end = latest
        if not isinstance(limit, ReadAllAvailable):
            first = self._planner.starting_offsets(begin, latest)
            until = self._limits.end_of_batch(first, latest.offsets, time.monotonic_ns() // 1_000_000)
            if until is None:
                self._end = begin
                return dict(start)
            self._end = Position(until, latest.topic_ids)
        return self._end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - PySpark's name
        """The logs' ends for the query's progress, with notes under keys that begin with ``@``."""
        latest = self._latest if self._latest is not None else self._planner.latest()
        return self._planner.report(self._end, latest, time.monotonic_ns() // 1_000_000)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The ranges of one micro-batch."""
        return list(self._planner.ranges(Position.from_json(start), Position.from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        return rows_of(self._options, partition)

    def stop(self) -> None:
        """Close the client: the query is over."""
        self._planner.close()
