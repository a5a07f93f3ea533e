"""Limits of a micro-batch: ``minOffsetsPerTrigger``, ``maxTriggerDelay``, ``maxOffsetsPerTrigger``. Pure; the clock is
an argument.

Spark's own read limits can neither wait with a time-out nor be combined in Python, so the decision is made inside
``latestOffset``. Rules, as in Spark's Kafka connector: a batch is held back while fewer offsets than the minimum wait
*and* less than the delay has passed since the last batch was admitted; the first batch is not held back; a batch
that is admitted is cut to the maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oncelog.base.ids import TopicPartition
from oncelog.spark.source.offset_ranges import Offsets


@dataclass(slots=True)
class ReadLimits:
    """The limits of one query. ``None`` is no limit; times in milliseconds on any clock that does not go back."""

    min_offsets: int | None
    max_offsets: int | None
    max_delay_ms: int
    _admitted_ms: int | None = None

    def end_of_batch(
        self, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], now_ms: int
    ) -> Offsets | None:
        """The end of the next batch, None while it is held back. ``start`` has every partition of ``latest``."""
        if self.min_offsets is not None:
            waiting = sum(max(0, latest[partition] - start[partition]) for partition in latest)
            last = self._admitted_ms
            if waiting < self.min_offsets and last is not None and now_ms - last < self.max_delay_ms:
                return None
            self._admitted_ms = now_ms
        if self.max_offsets is None:
            return dict(latest)
        return limit_rows(start, latest, self.max_offsets)


def limit_rows(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows: int) -> Offsets:
    """``end`` moved back so that about ``rows`` offsets lie between, each partition by its share of the waiting
    offsets.

    A partition with anything to read advances by one offset at least, so that a small share does not starve.
    """
    waiting = {partition: max(0, end[partition] - start.get(partition, 0)) for partition in end}
    total = sum(waiting.values())
    if total <= rows:
        return dict(end)
    limited: Offsets = {}
    for partition, size in waiting.items():
        share = max(1, rows * size // total) if size else 0
        limited[partition] = start.get(partition, 0) + min(size, share) if size else end[partition]
    return limited
