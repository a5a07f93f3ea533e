"""A streaming query's reader where Spark has admission control for Python sources: each micro-batch is asked for with
its start and a limit, and ``Trigger.AvailableNow`` says so beforehand."""

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
    """Remembers the offsets that ``Trigger.AvailableNow`` stops at, and when the last batch was admitted."""

    def _forget(self) -> None:
        super()._forget()
        self._target: Position | None = None
        self._latest: Position | None = None
        self._end: Position | None = None

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
