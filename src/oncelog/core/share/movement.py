"""Movement of the window's start: past records that are done, or that the log has lost to retention or compaction.

Lost records are archived without a write. The share coordinator learns of them from the start offset of a later write;
until then a new leader finds them lost again.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice

from oncelog.base.ids import Offset
from oncelog.core.share.in_flight import InFlightBatch
from oncelog.core.share.model import RecordState
from oncelog.core.share.window import Window


def advance(window: Window) -> bool:
    """Move the start past all that is done, and past offsets without records. Returns True if the window changed."""
    if not window.batches or not _is_done_at_start(window):
        return False
    gaps = window.active_gaps
    start, removed = window.start_offset, 0
    for batch in window.batches:
        if gaps is not None and batch.first_offset > gaps.start_offset:
            start = max(start, gaps.start_offset)
            break
        undone = batch.first_unsettled()
        if undone is not None:
            start = max(start, undone.first_offset)
            break
        start = max(start, Offset(batch.last_offset + 1))
        removed += 1
    else:
        window.end_offset = start
    if not removed and start == window.start_offset:
        return False
    _move_start(window, start)
    window.remove_first(removed)
    return True


def log_start_moved(window: Window, offset: Offset) -> None:
    """Retention or DeleteRecords removed the records before ``offset``. Their holders may go on; what they release is
    archived."""
    if offset <= window.start_offset:
        return
    if not window.batches:
        window.start_offset = window.end_offset = offset
        return
    if archive(window, window.start_offset, Offset(offset - 1), RecordState.AVAILABLE):
        window.may_have_available = True
    _move_start(window, offset)
    window.skip_gaps(offset)
    window.end_offset = max(window.end_offset, offset)
    advance(window)


def archive_compacted(window: Window, fetch_offset: Offset, base_offset: Offset) -> None:
    """Archive available records between the offset of a fetch and the first record that the log still has."""
    if archive(window, fetch_offset, Offset(base_offset - 1), RecordState.AVAILABLE):
        window.may_have_available = True


def archive(window: Window, first_offset: Offset, last_offset: Offset, state: RecordState) -> bool:
    """Archive the records of a range that are in ``state``. Returns True if there were any."""
    is_changed = False
    for batch in window.overlapping(first_offset, last_offset):
        if not batch.is_split and batch.whole.state is not state:
            continue
        if _archive_within(window, batch, first_offset, last_offset, state):
            is_changed = True
    return is_changed


def _archive_within(
    window: Window, batch: InFlightBatch, first_offset: Offset, last_offset: Offset, state: RecordState
) -> bool:
    is_changed = False
    for run in batch.cut(first_offset, last_offset):
        if run.state is state:
            run.archive()
            window.terminal_count += run.count_from(window.start_offset)
            is_changed = True
    batch.join_runs(first_offset, last_offset)
    return is_changed


def _is_done_at_start(window: Window) -> bool:
    """True if no record at the start of the window is, or can be, acquired."""
    start = window.start_offset
    batch = window.floor(start)
    if batch is None:
        gaps = window.active_gaps
        return gaps is None or gaps.start_offset > start
    # The log's start may be past the batch, which may still be held.
    return batch.run_at(min(start, batch.last_offset)).is_settled


def _move_start(window: Window, offset: Offset) -> None:
    """Records before the start no longer count."""
    if offset <= window.start_offset:
        return
    for batch in window.overlapping(window.start_offset, offset - 1):
        # Only the runs that the start passes: a batch of many runs is passed one by one.
        first = bisect_left(batch.runs, window.start_offset, key=lambda run: run.last_offset)
        for run in islice(batch.runs, first, None):
            if run.first_offset >= offset:
                break
            if run.state.is_terminal:
                window.terminal_count -= run.count_from(window.start_offset) - run.count_from(offset)
    window.start_offset = offset
