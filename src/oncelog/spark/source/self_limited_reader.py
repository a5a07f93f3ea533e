"""A streaming query's reader where Spark has no admission control for Python sources (before 4.2).

There ``latestOffset`` is called without a start and without a limit, nothing is said of the trigger, and a query under
``Trigger.AvailableNow`` is one batch. So the reader keeps the position by itself: a query that goes on from a
checkpoint begins with ``partitions(o, o)``, o being the end of its last planned batch, a new one at `initialOffset`.

The rule: no query ends early in silence. The first batch after a start may be the only one, so
``maxOffsetsPerTrigger`` limits it only where ``limitFirstBatch`` says that others follow; every later batch is limited.
What a run under AvailableNow leaves for the next one is said in the log, once: what follows a batch that was under way
when the query was killed, and what is behind a first batch that was limited.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import InputPartition

from oncelog.spark.session.versions import spark_version
from oncelog.spark.source.stream_position import Position, behind
from oncelog.spark.source.stream_reader import OncelogStreamReader


class SelfLimitedReader(OncelogStreamReader):
    """Remembers where the query stands: the end of the batch that it planned last."""

    def _forget(self) -> None:
        super()._forget()
        self._initial: Position | None = None
        self._position: Position | None = None
        self._is_first = True
        """No end of a batch was asked for yet."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """The offsets at which a new query begins. Spark asks behind the first `latestOffset`, which measured from
        them."""
        return self._begin().to_json()

    def _begin(self) -> Position:
        if self._initial is None:
            self._initial = self._planner.initial()
        return self._initial

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - PySpark's before 4.2
        """The end of the next micro-batch; the query's position when it is held back."""
        begin = self._position if self._position is not None else self._begin()
        latest = self._planner.latest_after(begin)
        first = self._planner.starting_offsets(begin, latest)
        now_ms = time.monotonic_ns() // 1_000_000
        until = self._limits.end_of_batch(first, latest.offsets, now_ms)
        is_first, self._is_first = self._is_first, False
        if until is None:
            end = begin
        elif is_first and until != latest.offsets:
            end = self._end_of_first(Position(until, latest.topic_ids), latest)
        else:
            end = Position(until, latest.topic_ids)
        if self._options.read_committed:
            self._planner.report(end, latest, now_ms)  # for the log: there is no progress to put it into
        self._position = end
        return end.to_json()

    def _end_of_first(self, limited: Position, latest: Position) -> Position:
        """The end of a first batch for which more waits than ``maxOffsetsPerTrigger``."""
        left = sum(behind(limited, latest))
        unknown = f"{spark_version()} does not tell a Python source its trigger, and Trigger.AvailableNow is one batch"
        if self._options.limit_first_batch:
            self._planner.warn(
                f"limitFirstBatch=true: the first batch leaves {left} offsets to the next. {unknown}: a query with "
                "that trigger ends here, run it again for them"
            )
            return limited
        self._planner.warn(
            f"maxOffsetsPerTrigger={self._options.max_offsets_per_trigger} holds from the second batch on, the first "
            f"takes {left} offsets more. {unknown}; for a query that goes on by itself set limitFirstBatch=true"
        )
        return latest

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The ranges of one micro-batch; none for the call that tells where a query goes on."""
        until = Position.from_json(end)
        is_rerun = self._is_first and self._position is not None and start != end
        self._position = until
        if start == end:
            return []
        ranges = super().partitions(start, end)
        if is_rerun:
            self._say_rerun(until)
        return ranges

    def _say_rerun(self, until: Position) -> None:
        """Say so where the batch that was under way when the query stopped is run again, and more waits behind it."""
        left = sum(behind(until, self._planner.latest()))
        if left:
            self._planner.warn(
                f"the batch that was under way when the query stopped is run again; {left} offsets wait behind it. "
                f"{spark_version()} ends a query under Trigger.AvailableNow after that batch: run it again for them"
            )
