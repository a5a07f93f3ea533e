"""Plans a streaming query on the driver: the logs' ends, changes since the last batch, and notes about them.

A query has one client, which is not pickled. Lost records (a topic deleted or recreated, a truncated log) raise a
``DataLoss``, or are logged if ``failOnDataLoss`` is false. New partitions are read from their beginning.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any, Final

from oncelog.client.blocking import Client
from oncelog.spark.session.errors import DataLoss
from oncelog.spark.source.offset_ranges import OffsetRange, Offsets, divide, ranges_between
from oncelog.spark.source.options import AtOffsets, SourceOptions
from oncelog.spark.source.plan.offset_planner import OffsetPlanner, open_client
from oncelog.spark.source.plan.stable_offset_watch import StableOffsetWatch
from oncelog.spark.source.stream_position import (
    Added,
    Change,
    Gone,
    Position,
    Recreated,
    Shorter,
    changes,
    lag_by_partition,
    same_topic_only,
)

_LOG: Final = logging.getLogger("oncelog.spark")
_MAX_NOTICES: Final = 10
BEHIND: Final = "@offsetsBehindLatest"
HELD: Final = "@held"
NOTICES: Final = "@notices"


class StreamPlanner:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: Client | None = None
        self._held = StableOffsetWatch(options.held_after_ms)
        # Last stable offsets that are below the query's position.
        self._stable: Offsets = {}
        self._notices: deque[str] = deque(maxlen=_MAX_NOTICES)
        self._noticed: set[Change] = set()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def initial(self) -> Position:
        planner = self._offset_planner()
        partitions = planner.partitions()
        topic_ids = planner.topic_ids(partitions)
        return Position(planner.starting(partitions, AtOffsets("latest")), topic_ids)

    def latest(self) -> Position:
        planner = self._offset_planner()
        planner.refresh()
        partitions = planner.partitions(missing_topics="skip")
        topic_ids = planner.topic_ids(partitions)
        return Position(planner.latest(partitions), topic_ids)

    def latest_after(self, start: Position, latest: Position | None = None) -> Position:
        """The logs' ends, compared with the query's position. Raises DataLoss for unreadable records."""
        retries = self._options.offset_retries if latest is None else 0
        latest = self._without_regression(start, latest if latest is not None else self.latest())
        for _ in range(retries):
            if not any(isinstance(change, (Shorter, Gone)) for change in changes(start, latest)):
                break
            # A new leader may briefly be behind, which looks like a truncated log.
            time.sleep(self._options.offset_retry_interval_ms / 1000)
            latest = self._without_regression(start, self.latest())
        for change in changes(start, latest):
            self._notice(change)
        return latest

    def _without_regression(self, start: Position, latest: Position) -> Position:
        """Replace last stable offsets below ``start``: a query that has become read-committed waits at its position. A
        log is truncated only if its high watermark is below ``start``."""
        self._stable = {}
        if not self._options.read_committed:
            return latest
        below = [change.partition for change in changes(start, latest) if isinstance(change, Shorter)]
        ends = self._offset_planner().high_watermarks(below)
        held_back = {
            partition: start.offsets[partition] for partition in below if ends[partition] >= start.offsets[partition]
        }
        self._stable = {partition: latest.offsets[partition] for partition in held_back}
        return Position({**latest.offsets, **held_back}, latest.topic_ids)

    def starting_offsets(self, start: Position, end: Position) -> Offsets:
        """The first offset to read in each partition of ``end``; one that ``start`` lacks begins at its log start."""
        continued = same_topic_only(start, end)
        new = self._offset_planner().earliest(partition for partition in end.offsets if partition not in continued)
        return {**continued, **new}

    def ranges(self, start: Position, end: Position) -> list[OffsetRange]:
        """The ranges of one micro-batch, the same if the batch runs again later."""
        planner = self._offset_planner()
        # The metadata may be from before a topic was recreated.
        planner.refresh({partition.topic for partition in end.offsets})
        for change in changes(start, end):
            if isinstance(change, Gone):
                self._notice(change)
        until = {partition: offset for partition, offset in end.offsets.items() if planner.has_partition(partition)}
        now = Position(dict(until), planner.topic_ids(until))
        for change in changes(end, now):  # changes since the batch was planned: its records are gone
            if isinstance(change, (Gone, Recreated)):
                self._notice(change)
                until.pop(change.partition, None)
        begin = self.starting_offsets(start, Position(until, end.topic_ids))
        for partition, first in begin.items():
            if partition not in start.offsets and first > 0:
                self._lost(DataLoss(partition, 0, first, "a new partition does not begin at 0"))
        begin = planner.within_log(begin, until)
        options = self._options
        ranges = ranges_between(begin, until, {**now.topic_ids, **end.topic_ids})
        return list(divide(ranges, options.min_partitions, options.max_records_per_partition))

    def report(self, end: Position | None, latest: Position, now_ms: int) -> dict[str, Any]:
        """``latest`` for the query's progress, with notes: lag, held partitions, changes."""
        notes: dict[str, Any] = {}
        lags = lag_by_partition(end, latest) if end is not None else []
        if lags:
            average = round(sum(lags) / len(lags), 1)
            notes[BEHIND] = {"min": min(lags), "max": max(lags), "avg": average, "total": sum(lags)}
        if self._options.read_committed and latest.offsets:
            client = self._client()
            ends = client.list_offsets(dict.fromkeys(latest.offsets, -1))
            high = {partition: ends[partition].offset for partition in latest.offsets}
            held = self._held.observe(client, {**latest.offsets, **self._stable}, high, now_ms)
            if held:
                notes[HELD] = held
        if self._notices:
            notes[NOTICES] = list(self._notices)
        return {**latest.to_json(), **notes}

    def _client(self) -> Client:
        if self._opened is None:
            self._opened = open_client(self._options)
        return self._opened

    def _offset_planner(self) -> OffsetPlanner:
        return OffsetPlanner(self._client(), self._options)

    def _notice(self, change: Change) -> None:
        """Record a change once. Raises DataLoss if it loses records."""
        match change:
            case Added(partition):
                if change not in self._noticed:
                    self.warn(f"{partition} is new: it is read from its beginning")
            case Gone(partition, offset):
                self._lost(DataLoss(partition, offset, offset, "it was deleted, or is no longer subscribed to"))
            case Recreated(partition, offset, topic_id):
                reason = f"the topic was deleted and recreated (its id is now {topic_id})"
                self._lost(DataLoss(partition, offset, 0, reason))
            case Shorter(partition, offset, end):
                self._lost(DataLoss(partition, offset, end, "the log ends there: it was truncated"))
        self._noticed.add(change)

    def _lost(self, loss: DataLoss) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        self.warn(
            f"{loss.place}: {loss.summary} (failOnDataLoss is false: the query continues with the available records)"
        )

    def warn(self, text: str) -> None:
        if text not in self._notices:
            _LOG.warning("%s", text)
            self._notices.append(text)
