"""Changes of acquired records that are being written, and what becomes of them when the write has ended.

An acknowledgement or a release shows at once: the records cannot be acquired, acknowledged again or passed by the start
offset until the write ends. If it fails they are acquired as before, or free if their lock has expired meanwhile. The
end of a lock, and archiving after a dead letter, hold whether or not their write succeeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from oncelog.base.ids import MemberId
from oncelog.core.share.in_flight import InFlightBatch, Run, Transition
from oncelog.core.share.model import (
    NO_MEMBER,
    DeadLetterCause,
    DeadLetters,
    RecordState,
    ShareSettings,
    ShareState,
    StateBatch,
)
from oncelog.core.share.window import Window


class StateWrite:
    """A change for the share coordinator: ``state`` is for the persister, then :meth:`SharePartition.written`."""

    __slots__ = ("dead_letters", "is_final", "state", "transitions")

    def __init__(
        self,
        state: ShareState,
        transitions: Sequence[Transition],
        dead_letters: Sequence[DeadLetters],
        *,
        is_final: bool,
    ) -> None:
        self.state = state
        self.transitions = transitions
        self.dead_letters = dead_letters
        self.is_final = is_final
        """True if the change holds even if the write fails."""


class Changes:
    """The changes of a call, in order of offsets, to be written together."""

    __slots__ = ("_batches", "_dead_letters", "_settings", "_transitions", "_window")

    def __init__(self, window: Window, settings: ShareSettings) -> None:
        self._window = window
        self._settings = settings
        self._batches: list[StateBatch] = []
        self._transitions: dict[tuple[RecordState, MemberId], Transition] = {}
        self._dead_letters: list[DeadLetters] = []

    def begin(self, run: Run, state: RecordState) -> None:
        """Begin the transition of an acquired run."""
        is_rejected = state is RecordState.ARCHIVING
        state = self._limited(run, state)
        transition = self._transitions.get((state, run.member_id))
        if transition is None:
            transition = Transition(run.first_offset, state, run.member_id, self._settings.max_deliveries)
            self._transitions[state, run.member_id] = transition
        transition.last_offset = run.last_offset
        run.transition = transition
        self._set(run, state, is_rejected=is_rejected)

    def apply(self, run: Run, state: RecordState) -> None:
        """Change a run, whatever becomes of the write."""
        self._set(run, self._limited(run, state), is_rejected=False)
        run.unlock()
        if run.state is RecordState.AVAILABLE:
            self._window.made_available(run)

    def archive(self, run: Run) -> None:
        """Archive a run whose dead letters are written."""
        self._set(run, RecordState.ARCHIVED, is_rejected=False)

    def undo(self) -> None:
        roll_back(self._window, self._transitions.values())

    def write(self, state_epoch: int, *, is_final: bool = False) -> StateWrite | None:
        """The write, or None if there is nothing to write."""
        if not self._batches:
            return None
        window = self._window
        state = ShareState(state_epoch, window.start_offset, window.terminal_count, self._batches)
        return StateWrite(state, tuple(self._transitions.values()), self._dead_letters, is_final=is_final)

    def _limited(self, run: Run, state: RecordState) -> RecordState:
        """A record that has had its last delivery is not available again."""
        if state is RecordState.AVAILABLE and run.delivery_count >= self._settings.max_deliveries:
            return RecordState.ARCHIVING if self._settings.has_dead_letters else RecordState.ARCHIVED
        return state

    def _set(self, run: Run, state: RecordState, *, is_rejected: bool) -> None:
        run.state = state
        run.member_id = NO_MEMBER
        if state.is_terminal:
            self._window.terminal_count += run.count_from(self._window.start_offset)
        batch = StateBatch(run.first_offset, run.last_offset, int(state), run.delivery_count)
        _append(self._batches, batch)
        if state is RecordState.ARCHIVING:
            cause = DeadLetterCause.REJECTED if is_rejected else DeadLetterCause.TOO_MANY_DELIVERIES
            self._dead_letters.append(DeadLetters(run.first_offset, run.last_offset, run.delivery_count, cause))


def _append(batches: list[StateBatch], batch: StateBatch) -> None:
    if batches:
        last = batches[-1]
        if last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            batches[-1] = last._replace(last_offset=batch.last_offset)
            return
    batches.append(batch)


def commit(window: Window, transitions: Iterable[Transition]) -> bool:
    """End transitions whose write is durable. Returns True if a record became available."""
    is_available = False
    for transition in transitions:
        for batch, runs in _changing(window, transition):
            for run in runs:
                run.unlock()
                run.transition = None
                if run.state is RecordState.AVAILABLE:
                    is_available = True
                    window.made_available(run)
            batch.join_runs(runs[0].first_offset, runs[-1].last_offset)
    return is_available


def roll_back(window: Window, transitions: Iterable[Transition], dead_letters: list[DeadLetters] | None = None) -> bool:
    """End transitions whose write has failed. Returns True if a record became available. Records whose lock has ended
    after their last delivery become ``dead_letters``; None: the group has none."""
    is_available = False
    for transition in transitions:
        for batch, runs in _changing(window, transition):
            for run in _cut_at_start(window, batch, runs):
                run.transition = None
                # Else it was archived meanwhile, as the log has lost it.
                if run.state is transition.state:
                    _roll_back_run(window, run, transition, dead_letters)
                if run.state is RecordState.AVAILABLE:
                    is_available = True
                    window.made_available(run)
            batch.join_runs(runs[0].first_offset, runs[-1].last_offset)
    return is_available


def _cut_at_start(window: Window, batch: InFlightBatch, runs: Sequence[Run]) -> Sequence[Run]:
    """The runs, cut if the log has lost some of the records of an expired lock, and others become available."""
    start = window.start_offset
    across = [run for run in runs if run.first_offset < start <= run.last_offset]
    if not across or across[0].lock is None or not across[0].lock.has_expired:
        return runs
    return [*runs, *batch.cut(start, across[0].last_offset)]


def _roll_back_run(window: Window, run: Run, transition: Transition, dead_letters: list[DeadLetters] | None) -> None:
    if transition.state.is_terminal:
        window.terminal_count -= run.count_from(window.start_offset)
    if run.lock is not None and run.lock.has_expired:
        _release_expired(window, run, transition, dead_letters)
    else:
        run.state, run.member_id = RecordState.ACQUIRED, transition.member_id


def _release_expired(window: Window, run: Run, transition: Transition, dead_letters: list[DeadLetters] | None) -> None:
    run.unlock()
    is_lost = run.first_offset < window.start_offset
    is_last = run.delivery_count >= transition.max_deliveries
    if is_last and not is_lost and dead_letters is not None:
        run.state, cause = RecordState.ARCHIVING, DeadLetterCause.TOO_MANY_DELIVERIES
        dead_letters.append(DeadLetters(run.first_offset, run.last_offset, run.delivery_count, cause))
        return
    # Records that the log has lost meanwhile cannot be delivered again either.
    run.state = RecordState.ARCHIVED if is_last or is_lost else RecordState.AVAILABLE
    if run.state.is_terminal:
        window.terminal_count += run.count_from(window.start_offset)


def _changing(window: Window, transition: Transition) -> Iterator[tuple[InFlightBatch, Sequence[Run]]]:
    """The runs of a transition by batch."""
    for batch in window.overlapping(transition.first_offset, transition.last_offset):
        in_range = batch.runs_in(transition.first_offset, transition.last_offset)
        runs = [run for run in in_range if run.transition is transition]
        if runs:
            yield batch, runs


def holds(run: Run, member_id: MemberId) -> bool:
    """True if a release of the member's records concerns the run; also those loaded without a holder."""
    return run.state is RecordState.ACQUIRED and run.member_id in (member_id, NO_MEMBER)
