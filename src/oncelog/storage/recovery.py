"""Opens a partition directory: after a clean shutdown by its indexes, otherwise batch by batch.

The segments are the truth; files beside them are rebuilt if damaged, missing or behind (docs/internals/storage.md, "A
start"). A log that is cut below its recovery point has lost durable records (``RecoveredLog.lost_from``), which a power
cut does not cause, but a damaged disk does. Only an error of the disk itself is fatal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.base.units import INT32_MAX
from oncelog.core.producers.state import ProducerState
from oncelog.ports import Buffer, Files
from oncelog.records.batch import MAGIC, BatchHeader, CorruptBatch
from oncelog.records.latest_timestamp import hides_timestamps
from oncelog.storage.checkpoints import Sync, read_leader_epochs, write_leader_epochs
from oncelog.storage.errors import CorruptFile, UnusableDirectory
from oncelog.storage.file_names import (
    CLEANED,
    DELETED,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    TRANSACTION_INDEX,
    parse_segment_file,
    segment_file,
)
from oncelog.storage.index.offset_index import OffsetIndex
from oncelog.storage.index.time_index import NO_TIMESTAMP, TimeIndex
from oncelog.storage.index.transaction_index import AbortedTransaction
from oncelog.storage.leader_epochs import LeaderEpochs
from oncelog.storage.log.partition_log import RecoveredLog
from oncelog.storage.log_config import LogConfig, StorageConfig
from oncelog.storage.producer_snapshots import Snapshots, rebuild_producers, replace_snapshot
from oncelog.storage.segment.batch_scan import iter_checked, message_format_at
from oncelog.storage.segment.index_budget import IndexBudget
from oncelog.storage.segment.segment import Segment
from oncelog.storage.segment.segments import Segments
from oncelog.storage.transactions import transactional_ids
from oncelog.storage.transactions.producer_updates import replayed

# ``.swap`` files replace the segments they were made from; ``.cleaned`` and temporary files are incomplete;
# ``.deleted`` ones have left the log.
_MARKS: Final = (CLEANED, SWAP, DELETED, TEMPORARY)


def is_interrupted(name: str) -> bool:
    return name.endswith(_MARKS)


def finish_interrupted(files: Files, directory: str, names: list[str], budget: IndexBudget) -> list[str]:
    """Complete or undo changes. Returns the remaining names."""
    parsed = [(name, parse_segment_file(name)) for name in names]
    cleaned = [item[0] for _, item in parsed if item and item[2] == CLEANED]
    swaps = [(name, item) for name, item in parsed if item and item[2] == SWAP]
    valid = [(name, item) for name, item in swaps if not cleaned or item[0] < min(cleaned)]
    kept = {name for name, _ in valid}
    for name in names:
        if name.endswith((CLEANED, DELETED, TEMPORARY)) or (name.endswith(SWAP) and name not in kept):
            files.remove(f"{directory}/{name}")
    ranges = [_range_of(files, directory, item[0], budget) for _, item in valid if item[1] == LOG]
    if ranges:
        low, high = min(start for start, _ in ranges), max(end for _, end in ranges)
        for name, item in parsed:
            if item and not item[2] and item[1] != SNAPSHOT and low <= item[0] < high:
                files.remove(f"{directory}/{name}")
    for name, _ in valid:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    return files.list(directory)


def _range_of(files: Files, directory: str, base: int, budget: IndexBudget) -> tuple[int, int]:
    """First offset of a compacted segment, and the offset after its last batch."""
    size = files.size(f"{directory}/{segment_file(base, LOG, SWAP)}") or 0
    segment = Segment(files, directory, base, size, budget, SWAP)
    end = segment.next_offset()
    budget.forget(segment)
    return base, max(end, base + 1)


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The checkpointed offsets of one log; zero if missing."""

    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_offset: int | None = None
    """None: never compacted."""


class Recovery:
    """Used once."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        storage: StorageConfig,
        budget: IndexBudget,
        now_ms: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._storage = storage
        self._budget = budget
        self._now_ms = now_ms
        self._may_have_gaps = False
        self._lost_from: int | None = None
        self._epochs = LeaderEpochs()
        self._epochs_contradicted = False
        self._producers = ProducerState()
        self._snapshots = Snapshots(files, directory)

    def run(self, names: list[str], checkpointed: Checkpointed) -> RecoveredLog:
        """Raises UnknownVersion, before any file has changed."""
        self._read_versioned(names)
        if any(is_interrupted(name) for name in names):
            names = finish_interrupted(self._files, self._directory, names, self._budget)
        parsed = [item for name in names if (item := parse_segment_file(name)) is not None and not item[2]]
        bases = sorted(base for base, extension, _ in parsed if extension == LOG)
        self._remove_unowned_files(parsed, set(bases))
        segments = [self._segment(base) for base in bases]
        segments = self._drop_before(segments, checkpointed.log_start_offset)
        if not segments:
            return self._begin(checkpointed)
        log_start = max(checkpointed.log_start_offset, segments[0].base_offset)
        clean = checkpointed.clean and self._indexes_usable(parsed, segments) and segments[-1].ends_whole()
        if clean:
            log_end = self._trust(segments, log_start)
            durable = log_end
        else:
            recovery_point = min([checkpointed.recovery_point, *self._damaged_transaction_indexes(parsed, segments)])
            self._may_have_gaps = self._config.compact or checkpointed.cleaned_offset is not None
            segments, log_end = self._recover(segments, log_start, recovery_point)
            durable = min(checkpointed.recovery_point, log_end)
            if log_end < checkpointed.recovery_point:
                self._lost_from = log_end
        self._snapshots.keep_only(segment.base_offset for segment in segments)
        self._epochs.truncate_from_end(log_end)
        self._epochs.truncate_from_start(log_start)
        if self._epochs_contradicted:
            # The next recovery may begin after the batches with the right epochs.
            write_leader_epochs(self._files, self._directory, self._epochs.entries, Sync.ALL)
        return self._state(segments, log_start, max(log_end, log_start), durable, checkpointed)

    def _read_versioned(self, names: list[str]) -> None:
        parsed = (parse_segment_file(name) for name in names)
        self._snapshots.offsets = sorted(item[0] for item in parsed if item and item[1:] == (SNAPSHOT, ""))
        self._snapshots.check_version()
        if transactional_ids.FILE_NAME in names:
            transactional_ids.check_version(self._files, self._directory)
        if LEADER_EPOCHS in names:
            self._epochs.entries = read_leader_epochs(self._files, self._directory)

    def _state(
        self, segments: list[Segment], start: int, end: int, durable: int, checkpointed: Checkpointed
    ) -> RecoveredLog:
        cleaned = start if checkpointed.cleaned_offset is None else checkpointed.cleaned_offset
        self._producers.end_offset = end
        return RecoveredLog(
            Segments(segments),
            self._producers,
            self._snapshots,
            self._epochs,
            start,
            end,
            max(durable, start),
            cleaned if start <= cleaned <= end else start,
            checkpointed.cleaned_offset is not None,
            self._lost_from,
        )

    def _begin(self, checkpointed: Checkpointed) -> RecoveredLog:
        start = checkpointed.log_start_offset
        if start < checkpointed.recovery_point:
            self._lost_from = start
        self._snapshots.load_into(self._producers, start, start, self._now_ms)
        self._epochs.truncate_from_end(start)
        segment = Segment(self._files, self._directory, start, 0, self._budget)
        segment.begin(self._now_ms)
        return self._state([segment], start, start, start, checkpointed)

    def _segment(self, base: int) -> Segment:
        size = self._files.size(f"{self._directory}/{segment_file(base, LOG)}") or 0
        segment = Segment(self._files, self._directory, base, size, self._budget)
        segment.created_ms = self._now_ms
        return segment

    def _remove_unowned_files(self, parsed: Iterable[tuple[int, str, str]], bases: set[int]) -> None:
        for base, extension, _ in parsed:
            if base not in bases and extension != SNAPSHOT:
                self._files.remove(f"{self._directory}/{segment_file(base, extension)}")

    def _drop_before(self, segments: list[Segment], log_start: int) -> list[Segment]:
        """The segments; none if the whole log ends before its log start offset, where it starts over."""
        if segments and log_start > segments[-1].base_offset and segments[-1].next_offset() < log_start:
            for segment in segments:
                segment.remove()
            return []
        return segments

    def _load_producers(self, segments: list[Segment], first_offset: int, log_end: int) -> None:
        expired_before = self._now_ms - self._storage.producer_id_expiration_ms
        rebuild_producers(self._producers, self._snapshots, segments, first_offset, log_end, expired_before)

    def _indexes_usable(self, parsed: Iterable[tuple[int, str, str]], segments: list[Segment]) -> bool:
        return not list(self._damaged_transaction_indexes(parsed, segments))

    def _damaged_transaction_indexes(
        self, parsed: Iterable[tuple[int, str, str]], segments: list[Segment]
    ) -> Iterable[int]:
        """Base offsets of segments with a damaged or lost index, which recovery rebuilds."""
        files = {(base, extension) for base, extension, _ in parsed}
        for segment in segments:
            # Only segments with aborted transactions have the file: a lost offset index tells that it may be lost, too.
            if segment.size_bytes and (segment.base_offset, OFFSET_INDEX) not in files:
                yield segment.base_offset
            elif (segment.base_offset, TRANSACTION_INDEX) in files:
                try:
                    _ = segment.aborted
                except CorruptFile:
                    yield segment.base_offset

    def _trust(self, segments: list[Segment], log_start: int) -> int:
        active = segments[-1]
        log_end = active.next_offset() if active.size_bytes else active.base_offset
        active.unseal()
        self._load_producers(segments, segments[0].base_offset, log_end)
        if not self._epochs.entries:
            self._read_epochs(segments)
        return log_end

    def _read_epochs(self, segments: list[Segment]) -> None:
        """Collect leader epochs from the segments' first batches."""
        for segment in segments:
            for _, header in segment.batches():
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
                break

    def _recover(self, segments: list[Segment], log_start: int, recovery_point: int) -> tuple[list[Segment], int]:
        first = 0
        for index, segment in enumerate(segments):
            if segment.base_offset <= recovery_point:
                first = index
        start = segments[first].base_offset
        if not self._epochs.entries:
            self._read_epochs(segments[:first])
        self._load_producers(segments[:first], segments[0].base_offset, start)
        if first and start not in self._snapshots.offsets:
            replace_snapshot(self._producers, self._snapshots, start, segments[0].base_offset)
        end = start
        for index in range(first, len(segments)):
            segment, later = segments[index], segments[index + 1 :]
            size = segment.size_bytes
            end, sound_bytes = self._replay_segment(segment, max(end, segment.base_offset), log_start)
            if later and (sound_bytes < size or self._does_not_continue(end, later[0].base_offset, recovery_point)):
                # Before the cut: a crash between the two would leave a log that looks sound except for a gap.
                self._remove(later)
                later = []
            if sound_bytes < size:
                self._cut(segment, sound_bytes)
            segment.rewrite_aborted()
            if not later:
                return segments[: index + 1], end
            self._producers.end_offset = later[0].base_offset
            segment.seal()
            self._snapshots.take(self._producers, log_start)
        return segments, end

    def _does_not_continue(self, end: int, following: int, recovery_point: int) -> bool:
        """True if the next segment, which begins at ``following``, does not continue a log that ends at ``end``."""
        return following < end or self._is_hole(end, following, recovery_point)

    def _is_hole(self, end: int, following: int, recovery_point: int) -> bool:
        """True if a power cut took records while later ones reached the disk."""
        # Compaction leaves gaps as well: in a log that was ever compacted a gap proves nothing.
        return following > end >= recovery_point and not self._may_have_gaps

    def _remove(self, segments: list[Segment]) -> None:
        """Remove segments durably, the newest first, so that a crash in between leads to the same result."""
        for segment in reversed(segments):
            self._snapshots.remove(segment.base_offset)
            segment.remove()
        # Their records must not return behind others written in their place.
        self._files.sync_directory(self._directory)

    def _replay_segment(self, segment: Segment, expected: int, log_start: int) -> tuple[int, int]:
        """Rebuild one segment's indexes from its sound batches, which begin at ``expected`` or later. Returns the
        offset after them, and their bytes."""
        segment.start_growing(
            OffsetIndex(segment.base_offset), TimeIndex(segment.base_offset), (NO_TIMESTAMP, segment.base_offset), []
        )
        segment.timestamps_checked = True
        size, sound_bytes = segment.size_bytes, 0
        interval = self._config.index_interval_bytes
        limit = self._config.largest_batch_bytes
        for position, header, buffer, at in iter_checked(segment.file, 0, size, limit) if size else ():
            if header.base_offset < expected or header.last_offset - segment.base_offset > INT32_MAX:
                break
            if not self._replay(segment, header, buffer, at, log_start):
                break
            expected = header.next_offset
            sound_bytes = position + header.size_bytes
            segment.index_appended(position, header.size_bytes, header.last_offset, header.max_timestamp, interval)
            if hides_timestamps(header):
                segment.timestamps_checked = False  # a worker checks them before they matter: it may take long
        if sound_bytes < size:
            self._check_format(segment, sound_bytes)
        return expected, sound_bytes

    def _check_format(self, segment: Segment, position: int) -> None:
        # Messages of Apache Kafka before 0.11 are no damage, and are not cut off.
        limit = self._config.largest_batch_bytes
        message_format = message_format_at(segment.file, position, segment.size_bytes, limit)
        if message_format is not None:
            path = f"{self._directory}/{segment_file(segment.base_offset, LOG)}"
            raise UnusableDirectory(
                f"{path} has messages of format {message_format} at position {position}, and a broker reads format "
                f"{MAGIC}: choose another data directory, and load these files with oncelog load --from-logs"
            )

    def _cut(self, segment: Segment, size: int) -> None:
        segment.file.truncate(size)
        segment.file.sync()
        segment.size_bytes = size

    def _apply_epoch(self, header: BatchHeader) -> None:
        """Apply the batch's leader epoch, which overrides the file's."""
        if header.partition_leader_epoch != self._epochs.epoch_of(header.base_offset):
            # A power cut can keep records written in place of truncated ones, and lose the file's new content.
            last = self._epochs.entries[-1:]
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            self._epochs_contradicted |= last != self._epochs.entries[-2:-1]

    def _replay(self, segment: Segment, header: BatchHeader, buffer: Buffer, at: int, log_start: int) -> bool:
        """Apply a batch to producers and leader epochs; False if a control batch is unreadable."""
        self._apply_epoch(header)
        if header.producer_id >= 0:
            try:
                update = replayed(self._producers, header, buffer, at)
            except CorruptBatch:
                return False
            if update is not None:
                self._producers.commit(update)
                completed = update.completed
                if completed is not None and completed.aborted:
                    stable = self._producers.stable_after(completed)
                    producer_id, first, last, _ = completed
                    segment.aborted.append(AbortedTransaction(producer_id, first, last, stable))
        self._producers.end_offset = header.next_offset
        return True
