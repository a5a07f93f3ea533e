"""Acknowledgement and release of acquired records by their holder.

The rules:
1. A member acknowledges only records that it holds; else the whole request changes nothing but renewed locks.
2. Records before the start offset are done, whatever their acknowledgement says.
3. One type for a whole batch keeps it whole; several types, or a part of a batch, split it.
4. Released records that have had their last delivery are archived, or go to the dead letters (KIP-1191).
5. RENEW replaces the lock and writes nothing (KIP-1222).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, Offset
from oncelog.core.share.in_flight import InFlightBatch, Run
from oncelog.core.share.locks import Lock
from oncelog.core.share.model import Acknowledgement, AcknowledgeType, RecordState, Refusal, ShareSettings
from oncelog.core.share.transitions import Changes, holds
from oncelog.core.share.window import Window

_TYPES: Final = frozenset(AcknowledgeType)
_STATES: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


def _invalid_state(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_RECORD_STATE, message)


# Clients log these messages: they are Apache Kafka's.
_NOT_IN_FLIGHT: Final = _invalid_state("Batch record not found. The request batch offsets are not found in the cache.")
_BATCH_NOT_ACQUIRED: Final = _invalid_state("The batch cannot be acknowledged. The batch is not in the acquired state.")
_PART_NOT_ACQUIRED: Final = _invalid_state(
    "The batch cannot be acknowledged. The subset batch is not in the acquired state."
)
_OFFSET_NOT_ACQUIRED: Final = _invalid_state("The offset cannot be acknowledged. The offset is not acquired.")
_OTHERS_BATCH: Final = _invalid_state("Member is not the owner of batch record")
_OTHERS_OFFSET: Final = _invalid_state("Member is not the owner of offset")
_NO_RENEWAL: Final = _invalid_state("Renewing acquisition locks is not enabled for the group.")
_FIRST_PAST: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "Batch record not found. The first offset in request is past acquired records."
)
_LAST_PAST: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "Batch record not found. The last offset in request is past acquired records."
)


class Acknowledging:
    """One call of :meth:`SharePartition.acknowledge`."""

    __slots__ = ("_changes", "_lock", "_member_id", "_settings", "_window", "counts")

    def __init__(
        self, window: Window, settings: ShareSettings, member_id: MemberId, lock: Lock, changes: Changes
    ) -> None:
        self._window = window
        self._settings = settings
        self._member_id = member_id
        self._lock = lock
        """The lock of renewed records."""
        self._changes = changes
        self.counts = dict.fromkeys(AcknowledgeType, 0)
        """Acknowledged records by type."""

    def take(self, acknowledgement: Acknowledgement) -> Refusal | None:
        first, last, types = acknowledgement
        if not _TYPES.issuperset(types):
            return Refusal(ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {list(types)}")
        if last < self._window.start_offset:  # rule 2
            return None
        batches = self._batches(first, last)
        if isinstance(batches, Refusal):
            return batches
        for batch in batches:
            if batch.last_offset < self._window.start_offset:
                continue
            refusal = self._take_batch(batch, acknowledgement)
            if refusal is not None:
                return refusal
        return None

    def _batches(self, first: Offset, last: Offset) -> Sequence[InFlightBatch] | Refusal:
        window = self._window
        floor = window.floor(first)
        if floor is None and first < window.start_offset <= last:
            floor = window.floor(window.start_offset)
        if floor is None or first > last:
            return _NOT_IN_FLIGHT
        batches = window.starting_in(floor.first_offset, last)
        if batches[-1].last_offset < first:
            return _FIRST_PAST
        return _LAST_PAST if last > batches[-1].last_offset else batches

    def _take_batch(self, batch: InFlightBatch, acknowledgement: Acknowledgement) -> Refusal | None:
        first, last, types = acknowledgement
        if not batch.is_split:
            run = batch.whole
            if not run.member_id:
                return _BATCH_NOT_ACQUIRED
            if run.member_id != self._member_id:
                return _OTHERS_BATCH
            is_whole = (
                len(types) == 1
                and batch.is_within(first, last)
                and not batch.first_offset < self._window.start_offset <= batch.last_offset
            )
            if run.state is not RecordState.ACQUIRED:
                return _BATCH_NOT_ACQUIRED if is_whole else _PART_NOT_ACQUIRED
            if is_whole:
                return self._take_run(run, types[0])
        batch.is_split = True
        refusal = self._take_part(batch, acknowledgement)
        batch.join_runs(first, last)
        return refusal

    def _take_part(self, batch: InFlightBatch, acknowledgement: Acknowledgement) -> Refusal | None:
        begin = max(batch.first_offset, acknowledgement.first_offset, self._window.start_offset)
        ranges = list(_by_type(acknowledgement, begin, batch.last_offset))
        if not ranges:
            return None
        batch.cut_at([first for first, _, _ in ranges])
        runs = iter(batch.cut(begin, ranges[-1][1]))
        for _, last, kind in ranges:
            for run in runs:
                if run.state is not RecordState.ACQUIRED:
                    return _OFFSET_NOT_ACQUIRED
                if run.member_id != self._member_id:
                    return _OTHERS_OFFSET
                refusal = self._take_run(run, kind)
                if refusal is not None:
                    return refusal
                if run.last_offset >= last:
                    break
        return None

    def _take_run(self, run: Run, kind: int) -> Refusal | None:
        if kind == AcknowledgeType.RENEW:
            if not self._settings.may_renew:
                return _NO_RENEWAL
            run.renew(self._lock)
        elif kind == AcknowledgeType.REJECT and self._settings.has_dead_letters:
            self._changes.begin(run, RecordState.ARCHIVING)
        else:
            self._changes.begin(run, _STATES[AcknowledgeType(kind)])
        self.counts[AcknowledgeType(kind)] += run.count
        return None


def _by_type(acknowledgement: Acknowledgement, begin: int, end: int) -> Iterator[tuple[Offset, Offset, int]]:
    """The ranges of offsets of the same type, from ``begin`` to ``end`` at most."""
    first, last, types = acknowledgement
    end = min(end, last)
    if len(types) == 1:
        yield Offset(begin), Offset(end), types[0]
        return
    for kind, group in groupby(types[begin - first : end - first + 1]):
        count = len(list(group))
        yield Offset(begin), Offset(begin + count - 1), kind
        begin += count


def release(window: Window, member_id: MemberId, changes: Changes) -> None:
    """Release the records of a member that has left, or whose session has ended."""
    for batch in window.batches:
        if not any(holds(run, member_id) for run in batch.runs):
            continue
        # The log has lost these records: they cannot be delivered again.
        for run in batch.cut(batch.first_offset, Offset(window.start_offset - 1)):
            if holds(run, member_id):
                changes.begin(run, RecordState.ARCHIVED)
        for run in batch.cut(window.start_offset, batch.last_offset):
            if holds(run, member_id):
                changes.begin(run, RecordState.AVAILABLE)
        batch.join_runs(batch.first_offset, batch.last_offset)


def expire(window: Window, lock: Lock, changes: Changes) -> int:
    """Release the records of an expired lock. Returns their number."""
    count = 0
    first, last, start = lock.first_offset, lock.last_offset, window.start_offset
    for batch in window.overlapping(first, last):
        if not any(run.lock is lock and run.transition is None for run in batch.runs_in(first, last)):
            continue
        for run in batch.cut(first, min(last, Offset(start - 1))):
            if run.lock is lock and run.transition is None:
                count += run.count
                changes.apply(run, RecordState.ARCHIVED)
        for run in batch.cut(max(first, start), last):
            if run.lock is lock and run.transition is None:
                count += run.count
                changes.apply(run, RecordState.AVAILABLE)
        batch.join_runs(first, last)
    return count
