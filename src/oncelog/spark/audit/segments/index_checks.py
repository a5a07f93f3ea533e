"""Checks a segment's index files against its batches: an entry is wrong if a reader that follows it misses a record.

An offset index entry (offset, position) is right if a batch begins at the position and no record at or after the offset
precedes it. A time index entry (time, offset) is right if no record before the offset is later than the time, and the
batch that contains the offset has that time. Entries of a transaction index become facts for ``producer_history``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from oncelog.spark.audit.audit_plan import SegmentTask
from oncelog.spark.audit.model import Fact, Finding, Rank, TransactionOutcome
from oncelog.spark.audit.segments.batch_table import BatchTable, Integers
from oncelog.storage.errors import CorruptFile
from oncelog.storage.file_names import OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from oncelog.storage.index.offset_index import load_offset_index
from oncelog.storage.index.time_index import load_time_index
from oncelog.storage.index.transaction_index import AbortedTransaction, load_transaction_index

MAX_INDEX_BYTES: Final = 256 << 20
# Wrong entries of one index that are reported individually.
_SHOWN: Final = 5
_KINDS: Final = {OFFSET_INDEX: "offset-index", TIME_INDEX: "time-index", TRANSACTION_INDEX: "transaction-index"}


class IndexChecker:
    def __init__(self, task: SegmentTask) -> None:
        self._task = task
        self._errors: dict[str, list[tuple[int, str]]] = {}
        self._counts: dict[str, int] = {}
        # Only the indexes (a few MB) stay in memory; batches arrive table by table.
        self._offsets, self._positions = self._load_offsets()
        self._times, self._time_offsets = self._load_times()
        self._end_position, self._last_offset, self._latest = 0, task.base_offset - 1, -1
        self.aborted = self._load_aborted()
        self.has_transaction_index = bool(self.aborted) or TRANSACTION_INDEX in self._errors

    def add(self, batches: BatchTable) -> None:
        if not len(batches):
            return
        self._check_offsets(batches)
        if not batches.is_message_set:
            self._check_times(batches)
        self._end_position = int(batches.position[-1] + batches.size_bytes[-1])
        self._last_offset = int(batches.last_offset[-1])
        self._latest = max(self._latest, int(batches.max_timestamp.max()))

    def finish(self, *, whole: bool) -> Iterator[Finding]:
        """Yield the findings. ``whole``: every batch that an index may name was read."""
        if whole:
            for at in np.flatnonzero(self._positions >= self._end_position)[:_SHOWN].tolist():
                self._add_error(
                    OFFSET_INDEX, int(self._offsets[at]), f"position {self._positions[at]} is after the last batch"
                )
            for at in np.flatnonzero(self._time_offsets > self._last_offset)[:_SHOWN].tolist():
                self._add_error(TIME_INDEX, int(self._time_offsets[at]), "is after the last batch")
        for extension, errors in self._errors.items():
            unlisted = self._counts[extension] - len(errors)
            for index, (offset, text) in enumerate(errors):
                rest = f" (and {unlisted} more entries)" if unlisted and index == len(errors) - 1 else ""
                yield self._finding(extension, offset, text + rest)

    def facts(self) -> Iterator[Fact]:
        task = self._task
        for entry in self.aborted:
            yield Fact(
                task.topic,
                task.partition,
                task.replica,
                entry.producer_id,
                entry.last_offset,
                Rank.INDEX_ENTRY,
                entry.last_stable_offset,
                outcome=TransactionOutcome.ABORTED,
                value=entry.first_offset,
            )

    def _check_offsets(self, batches: BatchTable) -> None:
        end = int(batches.position[-1] + batches.size_bytes[-1])
        # Entries that are missing are not errors: both indexes are sparse.
        covered = np.flatnonzero((self._positions >= self._end_position) & (self._positions < end))
        if not len(covered):
            return
        offsets, positions = self._offsets[covered], self._positions[covered]
        index = np.searchsorted(batches.position, positions, side="right") - 1
        at_batch = (index >= 0) & (batches.position[index] == positions)
        previous_end = np.where(index > 0, batches.last_offset[index - 1], self._last_offset)
        # Brokers before 0.11 indexed the first offset of the appended set, or an offset within it.
        if batches.is_message_set:
            misplaced = at_batch & ~((batches.base_offset[index] <= offsets) & (offsets <= batches.last_offset[index]))
        else:
            misplaced = (offsets <= batches.last_offset[-1]) & ~np.isin(offsets, batches.last_offset)
        for at in np.flatnonzero(~at_batch | (previous_end >= offsets) | misplaced).tolist():
            if not at_batch[at]:
                text = f"no batch begins at position {positions[at]}"
            elif previous_end[at] >= offsets[at]:
                text = f"offset {offsets[at]} stands before position {positions[at]}"
            else:
                text = f"no batch ends with offset {offsets[at]}"
            self._add_error(OFFSET_INDEX, int(offsets[at]), text)

    def _check_times(self, batches: BatchTable) -> None:
        last = int(batches.last_offset[-1])
        covered = np.flatnonzero((self._time_offsets > self._last_offset) & (self._time_offsets <= last))
        if not len(covered):
            return
        times, offsets = self._times[covered], self._time_offsets[covered]
        # The batch that contains each entry's offset.
        index = np.searchsorted(batches.last_offset, offsets, side="left")
        # The latest time of any record before each batch.
        latest = np.maximum.accumulate(np.concatenate(([self._latest], batches.max_timestamp)))
        # Compaction keeps an emptied batch's header, whose time no longer counts.
        is_empty = batches.record_count[index] == 0
        missed = (latest[index] > times) & ~is_empty
        wrong = (batches.max_timestamp[index] != times) & ~is_empty & (not self._task.cleaned)
        for at in np.flatnonzero(missed | wrong).tolist():
            if missed[at]:
                text = f"a record before offset {offsets[at]} is from {latest[index][at]}, later than {times[at]}"
            else:
                text = f"says {times[at]}, the batch there is from {batches.max_timestamp[index][at]}"
            self._add_error(TIME_INDEX, int(offsets[at]), text)

    def _load_offsets(self) -> tuple[Integers, Integers]:
        data = self._read(OFFSET_INDEX)
        try:
            index = load_offset_index(data, self._task.base_offset, 1 << 62)
        except CorruptFile as error:
            self._add_error(OFFSET_INDEX, self._task.base_offset, str(error))
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        entries = np.frombuffer(bytes(index.data), ">i4").astype(np.int64).reshape(-1, 2)
        return entries[:, 0] + self._task.base_offset, entries[:, 1]

    def _load_times(self) -> tuple[Integers, Integers]:
        data = self._read(TIME_INDEX)
        try:
            index = load_time_index(data, self._task.base_offset)
        except CorruptFile as error:
            self._add_error(TIME_INDEX, self._task.base_offset, str(error))
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        entries = np.frombuffer(bytes(index.data), np.dtype([("time", ">i8"), ("offset", ">i4")]))
        return entries["time"].astype(np.int64), entries["offset"].astype(np.int64) + self._task.base_offset

    def _load_aborted(self) -> list[AbortedTransaction]:
        try:
            return load_transaction_index(self._read(TRANSACTION_INDEX), self._task.base_offset)
        except CorruptFile as error:
            self._add_error(TRANSACTION_INDEX, self._task.base_offset, str(error))
            return []

    def _read(self, extension: str) -> bytes:
        # Read the file, without the trailing zeros that a running or killed broker leaves in preallocated space.
        if extension not in self._task.beside:
            return b""
        path = Path(self._task.beside_path(extension))
        try:
            if path.stat().st_size > MAX_INDEX_BYTES:
                self._add_error(extension, self._task.base_offset, f"{path.stat().st_size} bytes: not read")
                return b""
            data = path.read_bytes()
        except OSError as error:
            self._add_error(extension, self._task.base_offset, f"cannot be read: {error.strerror}")
            return b""
        return data if data.strip(b"\0") else b""

    def _add_error(self, extension: str, offset: int, text: str) -> None:
        self._counts[extension] = self._counts.get(extension, 0) + 1
        errors = self._errors.setdefault(extension, [])
        if len(errors) < _SHOWN:
            errors.append((offset, text))

    def _finding(self, extension: str, offset: int, text: str) -> Finding:
        task = self._task
        path = task.beside_path(extension)
        return Finding(_KINDS[extension], task.topic, task.partition, offset, path=path, text=text)
