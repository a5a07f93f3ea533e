"""The streaming reader for a Spark without admission control for Python sources (before 4.2).

Spark then calls ``latestOffset`` without start or limit, does not announce the trigger, and runs a query under
``Trigger.AvailableNow`` as one batch. The reader keeps the position itself: a query that resumes from a checkpoint
begins with ``partitions(o, o)``, where o is the end of its last planned batch; a new one begins at ``initialOffset``.

No query may silently end early, so ``maxOffsetsPerTrigger`` limits the first batch after a start only with
``limitFirstBatch``. The remainder of a run under AvailableNow is logged once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import InputPartition

from oncelog.spark.session.versions import spark_version
from oncelog.spark.source.stream_position import Position, lag_by_partition
from oncelog.spark.source.stream_reader import OncelogStreamReader


class SelfLimitedReader(OncelogStreamReader):
    def _forget(self) -> None:
        super()._forget()
        self._initial: Position | None = None
        self._position: Position | None = None
        # True until Spark has requested the end of a batch.
        self._is_first = True

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The offsets at which a new query begins. The first ``latestOffset``, which Spark calls before, has measured
        from them."""
        return self._initial_position().to_json()

    def _initial_position(self) -> Position:
        if self._initial is None:
            self._initial = self._planner.initial()
        return self._initial

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - PySpark's before 4.2
        """The end of the next micro-batch, or the query's position if it is held back."""
        begin = self._position if self._position is not None else self._initial_position()
        latest = self._planner.latest_after(begin)
        begin_offsets = self._planner.starting_offsets(begin, latest)
        now_ms = time.monotonic_ns() // 1_000_000
        batch_end = self._limits.end_of_batch(begin_offsets, latest.offsets, now_ms)
        is_first, self._is_first = self._is_first, False
        if batch_end is None:
            end = begin
        elif is_first and batch_end != latest.offsets:
            end = self._end_of_first(Position(batch_end, latest.topic_ids), latest)
        else:
            end = Position(batch_end, latest.topic_ids)
        if self._options.read_committed:
            self._planner.report(end, latest, now_ms)  # logs held partitions; this Spark has no place for progress
        self._position = end
        return end.to_json()

    def _end_of_first(self, limited: Position, latest: Position) -> Position:
        remaining = sum(lag_by_partition(limited, latest))
        reason = f"{spark_version()} does not tell a Python source its trigger, and Trigger.AvailableNow is one batch"
        # The first batch may be the only one: under AvailableNow a limit would end the query early.
        if self._options.limit_first_batch:
            self._planner.warn(
                f"limitFirstBatch=true: the first batch leaves {remaining} offsets to the next. {reason}: a query with "
                "that trigger ends here; run it again for the rest"
            )
            return limited
        self._planner.warn(
            f"maxOffsetsPerTrigger={self._options.max_offsets_per_trigger} applies from the second batch on; the first "
            f"reads {remaining} offsets more. {reason}; for a query that continues by itself set limitFirstBatch=true"
        )
        return latest

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The ranges of one micro-batch; none for the call that tells where a query resumes."""
        batch_end = Position.from_json(end)
        # Spark plans the batch again that was in progress when the query was killed.
        is_rerun = self._is_first and self._position is not None and start != end
        self._position = batch_end
        # A query that resumes from a checkpoint calls this first with the end of its last batch.
        if start == end:
            return []
        ranges = super().partitions(start, end)
        if is_rerun:
            self._warn_of_rerun(batch_end)
        return ranges

    def _warn_of_rerun(self, batch_end: Position) -> None:
        # Warn that the batch in progress when the query stopped runs again, if more offsets follow it.
        remaining = sum(lag_by_partition(batch_end, self._planner.latest()))
        if remaining:
            self._planner.warn(
                f"the batch in progress when the query stopped runs again; {remaining} offsets follow it. "
                f"{spark_version()} ends a query under Trigger.AvailableNow after that batch: run it again for the rest"
            )
