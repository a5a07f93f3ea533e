"""The index files of a segment beside its batches: an entry is wrong if a reader that follows it misses a record.

An offset index entry (offset, position): no record at or after the offset stands before the position, and a batch
begins there. A time index entry (time, offset): no record before the offset is later than the time, and the batch that
holds the offset is from that time. Entries of a transaction index are facts for ``history``, which knows where
transactions begin. Missing entries are not wrong: both indexes are sparse.

Pieces are given in turn, so that a segment of any size needs only its indexes (some MB) in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from oncelog.spark.audit.audit_plan import SegmentTask
from oncelog.spark.audit.model import Fact, Finding, Outcome, Rank
from oncelog.spark.audit.segments.batch_table import Integers, Piece
from oncelog.storage.errors import CorruptFile
from oncelog.storage.file_names import OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from oncelog.storage.index.offset_index import load_offset_index
from oncelog.storage.index.time_index import load_time_index
from oncelog.storage.index.transaction_index import AbortedTransaction, load_transaction_index

MAX_INDEX_BYTES: Final = 256 << 20
_SHOWN: Final = 5
"""Wrong entries of one index that are reported one by one."""
_KINDS: Final = {OFFSET_INDEX: "offset-index", TIME_INDEX: "time-index", TRANSACTION_INDEX: "transaction-index"}


class IndexChecker:
    """Offset and time index of one segment, beside its batches as they are read."""

    def __init__(self, task: SegmentTask) -> None:
        self._task = task
        self._wrong: dict[str, list[tuple[int, str]]] = {}
        self._numbers: dict[str, int] = {}
        self._offsets, self._positions = self._load_offsets()
        self._times, self._time_offsets = self._load_times()
        self._read_to, self._last_offset, self._latest = 0, task.base_offset - 1, -1
        self.aborted = self._load_aborted()
        self.has_transaction_index = bool(self.aborted) or TRANSACTION_INDEX in self._wrong

    def add(self, piece: Piece) -> None:
        """The next batches of the segment."""
        if not len(piece):
            return
        self._check_offsets(piece)
        if not piece.is_message_set:
            self._check_times(piece)
        self._read_to = int(piece.position[-1] + piece.size_bytes[-1])
        self._last_offset = int(piece.last_offset[-1])
        self._latest = max(self._latest, int(piece.max_timestamp.max()))

    def finish(self, *, whole: bool) -> Iterator[Finding]:
        """The findings, after the last piece. ``whole``: all batches that the indexes may name have been read."""
        if whole:
            for at in np.flatnonzero(self._positions >= self._read_to)[:_SHOWN].tolist():
                self._add_wrong(
                    OFFSET_INDEX, int(self._offsets[at]), f"position {self._positions[at]} is after the last batch"
                )
            for at in np.flatnonzero(self._time_offsets > self._last_offset)[:_SHOWN].tolist():
                self._add_wrong(TIME_INDEX, int(self._time_offsets[at]), "is after the last batch")
        for extension, wrong in self._wrong.items():
            more = self._numbers[extension] - len(wrong)
            for index, (offset, text) in enumerate(wrong):
                rest = f" (and {more} more entries)" if more and index == len(wrong) - 1 else ""
                yield self._finding(extension, offset, text + rest)

    def facts(self) -> Iterator[Fact]:
        """The entries of the transaction index."""
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
                outcome=Outcome.ABORTED,
                value=entry.first_offset,
            )

    def _check_offsets(self, piece: Piece) -> None:
        end = int(piece.position[-1] + piece.size_bytes[-1])
        here = np.flatnonzero((self._positions >= self._read_to) & (self._positions < end))
        if not len(here):
            return
        offsets, positions = self._offsets[here], self._positions[here]
        index = np.searchsorted(piece.position, positions, side="right") - 1
        begins = (index >= 0) & (piece.position[index] == positions)
        before = np.where(index > 0, piece.last_offset[index - 1], self._last_offset)
        if piece.is_message_set:  # brokers before 0.11 noted the first offset of what they appended, or one in it
            unknown = begins & ~((piece.base_offset[index] <= offsets) & (offsets <= piece.last_offset[index]))
        else:
            unknown = (offsets <= piece.last_offset[-1]) & ~np.isin(offsets, piece.last_offset)
        for at in np.flatnonzero(~begins | (before >= offsets) | unknown).tolist():
            if not begins[at]:
                text = f"no batch begins at position {positions[at]}"
            elif before[at] >= offsets[at]:
                text = f"offset {offsets[at]} stands before position {positions[at]}"
            else:
                text = f"no batch ends with offset {offsets[at]}"
            self._add_wrong(OFFSET_INDEX, int(offsets[at]), text)

    def _check_times(self, piece: Piece) -> None:
        last = int(piece.last_offset[-1])
        here = np.flatnonzero((self._time_offsets > self._last_offset) & (self._time_offsets <= last))
        if not len(here):
            return
        times, offsets = self._times[here], self._time_offsets[here]
        index = np.searchsorted(piece.last_offset, offsets, side="left")
        latest = np.maximum.accumulate(np.concatenate(([self._latest], piece.max_timestamp)))
        emptied = piece.record_count[index] == 0
        missed = (latest[index] > times) & ~emptied
        wrong = (piece.max_timestamp[index] != times) & ~emptied & (not self._task.cleaned)
        for at in np.flatnonzero(missed | wrong).tolist():
            if missed[at]:
                text = f"a record before offset {offsets[at]} is from {latest[index][at]}, later than {times[at]}"
            else:
                text = f"says {times[at]}, the batch there is from {piece.max_timestamp[index][at]}"
            self._add_wrong(TIME_INDEX, int(offsets[at]), text)

    def _load_offsets(self) -> tuple[Integers, Integers]:
        data = self._read(OFFSET_INDEX)
        try:
            index = load_offset_index(data, self._task.base_offset, 1 << 62)
        except CorruptFile as error:
            self._add_wrong(OFFSET_INDEX, self._task.base_offset, str(error))
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        entries = np.frombuffer(bytes(index.data), ">i4").astype(np.int64).reshape(-1, 2)
        return entries[:, 0] + self._task.base_offset, entries[:, 1]

    def _load_times(self) -> tuple[Integers, Integers]:
        data = self._read(TIME_INDEX)
        try:
            index = load_time_index(data, self._task.base_offset)
        except CorruptFile as error:
            self._add_wrong(TIME_INDEX, self._task.base_offset, str(error))
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        entries = np.frombuffer(bytes(index.data), np.dtype([("time", ">i8"), ("offset", ">i4")]))
        return entries["time"].astype(np.int64), entries["offset"].astype(np.int64) + self._task.base_offset

    def _load_aborted(self) -> list[AbortedTransaction]:
        try:
            return load_transaction_index(self._read(TRANSACTION_INDEX), self._task.base_offset)
        except CorruptFile as error:
            self._add_wrong(TRANSACTION_INDEX, self._task.base_offset, str(error))
            return []

    def _read(self, extension: str) -> bytes:
        """The file's bytes without the zeros a running or killed broker leaves in the space it has set aside."""
        if extension not in self._task.beside:
            return b""
        path = Path(self._task.beside_path(extension))
        try:
            if path.stat().st_size > MAX_INDEX_BYTES:
                self._add_wrong(extension, self._task.base_offset, f"{path.stat().st_size} bytes: not read")
                return b""
            data = path.read_bytes()
        except OSError as error:
            self._add_wrong(extension, self._task.base_offset, f"cannot be read: {error.strerror}")
            return b""
        return data if data.strip(b"\0") else b""

    def _add_wrong(self, extension: str, offset: int, text: str) -> None:
        self._numbers[extension] = self._numbers.get(extension, 0) + 1
        wrong = self._wrong.setdefault(extension, [])
        if len(wrong) < _SHOWN:
            wrong.append((offset, text))

    def _finding(self, extension: str, offset: int, text: str) -> Finding:
        task = self._task
        path = task.beside_path(extension)
        return Finding(_KINDS[extension], task.topic, task.partition, offset, path=path, text=text)
