"""The streaming reader for a Spark with admission control for Python sources.

Spark requests each micro-batch with its start and a limit, and announces ``Trigger.AvailableNow`` beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from oncelog.spark.source.stream_position import Position
from oncelog.spark.source.stream_reader import OncelogStreamReader


class AdmissionReader(OncelogStreamReader, SupportsTriggerAvailableNow):
    """Remembers where ``Trigger.AvailableNow`` stops, and when the last batch was admitted."""

    def _forget(self) -> None:
        super()._forget()
        self._target: Position | None = None
        self._latest: Position | None = None
        self._end: Position | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """Fix the logs' current ends as the end of this run, which waits for no minimum."""
        self._target = self._planner.latest()
        self._limits.min_offsets = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        highest, lowest = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if highest is not None:
            return ReadMaxRows(highest)
        return ReadAllAvailable() if lowest is None else ReadMinRows(lowest)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The end of the next micro-batch, or ``start`` if it is held back. New partitions start at their beginning."""
        begin = Position.from_json(start)
        self._latest = latest = self._planner.latest_after(begin, self._target)
        self._end = latest
        if not isinstance(limit, ReadAllAvailable):
            begin_offsets = self._planner.starting_offsets(begin, latest)
            batch_end = self._limits.end_of_batch(begin_offsets, latest.offsets, time.monotonic_ns() // 1_000_000)
            if batch_end is None:
                self._end = begin
                return dict(start)
            self._end = Position(batch_end, latest.topic_ids)
        return self._end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - PySpark's name
        """The logs' ends for the query's progress, with notes under keys that begin with ``@``."""
        latest = self._latest if self._latest is not None else self._planner.latest()
        return self._planner.report(self._end, latest, time.monotonic_ns() // 1_000_000)
