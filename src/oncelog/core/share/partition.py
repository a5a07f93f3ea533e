"""The delivery state of a share partition in its leader: who holds which records, and which are done (KIP-932).

Acquisition, acknowledgement and whatever else ends a delivery are calls of this machine. A change that must survive the
leader is a :class:`StateWrite` for the share coordinator, whose end the node reports by :meth:`SharePartition.written`.
The answer to an acknowledgement waits for it.

Invariants, beside those of the window, of its batches and of the locks:
1. A record is delivered only while it is available, and to one member at a time.
2. An acknowledged record whose write is durable is never delivered again.
3. A record's delivery count never exceeds the limit, unless the limit was lowered meanwhile.
4. While a write about a record is in progress, the start offset does not pass it.

One machine lives for one leadership. In the written state, from which a new leader starts, acquired records are
available or unknown: they come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, Offset
from oncelog.core.share.acknowledgement import Acknowledging, expire, release
from oncelog.core.share.acquisition import Acquisition, append_acquired
from oncelog.core.share.locks import Lock, Locks
from oncelog.core.share.model import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredBatch,
    DeadLetterCause,
    DeadLetters,
    InFlightRecords,
    RecordState,
    Refusal,
    ShareSettings,
    ShareState,
    WriteOutcome,
)
from oncelog.core.share.movement import advance, log_start_moved
from oncelog.core.share.transitions import Changes, StateWrite, commit, roll_back
from oncelog.core.share.window import Window
from oncelog.records.batch import BatchHeader

# Takes some 15 ms if each has a record of its own.
LOCKS_PER_STEP: Final = 1_000


class SharePartition:
    """``state`` is what the share coordinator has, with a start offset that the caller has resolved. Raises
    InvalidShareState."""

    __slots__ = (
        "_locks",
        "_window",
        "acknowledged",
        "lock_timeouts",
        "pending_dead_letters",
        "settings",
        "state_epoch",
    )

    def __init__(self, state: ShareState, settings: ShareSettings) -> None:
        self.settings = settings
        """Replaced at any time; each call reads them."""
        self.state_epoch = state.state_epoch
        self.lock_timeouts = 0
        """Records whose lock has expired."""
        self.acknowledged = dict.fromkeys(AcknowledgeType, 0)
        """Acknowledged records by type."""
        self._window = Window(state.start_offset)
        self._locks = Locks()
        self._window.load(state.batches)
        self.pending_dead_letters = self._loaded_dead_letters()
        """Left by an earlier leader: they are to be copied first."""
        if self._window.batches:
            advance(self._window)

    @property
    def start_offset(self) -> Offset:
        return self._window.start_offset

    @property
    def end_offset(self) -> Offset:
        return self._window.end_offset

    @property
    def delivery_complete_count(self) -> int:
        return self._window.terminal_count

    @property
    def in_flight_records(self) -> int:
        return self._window.in_flight_records

    @property
    def in_flight_batches(self) -> int:
        return len(self._window.batches)

    @property
    def in_flight_runs(self) -> int:
        """How many rows :meth:`in_flight` has."""
        return sum(len(batch.runs) for batch in self._window.batches)

    @property
    def next_deadline_ms(self) -> int | None:
        """When :meth:`expire` is due; None without locks."""
        return self._locks.next_deadline_ms

    def next_fetch_offset(self) -> Offset:
        return self._window.next_fetch_offset()

    def may_acquire(self) -> bool:
        """False while the window has its most records and none of them is available."""
        window = self._window
        return (
            window.next_fetch_offset() != window.end_offset + 1
            or window.in_flight_records < self.settings.max_in_flight
        )

    def acquire(
        self,
        member_id: MemberId,
        headers: Sequence[BatchHeader],
        aborted: Sequence[tuple[int, int]] = (),
        *,
        fetch_offset: Offset,
        record_limit: bool,
        batch_size: int,
        max_records: int,
        now_ms: int,
    ) -> Sequence[AcquiredBatch]:
        """Acquire records of the batches read from ``fetch_offset``. ``aborted`` has producer id and first offset of
        the transactions to leave out: none for a group that reads uncommitted records."""
        if not headers:
            return ()
        lock = Lock(now_ms, now_ms + self.settings.lock_duration_ms)
        acquisition = Acquisition(
            self._window,
            self.settings,
            member_id,
            headers,
            lock,
            record_limit=record_limit,
            batch_size=batch_size,
            max_records=max_records,
        )
        acquired = acquisition.run(fetch_offset, aborted)
        self._locks.add(lock)
        # No acknowledgement will come for aborted and compacted records: a full window of them would never move.
        advance(self._window)
        return acquired

    def acknowledge(
        self, member_id: MemberId, acknowledgements: Sequence[Acknowledgement], now_ms: int
    ) -> StateWrite | Refusal | None:
        """Acknowledge records, all or none. None if there is nothing to write."""
        changes = Changes(self._window, self.settings)
        lock = Lock(now_ms, now_ms + self.settings.lock_duration_ms)
        acknowledging = Acknowledging(self._window, self.settings, member_id, lock, changes)
        for acknowledgement in acknowledgements:
            refusal = acknowledging.take(acknowledgement)
            if refusal is not None:
                changes.undo()
                self._locks.add(lock)
                return refusal
        self._locks.add(lock)
        for kind, count in acknowledging.counts.items():
            self.acknowledged[kind] += count
        return changes.write(self.state_epoch)

    def release(self, member_id: MemberId) -> StateWrite | None:
        """Release the records of the member."""
        changes = Changes(self._window, self.settings)
        release(self._window, member_id, changes)
        return changes.write(self.state_epoch)

    def expire(self, now_ms: int) -> StateWrite | None:
        """Release the records whose locks have expired; they can be acquired at once."""
        changes = Changes(self._window, self.settings)
        # While there are more, the next deadline stays due.
        for _ in range(LOCKS_PER_STEP):
            lock = self._locks.pop_expired(now_ms)
            if lock is None:
                break
            self.lock_timeouts += expire(self._window, lock, changes)
        return changes.write(self.state_epoch, is_final=True)

    def log_start_moved(self, offset: Offset) -> None:
        """The log begins at ``offset`` now."""
        log_start_moved(self._window, offset)

    def written(self, write: StateWrite, error: ErrorCode) -> WriteOutcome:
        """A write is durable, or has failed."""
        if write.is_final:
            return WriteOutcome(advance(self._window), write.dead_letters)
        if error is not ErrorCode.NONE:
            letters: list[DeadLetters] = []
            wakes = roll_back(self._window, write.transitions, letters if self.settings.has_dead_letters else None)
            # Records that the log has lost meanwhile are done after all.
            return WriteOutcome(advance(self._window) or wakes, letters)
        wakes = commit(self._window, write.transitions)
        return WriteOutcome(advance(self._window) or wakes, write.dead_letters)

    def archived(self, letters: DeadLetters) -> StateWrite:
        """Dead letters are written, or have failed for good: the records are archived either way."""
        changes = Changes(self._window, self.settings)
        for batch in self._window.overlapping(letters.first_offset, letters.last_offset):
            for run in batch.cut(letters.first_offset, letters.last_offset):
                if run.state is RecordState.ARCHIVING and run.transition is None:
                    changes.archive(run)
            batch.join_runs(letters.first_offset, letters.last_offset)
        write = changes.write(self.state_epoch, is_final=True)
        assert write is not None
        return write

    def still_held(self, member_id: MemberId, acquired: Iterable[tuple[int, int, int]]) -> list[AcquiredBatch]:
        """The part of deliveries that a member still has; each is given as first and last offset and delivery count."""
        held: list[AcquiredBatch] = []
        for first, last, count in acquired:
            for batch in self._window.overlapping(first, last):
                for run in batch.runs_in(first, last):
                    if (run.state, run.member_id, run.delivery_count) == (RecordState.ACQUIRED, member_id, count):
                        begin, end = max(first, run.first_offset), min(last, run.last_offset)
                        append_acquired(held, AcquiredBatch(Offset(begin), Offset(end), count))
        return held

    def in_flight(self) -> Iterator[InFlightRecords]:
        """The records of the window by state, in order of offsets."""
        for batch in self._window.batches:
            for run in batch.runs:
                yield InFlightRecords(
                    run.first_offset,
                    run.last_offset,
                    run.state,
                    run.delivery_count,
                    run.member_id,
                    run.lock.since_ms if run.lock else None,
                    run.lock.deadline_ms if run.lock else None,
                )

    def check(self) -> None:
        """Raises InvariantViolation unless the invariants hold."""
        self._window.check()
        runs = (run for batch in self._window.batches for run in batch.runs)
        self._locks.check((run.lock, run.count) for run in runs if run.lock is not None)

    def _loaded_dead_letters(self) -> list[DeadLetters]:
        letters: list[DeadLetters] = []
        for first, last, state, delivery_count, *_ in self.in_flight():
            if state is RecordState.ARCHIVING:
                # The cause is not in the written state.
                is_rejected = delivery_count < self.settings.max_deliveries
                cause = DeadLetterCause.REJECTED if is_rejected else DeadLetterCause.TOO_MANY_DELIVERIES
                letters.append(DeadLetters(first, last, delivery_count, cause))
        return letters
