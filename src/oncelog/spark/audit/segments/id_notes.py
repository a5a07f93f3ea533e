"""Notes on transactional ids in one segment of ``__transaction_state``."""

# They are no inconsistencies: records of a transaction that timed out are gone as they should be. Compaction removes
# earlier changes of an id, so time-outs are counted where the log still has them. An id is idle if the segment has
# changes of others an hour later; ids of a stopped application, last used together, do not count.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.admin.transactions.history.recent_ends import Changes, RecentEnds
from oncelog.admin.transactions.history.unused_ids import IDLE_MS, LEAST_SPREAD_MS, MOST_PATTERNS, pattern_of
from oncelog.records.internal.transaction_records import STATE_NAMES
from oncelog.records.record import Record
from oncelog.spark.audit.audit_plan import SegmentTask
from oncelog.spark.audit.model import CoordinatorState, Finding

# Idle ids of one pattern in one partition: a log has fifty partitions by default.
LEAST_IDS: Final = 20
_SHOWN: Final = 100
_AT_REST: Final = frozenset(map(STATE_NAMES.index, ("Empty", "CompleteCommit", "CompleteAbort")))


class IdNotes:
    def __init__(self, task: SegmentTask) -> None:
        self._task = task
        self._changes = Changes()

    def add(self, record: Record) -> None:
        if record.key is not None and record.value is not None:
            self._changes.add([(bytes(record.key), bytes(record.value))])

    def findings(self, states: Iterable[CoordinatorState], latest_ms: int) -> Iterator[Finding]:
        task = self._task
        for ends in RecentEnds(timed_out=self._changes.timed_out).repeated[:_SHOWN]:
            text = (
                f"{len(ends.timed_out_ms)} of the {ends.ended} transactions that ended were aborted by the coordinator "
                f"at the time-out of {duration_text(ends.timeout_ms)}, since {moment_text(ends.timed_out_ms[0])}"
            )
            yield Finding(
                "timed-out",
                task.topic,
                task.partition,
                transactional_id=ends.transactional_id,
                producer_id=ends.producer_id,
                time=ends.timed_out_ms[-1],
                text=text,
            )
        yield from self._unused(states, latest_ms)

    def _unused(self, states: Iterable[CoordinatorState], latest_ms: int) -> Iterator[Finding]:
        idle: dict[str, list[CoordinatorState]] = {}
        for state in states:
            if state.status not in _AT_REST or latest_ms - state.updated < IDLE_MS:
                continue
            pattern = pattern_of(state.transactional_id)
            if pattern in idle or len(idle) < MOST_PATTERNS:
                idle.setdefault(pattern, []).append(state)
        for pattern, alike in idle.items():
            oldest, newest = min(state.updated for state in alike), max(state.updated for state in alike)
            if len(alike) < LEAST_IDS or newest - oldest < LEAST_SPREAD_MS:
                continue
            text = (
                f"{len(alike):,} ids like {pattern!r} are not used again in this partition: last used between "
                f"{moment_text(oldest)} and {moment_text(newest)}"
            )
            place = self._task.topic, self._task.partition
            yield Finding("unused-ids", *place, transactional_id=alike[0].transactional_id, time=newest, text=text)
