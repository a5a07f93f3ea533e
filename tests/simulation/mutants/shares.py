"""Bugs of share groups (KIP-932): of their coordinators, of the leader's window, and of dead letters."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from oncelog.base.ids import Offset
from oncelog.core.share import acquisition, transitions
from oncelog.core.share.acknowledgement import Acknowledging
from oncelog.core.share.acquisition import Acquisition
from oncelog.core.share.in_flight import Run
from oncelog.core.share.model import AcknowledgeType, RecordState
from oncelog.core.share.transitions import Changes
from oncelog.core.share_state import shard
from oncelog.core.share_state.shard import ShareStateShard
from oncelog.node.share.dead_letters import DeadLetterWriter
from oncelog.node.share.share_partitions import SharePartitions
from oncelog.sim.workloads.share_queues import ShareQueues
from tests.simulation.mutants.mutant import Mutant, every


def _answered_early(right: Any) -> Any:
    def write(self: SharePartitions, led: Any, write: Any, pending: Any = None) -> None:
        if pending is not None:
            pending.settle(None)
        right(self, led, write)

    return write


def _not_released(right: Any) -> Any:
    def release(self: SharePartitions, key: Any, partitions: Any) -> None:
        """The locks of the session go on."""

    return release


def _count_not_written(right: Any) -> Any:
    def append(batches: Any, batch: Any) -> None:
        right(batches, batch._replace(delivery_count=batch.delivery_count - 1))

    return append


def _snapshot_forgets(right: Any) -> Any:
    def snapshot(key: Any, value: Any) -> Any:
        return right(key, value._replace(batches=value.batches[:-1]))

    return snapshot


def _offered_twice(right: Any) -> Any:
    now = every(20)

    def hold(self: Acquisition, run: Run) -> None:
        right(self, run)
        if now():
            run.unlock()
            run.state = RecordState.AVAILABLE
            self._window.made_available(run)

    return hold


def _lock_too_short(right: Any) -> Any:
    def machine_settings(self: SharePartitions, group_id: Any) -> Any:
        settings = right(self, group_id)
        return settings._replace(lock_duration_ms=settings.lock_duration_ms // 4)

    return machine_settings


def _locks_for_ever(right: Any) -> Any:
    def watch(self: SharePartitions, led: Any, not_before_ms: int = 0) -> None:
        """No alarm: locks that nobody gives back stay."""

    return watch


def _no_limit(right: Any) -> Any:
    def limited(self: Changes, run: Run, state: RecordState) -> RecordState:
        return state

    return limited


def _letters_skipped(right: Any) -> Any:
    now = every(3)

    def copy(self: DeadLetterWriter, led: Any, letters: Any, done: Any) -> None:
        if now():
            done(True, 0)
        else:
            right(self, led, letters, done)

    return copy


def _letters_for_accepted(right: Any) -> Any:
    def take_run(self: Acknowledging, run: Run, kind: int) -> Any:
        if kind == 1 and self._settings.has_dead_letters:
            self._changes.begin(run, RecordState.ARCHIVING)
            return None
        return right(self, run, kind)

    return take_run


def _aborted_delivered(right: Any) -> Any:
    def aborted_ranges(headers: Any, aborted: Any) -> Any:
        return right(headers, aborted)[1:]

    return aborted_ranges


def _holder_unchecked(right: Any, types: Container[int] = frozenset(AcknowledgeType)) -> Any:
    def take_batch(self: Acknowledging, batch: Any, acknowledgement: Any) -> Any:
        member_id = self._member_id
        run = batch.run_at(max(batch.first_offset, acknowledgement.first_offset, self._window.start_offset))
        if all(kind in types for kind in acknowledgement.types):
            self._member_id = run.member_id or member_id
        try:
            return right(self, batch, acknowledgement)
        finally:
            self._member_id = member_id

    return take_batch


def _accepted_by_others(right: Any) -> Any:
    return _holder_unchecked(right, (AcknowledgeType.ACCEPT,))


def _released_is_done(right: Any) -> Any:
    return property(
        lambda run: right.fget(run) or (run.transition is None and run.is_available and run.delivery_count > 0)
    )


def _pruned_too_far(right: Any) -> Any:
    def first_needed_offset(self: ShareStateShard) -> Offset:
        return max((entry.offset for entry in self._entries.values()), default=self._last_tombstone)

    return first_needed_offset


def _rejected_comes_back(right: Any) -> Any:
    now = every(5)

    def begin(self: Changes, run: Run, state: RecordState) -> None:
        right(self, run, RecordState.AVAILABLE if state is RecordState.ARCHIVED and now() else state)

    return begin


SHARES: Final = (
    Mutant(
        "share-answered-early",
        "an acknowledgement is answered before it is written",
        SharePartitions,
        "_write",
        _answered_early,
        faults=("power-cut-at-sync",),
        workload=ShareQueues,
    ),
    Mutant(
        "share-not-released",
        "the locks of a session do not end with it",
        SharePartitions,
        "_release",
        _not_released,
        workload=ShareQueues,
    ),
    Mutant(
        "share-count-not-written",
        "a delivery is missing in the written count",
        transitions,
        "_append",
        _count_not_written,
        workload=ShareQueues,
    ),
    Mutant(
        "share-snapshot-forgets",
        "a snapshot lacks the last batch of the state",
        shard,
        "_snapshot",
        _snapshot_forgets,
        workload=ShareQueues,
    ),
    Mutant(
        "share-pruned-too-far",
        "a share coordinator prunes its log to the newest snapshot instead of the oldest",
        ShareStateShard,
        "first_needed_offset",
        _pruned_too_far,
        workload=ShareQueues,
    ),
    Mutant(
        "share-offered-twice",
        "occasionally an acquired record stays available",
        Acquisition,
        "_hold",
        _offered_twice,
        workload=ShareQueues,
    ),
    Mutant(
        "share-lock-too-short",
        "locks last a quarter of what members are told",
        SharePartitions,
        "_machine_settings",
        _lock_too_short,
        workload=ShareQueues,
    ),
    Mutant(
        "share-locks-for-ever",
        "locks do not expire",
        SharePartitions,
        "_watch",
        _locks_for_ever,
        workload=ShareQueues,
    ),
    Mutant(
        "share-no-limit",
        "a record is delivered beyond the limit",
        Changes,
        "_limited",
        _no_limit,
        workload=ShareQueues,
    ),
    Mutant(
        "share-rejected-comes-back",
        "occasionally a rejected record is available again",
        Changes,
        "begin",
        _rejected_comes_back,
        workload=ShareQueues,
    ),
    Mutant(
        "share-released-is-done",
        "the start offset passes released records",
        Run,
        "is_settled",
        _released_is_done,
        workload=ShareQueues,
    ),
    Mutant(
        "share-holder-unchecked",
        "any member may acknowledge a record",
        Acknowledging,
        "_take_batch",
        _holder_unchecked,
        workload=ShareQueues,
    ),
    Mutant(
        "share-accepted-by-others",
        "any member may accept a record",
        Acknowledging,
        "_take_batch",
        _accepted_by_others,
        workload=ShareQueues,
    ),
    Mutant(
        "share-aborted-delivered",
        "the first aborted range of a fetch is delivered at read_committed",
        acquisition,
        "aborted_ranges",
        _aborted_delivered,
        workload=ShareQueues,
    ),
    Mutant(
        "dead-letters-skipped",
        "occasionally a dead letter is not written",
        DeadLetterWriter,
        "copy",
        _letters_skipped,
        workload=ShareQueues,
    ),
    Mutant(
        "dead-letters-for-accepted",
        "accepted records become dead letters",
        Acknowledging,
        "_take_run",
        _letters_for_accepted,
        workload=ShareQueues,
    ),
)
