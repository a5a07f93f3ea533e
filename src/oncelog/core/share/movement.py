"""Movement of the window's start: past records that are done, or that the log has lost to retention or compaction.

Lost records are archived without a write. The share coordinator learns of them from the start offset of a later write;
until then a new leader finds them lost again.
"""

from __future__ import annotations

from oncelog.base.ids import Offset
from oncelog.core.share.in_flight import InFlightBatch
from oncelog.core.share.model import RecordState
from oncelog.core.share.window import Window


def advance(window: Window) -> bool:
    """Move the start past all that is done. Returns True if the window changed."""
    if not window.batches or not _is_done_at_start(window):
        return False
    last_done = _last_done(window)
    if last_done is None:
        return False
    if last_done == window.batches[-1].last_offset:
        window.remove_until(window.batches[-1].first_offset)
        # The log's start may be past the last batch.
        window.start_offset = window.end_offset = Offset(max(window.start_offset, last_done + 1))
        window.terminal_count = 0
        return True
    batch = window.floor(last_done)
    assert batch is not None
    start = Offset(last_done + 1)
    last_removed = batch.first_offset
    if last_done == batch.last_offset:
        # A gap behind the batch has no records, unless it is one of the loaded state.
        start = window.starting_in(start, window.end_offset)[0].first_offset
        if (gaps := window.active_gaps) is not None:
            start = min(gaps.start_offset, start)
    else:
        last_removed = Offset(batch.first_offset - 1)
    _move_start(window, start)
    window.remove_until(last_removed)
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
    window.end_offset = max(window.end_offset, offset)


def archive_compacted(window: Window, fetch_offset: Offset, base_offset: Offset) -> bool:
    """Archive what is available between the offset of a fetch and the first record that the log still has."""
    if base_offset <= fetch_offset or not archive(window, fetch_offset, Offset(base_offset - 1), RecordState.AVAILABLE):
        return False
    window.may_have_available = True
    return True


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
    batch.join_runs()
    return is_changed


def _is_done_at_start(window: Window) -> bool:
    """True if the first record of the window is done. False in a gap at its start, where records may be acquired."""
    batch = window.floor(window.start_offset)
    if batch is None:
        return False
    # The log's start may be past the batch.
    return batch.run_at(min(window.start_offset, batch.last_offset)).is_settled


def _last_done(window: Window) -> Offset | None:
    """The last offset of the done records at the beginning of the window, or None."""
    last_done: Offset | None = None
    gaps = window.active_gaps
    for batch in window.batches:
        if gaps is not None and batch.last_offset >= gaps.start_offset:
            break
        for run in batch.runs:
            if not run.is_settled:
                return last_done
            last_done = run.last_offset
    return last_done


def _move_start(window: Window, offset: Offset) -> None:
    """Records before the start no longer count."""
    if offset <= window.start_offset:
        return
    for batch in window.overlapping(window.start_offset, offset - 1):
        for run in batch.runs:
            if run.state.is_terminal:
                window.terminal_count -= run.count_from(window.start_offset) - run.count_from(offset)
    window.start_offset = offset
