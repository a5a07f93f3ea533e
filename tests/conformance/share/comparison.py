"""The states and writes of both share partitions in the same form, and their comparison."""

from __future__ import annotations

from typing import Any

from oncelog.core.share.model import ShareState
from oncelog.core.share.partition import SharePartition


class Different(Exception):
    """The two share partitions disagree."""


def state_of(ours: SharePartition) -> dict[str, Any]:
    """The state as the judge prints it: neighbours with equal locks are a run."""
    window = ours._window
    batches = []
    for batch in window.batches:
        runs: list[list[Any]] = []
        for run in batch.runs:
            until = -1 if run.lock is None else run.lock.deadline_ms
            described = [int(run.state), run.delivery_count, run.member_id, run.transition is not None, until]
            if runs and runs[-1][2:] == described:
                runs[-1][1] = run.last_offset
            else:
                runs.append([run.first_offset, run.last_offset, *described])
        batches.append([batch.first_offset, batch.last_offset, batch.is_split, runs])
    return {
        "next": ours.next_fetch_offset(),
        "may_acquire": ours.may_acquire(),
        "start": ours.start_offset,
        "end": ours.end_offset,
        "complete": ours.delivery_complete_count,
        "gap": -1 if window.active_gaps is None else window.active_gaps.start_offset,
        "batches": batches,
    }


def compare_state(ours: SharePartition, theirs: dict[str, Any]) -> None:
    """Raises Different."""
    for name, value in state_of(ours).items():
        if value != theirs[name]:
            raise Different(f"{name}\nours:   {value}\ntheirs: {theirs[name]}")


def compare_write(ours: ShareState | None, theirs: list[dict[str, Any]]) -> None:
    """Apache Kafka may need several writes, and writes offsets one by one. Raises Different."""
    if ours is None:
        if theirs:
            raise Different(f"write\nours:   none\ntheirs: {theirs}")
        return
    if not theirs:
        raise Different(f"write\nours:   {ours}\ntheirs: none")
    last = theirs[-1]
    head = (ours.state_epoch, ours.start_offset, ours.delivery_complete_count)
    their_batches = [tuple(batch) for write in theirs for batch in write["batches"]]
    if head != (last["epoch"], last["start"], last["complete"]) or by_offset(ours.batches) != by_offset(their_batches):
        raise Different(f"write\nours:   {ours}\ntheirs: {theirs}")


def by_offset(batches: Any) -> dict[int, tuple[int, ...]]:
    """The rest of each row, by offset."""
    return {offset: tuple(rest) for first, last, *rest in batches for offset in range(first, last + 1)}
