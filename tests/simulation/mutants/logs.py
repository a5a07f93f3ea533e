"""Bugs of logs: producers, reading, recovery, compaction and retention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.core.producers import entry as producer_entry
from oncelog.core.producers import state as producer_state
from oncelog.core.producers.state import ProducerState
from oncelog.handlers.produce.verification import Verification
from oncelog.node.logs.delayed_fetches import DelayedFetches
from oncelog.node.logs.group_commit import GroupCommit
from oncelog.storage import recovery
from oncelog.storage.file_names import LOG_START_OFFSETS
from oncelog.storage.index.transaction_index import overlapping
from oncelog.storage.log import read
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log_directory import LogDirectory, RemoveDirectories
from oncelog.storage.maintenance.batch_filter import BatchFilter, OffsetMap
from oncelog.storage.maintenance.compacted_transactions import WalkedTransactions
from oncelog.storage.maintenance.log_maintenance import LogMaintenance
from oncelog.storage.producer_snapshots import Snapshots
from oncelog.storage.recovery import Recovery
from oncelog.storage.segment.batch_scan import iter_batches
from oncelog.storage.segment.segment import Segment
from tests.simulation.mutants.mutant import Mutant, every


def _window(right: int) -> int:
    return right - 1


def _behind_accepted(right: Any) -> Any:
    def check_sequence(entry: Any, epoch: int, first_sequence: int, offset: int) -> None:
        if epoch != entry.epoch or first_sequence > entry.last_sequence:
            right(entry, epoch, first_sequence, offset)

    return check_sequence


def _no_check(right: Any) -> Any:
    def check(*what: Any) -> None:
        """All is well."""

    return check


def _zombie_writes(right: Any) -> Any:
    def ask(self: Verification, context: Any) -> Any:
        yield from right(self, context)
        for append in self._appends:
            if append.unverified is ErrorCode.INVALID_PRODUCER_EPOCH:
                append.unverified = ErrorCode.NONE

    return ask


def _forget_producers(right: Any) -> Any:
    def load_into(self: Snapshots, state: ProducerState, *where: Any) -> None:
        right(self, state, *where)
        state.load((), state.end_offset)

    return load_into


def _lso_ignores_one(right: Any) -> Any:
    def first_unstable_offset(self: ProducerState) -> int | None:
        if len(self.ongoing) < 2:
            result: int | None = right(self)
            return result
        return list(self.ongoing)[1]

    return first_unstable_offset


def _lso_is_high_watermark(right: Any) -> Any:
    return property(lambda self: self.high_watermark)


def _past_sync(right: Any) -> Any:
    def synced(self: GroupCommit, event: Any, effects: Any) -> None:
        log, _ = self._syncs[event.token]
        right(self, event, effects)
        if event.failure is None:
            self._advance(log, log.log_end_offset)

    return synced


def _failed_sync_is_well(right: Any) -> Any:
    def synced(self: GroupCommit, event: Any, effects: Any) -> None:
        event.failure = None
        right(self, event, effects)

    return synced


def _one_segment(right: Any) -> Any:
    def aborted_in(segments: Any, place: Any, first_offset: int, size_bytes: int, log_end_offset: int) -> Any:
        upper = segments.end_of(place.segment, log_end_offset)
        entries, _ = overlapping(segments[place.segment].aborted, first_offset, upper)
        return [(entry.producer_id, entry.first_offset) for entry in entries]

    return aborted_in


def _abort_not_indexed(right: Any) -> Any:
    now = every(5)

    def add_aborted(self: Segment, entry: Any) -> Any:
        if not now():
            return right(self, entry)
        new = right(self, entry)
        self.aborted.pop()
        return new

    return add_aborted


def _index_points_past(right: Any) -> Any:
    def start_of(self: Segment, offset: int) -> int:
        return self.offset_index.last()[1]

    return start_of


def _fetch_forgotten(right: Any) -> Any:
    now = every(10)

    def release(self: DelayedFetches, task: Any, until: Any) -> None:
        if now():
            self._forget(task, until)
        else:
            right(self, task, until)

    return release


def _torn_batch_stays(right: Any) -> Any:
    def iter_checked(file: Any, position: int, end: int, limit: int) -> Any:
        for at, header in iter_batches(file, position, end, 1 << 20):
            yield at, header, file.read(at, header.size_bytes), 0

    return iter_checked


def _always_clean(right: Any) -> Any:
    def run(self: Recovery, names: Any, known: Any) -> Any:
        return right(self, names, replace(known, clean=True))

    return run


def _aborts_not_recovered(right: Any) -> Any:
    def rewrite_aborted(self: Segment) -> None:
        self.aborted.clear()
        right(self)

    return rewrite_aborted


def _rubble_left(right: Any) -> Any:
    def cut(self: Recovery, segment: Segment, size: int) -> None:
        segment.size_bytes = segment.file.size()

    return cut


def _trims_do_not_last(right: Any) -> Any:
    def write(self: LogDirectory, path: str, offsets: Any) -> None:
        right(self, path, {} if path == LOG_START_OFFSETS else offsets)

    return write


def _topic_left_behind(right: Any) -> Any:
    def put_aside(self: LogDirectory, partition: Any, token: bytes, mark: str) -> Any:
        log = self.logs.pop(partition)
        self.transactions.dropped(partition)
        log.closed = True
        return RemoveDirectories(self.files, partition, [])

    return put_aside


def _latest_dropped(right: Any) -> Any:
    now = every(5)

    def last_offset(self: OffsetMap, key: bytes) -> int:
        result: int = right(self, key)
        return result + 1 if result >= 0 and now() else result

    return last_offset


def _markers_dropped(right: Any) -> Any:
    def retain(self: BatchFilter, header: Any, data: Any) -> Any:
        kept = right(self, header, data)
        return None if header.is_control and not self._must_stay(header) else kept

    return retain


def _aborted_kept(right: Any) -> Any:
    def on_batch(self: WalkedTransactions, header: Any) -> bool:
        right(self, header)
        return False

    return on_batch


def _one_segment_more(right: Any) -> Any:
    def deletable(self: LogMaintenance, now_ms: int) -> tuple[list[Segment], Segment | None]:
        gone, doubtful = right(self, now_ms)
        segments = list(self._log.segments)
        return segments[: len(gone) + 1] if gone and len(segments) > len(gone) + 1 else gone, doubtful

    return deletable


LOGS: Final = (
    Mutant(
        "window-of-four",
        "duplicates are known among the last four batches only",
        producer_entry,
        "BATCHES_KEPT",
        _window,
    ),
    Mutant(
        "late-duplicate-written",
        "a sequence that lies behind is written again",
        producer_state,
        "check_sequence",
        _behind_accepted,
    ),
    Mutant("gap-accepted", "sequences are not checked at all", producer_state, "check_sequence", _no_check),
    Mutant(
        "zombie-writes",
        "the coordinator's word that a producer is fenced is passed over",
        Verification,
        "ask",
        _zombie_writes,
    ),
    Mutant(
        "producers-forgotten",
        "the snapshot of producers is not loaded when a log is opened",
        Snapshots,
        "load_into",
        _forget_producers,
    ),
    Mutant(
        "lso-ignores-one",
        "of several open transactions the first does not hold the last stable offset",
        ProducerState,
        "first_unstable_offset",
        _lso_ignores_one,
    ),
    Mutant(
        "read-past-stable",
        "read_committed reads up to the high watermark",
        PartitionLog,
        "last_stable_offset",
        _lso_is_high_watermark,
    ),
    Mutant(
        "watermark-past-sync",
        "a sync moves the high watermark over what was appended after it began",
        GroupCommit,
        "synced",
        _past_sync,
        ("power-cut-while-writing", "slow-disk"),
    ),
    Mutant("failed-sync-is-well", "a sync that failed counts as one", GroupCommit, "synced", _failed_sync_is_well),
    Mutant(
        "aborts-of-one-segment",
        "a fetch is told the aborted transactions of its own segment only",
        read,
        "aborted_in",
        _one_segment,
    ),
    Mutant(
        "abort-not-indexed",
        "an aborted transaction is missing from the index now and then",
        Segment,
        "add_aborted",
        _abort_not_indexed,
    ),
    Mutant(
        "index-points-past",
        "a lookup begins at the last entry of the offset index",
        Segment,
        "start_of",
        _index_points_past,
    ),
    Mutant(
        "fetch-forgotten",
        "a waiting fetch is never answered, now and then",
        DelayedFetches,
        "_release",
        _fetch_forgotten,
    ),
    Mutant("torn-batch-stays", "recovery believes batches unchecked", recovery, "iter_checked", _torn_batch_stays),
    Mutant("always-clean", "every stop counts as a clean one", Recovery, "run", _always_clean),
    Mutant(
        "aborts-not-recovered",
        "recovery leaves the index of aborted transactions empty",
        Segment,
        "rewrite_aborted",
        _aborts_not_recovered,
    ),
    Mutant(
        "rubble-left",
        "recovery does not cut the log behind its last sound batch",
        Recovery,
        "_cut",
        _rubble_left,
    ),
    Mutant(
        "trims-do-not-last",
        "where DeleteRecords has set a log's start is not written down",
        LogDirectory,
        "_write",
        _trims_do_not_last,
    ),
    Mutant(
        "topic-left-behind",
        "deleting a topic leaves its files where one of the same name finds them",
        LogDirectory,
        "_put_aside",
        _topic_left_behind,
    ),
    Mutant(
        "latest-compacted",
        "compaction drops the last value of a key now and then",
        OffsetMap,
        "last_offset",
        _latest_dropped,
    ),
    Mutant(
        "markers-compacted",
        "compaction drops markers whose data is still there",
        BatchFilter,
        "retain",
        _markers_dropped,
    ),
    Mutant(
        "aborted-compacted-in",
        "compaction takes data of aborted transactions for good",
        WalkedTransactions,
        "on_batch",
        _aborted_kept,
    ),
    Mutant(
        "retention-takes-more",
        "retention takes one segment too many",
        LogMaintenance,
        "_deletable",
        _one_segment_more,
    ),
)
