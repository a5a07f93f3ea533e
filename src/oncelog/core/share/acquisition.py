"""Acquisition of fetched records for a member: of those in flight that are available, and of new ones.

New records are acquired in whole batches of the log, so that a batch has one holder and is read once; that may be more
than ``max_records``. Acquisitions larger than ``batch_size`` are split where a batch of the log begins. In record limit
mode (KIP-1206) a member gets at most ``max_records``: the rest of the last batch is in flight, available.

Records that failed half of their deliveries or more are delivered in ever smaller portions, alone at last, so that a
poison record does not take its neighbours along.

The rules:
1. Only records that the window has as available, or not yet, are acquired.
2. A full window does not grow; its available records can still be acquired.
3. Gaps of the loaded state are new records up to the next batch in flight.
4. Records of aborted transactions are acquired with their batch, then archived.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from oncelog.base.ids import MemberId, Offset
from oncelog.core.share.aborted import OffsetRange, aborted_ranges, without
from oncelog.core.share.in_flight import InFlightBatch, Run
from oncelog.core.share.locks import Lock
from oncelog.core.share.model import AcquiredBatch, RecordState, ShareSettings
from oncelog.core.share.movement import archive, archive_compacted
from oncelog.core.share.window import Window
from oncelog.records.batch import BatchHeader

_MIN_THROTTLED_DELIVERIES = 2


def throttled_deliveries(max_deliveries: int) -> int:
    """The number of deliveries from which on a record comes in smaller portions."""
    return max(_MIN_THROTTLED_DELIVERIES, (max_deliveries + 1) // 2)


class Acquisition:
    """One call of :meth:`SharePartition.acquire`."""

    __slots__ = (
        "_acquired",
        "_batch_size",
        "_count",
        "_headers",
        "_is_over",
        "_last_offset",
        "_limit",
        "_lock",
        "_member_id",
        "_record_limit",
        "_settings",
        "_window",
    )

    def __init__(
        self,
        window: Window,
        settings: ShareSettings,
        member_id: MemberId,
        headers: Sequence[BatchHeader],
        lock: Lock,
        *,
        record_limit: bool,
        batch_size: int,
        max_records: int,
    ) -> None:
        self._window = window
        self._settings = settings
        self._member_id = member_id
        self._headers = headers
        self._lock = lock
        self._record_limit = record_limit
        # A client may ask for anything.
        self._batch_size = max(1, batch_size)
        self._limit = max_records
        self._last_offset = Offset(headers[-1].last_offset)
        self._acquired: list[AcquiredBatch] = []
        self._count = 0
        self._is_over = False
        """True after a throttled portion, which comes alone."""

    def run(self, fetch_offset: Offset, aborted: Sequence[tuple[int, int]]) -> Sequence[AcquiredBatch]:
        if self._last_offset < self._window.start_offset or not self._fit_into_window(fetch_offset):
            return ()
        base_offset = Offset(self._headers[0].base_offset)
        if base_offset > fetch_offset:
            archive_compacted(self._window, fetch_offset, base_offset)
            self._window.skip_compacted(fetch_offset, base_offset)
        # A full window ends before these records.
        if base_offset > self._last_offset:
            return ()
        self._acquire(base_offset)
        if not self._acquired:
            return ()
        self._window.skip_gaps(Offset(self._acquired[-1].last_offset + 1))
        if aborted and (ranges := aborted_ranges(self._headers, aborted)):
            return self._without_aborted(ranges)
        return self._acquired

    def _fit_into_window(self, fetch_offset: Offset) -> bool:
        """Rule 2. False if nothing can be acquired."""
        window = self._window
        room = self._settings.max_in_flight - window.in_flight_records
        if room <= 0:
            room = window.end_offset - fetch_offset + 1
            self._last_offset = min(self._last_offset, window.end_offset)
        self._limit = min(self._limit, room)
        return self._limit > 0

    def _acquire(self, base_offset: Offset) -> None:
        window = self._window
        floor = window.floor(base_offset)
        first = base_offset
        if floor is not None and floor.last_offset >= base_offset:
            first = floor.first_offset
        in_flight = window.starting_in(min(first, base_offset), self._last_offset)
        if not in_flight:
            self._acquire_new(first, self._last_offset)
            return
        gap_start = first
        for batch in in_flight:
            if self._is_full():
                break
            if window.active_gaps is not None:
                if gap_start < batch.first_offset:  # rule 3
                    self._acquire_new(gap_start, Offset(batch.first_offset - 1))
                gap_start = Offset(batch.last_offset + 1)
                if self._is_full():
                    break
            self._acquire_in_flight(batch, base_offset)
            if self._is_over:
                return
        last = in_flight[-1].last_offset
        if not self._is_full() and last < self._last_offset:
            self._acquire_new(Offset(last + 1), self._last_offset)

    def _is_full(self) -> bool:
        return self._count >= self._limit

    def _acquire_in_flight(self, batch: InFlightBatch, base_offset: Offset) -> None:
        throttles = self._throttles(batch, base_offset)
        if throttles and self._count:
            self._is_over = True
            return
        room = self._limit - self._count
        is_part = (
            batch.is_split
            or throttles
            or not batch.is_within(base_offset, self._last_offset)
            or (self._record_limit and batch.count > room)
        )
        if not batch.is_split and not batch.whole.is_available:
            return
        if not is_part:
            self._hold(batch.whole)
            self._add(batch.first_offset, batch.last_offset, batch.whole.delivery_count)
            return
        batch.is_split = True
        count = self._acquire_part(batch, base_offset, room)
        self._is_over = throttles and count > 0

    def _throttles(self, batch: InFlightBatch, base_offset: Offset) -> bool:
        from_deliveries = throttled_deliveries(self._settings.max_deliveries)
        if not batch.is_split:
            return batch.whole.is_available and batch.whole.delivery_count >= from_deliveries
        return any(
            run.is_available and run.delivery_count >= from_deliveries
            for run in batch.runs_in(max(base_offset, self._window.available_from), self._last_offset)
        )

    def _acquire_part(self, batch: InFlightBatch, base_offset: Offset, room: int) -> int:
        """Acquire available records of a split batch. Returns their number."""
        part = _Part(self._settings.max_deliveries, batch.count, room if self._record_limit else inf)
        acquired: list[AcquiredBatch] = []
        first = last = max(base_offset, self._window.available_from)
        for run in batch.cut(first, self._last_offset):
            if not run.is_available:
                continue
            count = part.take(run)
            if count:
                last = Offset(run.first_offset + count - 1)
                held = batch.cut(run.first_offset, last)[0]
                self._hold(held)
                append_acquired(acquired, AcquiredBatch(held.first_offset, held.last_offset, held.delivery_count))
            if part.is_full:
                break
        batch.join_runs(first, last)
        batch.join_runs(self._last_offset, self._last_offset)
        self._acquired += acquired
        self._count += part.count
        return part.count

    def _acquire_new(self, first: Offset, last: Offset) -> None:
        """Acquire records that are not in flight, in ``first`` to ``last`` or to the end of a batch of the log."""
        window = self._window
        room = self._limit - self._count
        # A batch of the log may begin before the log's start.
        first = max(first, window.start_offset)
        if first > last:
            return
        if room < last - first + 1:
            end = last
            last = self._end_of_log_batch(Offset(first + room - 1))
            if window.active_gaps is not None:
                last = min(last, end)
        held_last = last
        if self._record_limit:
            held_last = min(last, Offset(first + room - 1))
            self._put(first, last, held_last)
        else:
            for batch_first, batch_last in self._sized(first, last):
                self._put(batch_first, batch_last, batch_last)
        if window.batches[0].first_offset == first:
            window.start_offset = first
        window.end_offset = max(window.end_offset, last)
        window.skip_gaps(Offset(held_last + 1))

    def _end_of_log_batch(self, offset: Offset) -> Offset:
        """The last offset of the batch of the log that has ``offset``; ``offset`` itself in a gap between two."""
        for header in self._headers:
            if offset < header.base_offset:
                break
            if offset <= header.last_offset:
                return Offset(header.last_offset)
        return offset

    def _sized(self, first: Offset, last: Offset) -> Sequence[OffsetRange]:
        """The range, split at batches of the log into pieces of ``batch_size`` records or a little more."""
        ranges: list[OffsetRange] = []
        if last - first + 1 > self._batch_size:
            for header in self._headers:
                base_offset = header.base_offset
                if base_offset > last:
                    break
                if base_offset - first >= self._batch_size:
                    ranges.append((first, Offset(base_offset - 1)))
                    first = Offset(base_offset)
        ranges.append((first, last))
        return ranges

    def _put(self, first: Offset, last: Offset, held_last: Offset) -> None:
        """Put a new batch in flight; the member holds its records until ``held_last``."""
        batch = InFlightBatch(Run(first, last, RecordState.AVAILABLE, 0))
        self._window.put(batch)
        held = batch.cut(first, held_last)[0]
        self._hold(held)
        self._add(first, held_last, held.delivery_count)
        if batch.is_split:
            self._window.made_available(batch.run_at(Offset(held_last + 1)))

    def _hold(self, run: Run) -> None:
        run.acquire(self._member_id, self._lock)

    def _add(self, first: Offset, last: Offset, delivery_count: int) -> None:
        self._acquired.append(AcquiredBatch(first, last, delivery_count))
        self._count += last - first + 1

    def _without_aborted(self, ranges: Sequence[OffsetRange]) -> Sequence[AcquiredBatch]:
        """Rule 4."""
        for first, last in ranges:
            archive(self._window, first, last, RecordState.ACQUIRED)
        return without(self._acquired, ranges)


class _Part:
    """How many records of a split batch a delivery takes."""

    __slots__ = ("_batch_count", "_max_deliveries", "_room", "_throttled_room", "count", "is_full")

    def __init__(self, max_deliveries: int, batch_count: int, room: float) -> None:
        self._max_deliveries = max_deliveries
        self._batch_count = batch_count
        self._room = room
        self._throttled_room: int | None = None
        """The most records after the first throttled one; None before it."""
        self.count = 0
        self.is_full = False

    def take(self, run: Run) -> int:
        """The number of records to take from an available run."""
        is_last_delivery = (
            run.delivery_count == self._max_deliveries - 1 and self._max_deliveries > _MIN_THROTTLED_DELIVERIES
        )
        if is_last_delivery and self.count:
            self.is_full = True
            return 0
        excess = run.delivery_count - throttled_deliveries(self._max_deliveries)
        if excess >= 0 and self._throttled_room is None:
            self._throttled_room = max(1, self._batch_count >> (excess + 1))
        room = self._room - self.count
        # More records than that may have been taken before the first throttled one: then it is no limit.
        if self._throttled_room is not None and self.count < self._throttled_room:
            room = min(room, self._throttled_room - self.count)
        if is_last_delivery:
            room = 1
        count = int(min(run.count, room))
        self.count += count
        self.is_full = count == room
        return count


def append_acquired(acquired: list[AcquiredBatch], batch: AcquiredBatch) -> None:
    """Append a batch, or extend the last one if it follows with the same delivery count."""
    if acquired:
        last = acquired[-1]
        if last.last_offset + 1 == batch.first_offset and last.delivery_count == batch.delivery_count:
            acquired[-1] = last._replace(last_offset=batch.last_offset)
            return
    acquired.append(batch)
