"""A task of the audit: one segment → its facts, states, findings and totals.

Reads the log file once, in pieces, and the small files beside it. Anything that cannot be read is a finding: a
task never fails because of a file's content, or because the file has gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from oncelog.base.ids import INTERNAL_TOPICS, TopicName, TopicPartition
from oncelog.base.units import INT64_MAX
from oncelog.records.batch import LOG_APPEND_TIME
from oncelog.spark.audit.audit_plan import PartitionPlace, SegmentTask
from oncelog.spark.audit.model import Fact, Finding, Outcome, Part, Rank, SegmentStat, batches_of
from oncelog.spark.audit.segments.batch_headers import Damage, read_pieces
from oncelog.spark.audit.segments.batch_table import Piece
from oncelog.spark.audit.segments.index_checks import IndexChecker
from oncelog.spark.audit.segments.internal_topics import InternalReader
from oncelog.spark.audit.segments.producer_runs import attributable, producer_facts
from oncelog.storage.errors import CorruptFile
from oncelog.storage.producer_snapshots import decode_snapshot

_SHOWN: Final = 100
"""Findings of one kind that one segment reports one by one."""
_MAX_SNAPSHOT_BYTES: Final = 256 << 20
Typed = tuple[type[Any], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of every task."""

    check_crc: bool = True
    places: Mapping[TopicPartition, PartitionPlace] = field(default_factory=dict)
    moving: bool = False
    """Files may be of different moments: the last segment's indexes may know of batches that it does not have."""


@dataclass(slots=True)
class _Totals:
    """Sums over the pieces of a segment."""

    next_offset: int
    first_offset: int = -1
    batches: int = 0
    records: int = 0
    max_timestamp: int = -1
    first_timestamp: int = -1
    broker_timestamp: int = -1
    has_holes: bool = False
    dense_since: int = -1
    damaged_from: int = -1
    damaged_to: int = -1
    findings: list[Finding] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)


def read_segment(task: SegmentTask, options: ReadOptions) -> Iterator[Typed]:
    """Facts, states of coordinators (as Parts), findings and one SegmentStat."""
    reading = _SegmentReader(task, options)
    try:
        yield from reading.pieces()
    except OSError as error:
        reading.damage("unreadable", task.base_offset, f"{type(error).__name__}: {error.strerror or error}")
    yield from reading.rest()


class _SegmentReader:
    """A segment that is being read, piece by piece."""

    def __init__(self, task: SegmentTask, options: ReadOptions) -> None:
        self._task, self._options = task, options
        self._totals = _Totals(next_offset=task.base_offset)
        self._damages: list[Damage] = []
        self._goes_on: list[int] = []
        """Offset of the first batch after each damage, if there is one."""
        self._checker = IndexChecker(task)
        self._internal = InternalReader(task, options.places)
        place = options.places.get(TopicPartition(TopicName(task.topic), task.partition))
        # Replicas of an internal topic say the same: it must be heard once.
        self._says_for_all = task.topic in INTERNAL_TOPICS and place is not None and place.replica == task.replica
        self._size = task.size_bytes
        self._modified_ms = -1
        self._began = time.perf_counter()

    def pieces(self) -> Iterator[Typed]:
        """Read the log file."""
        task = self._task
        is_last = task.next_base_offset < 0
        with open(task.path, "rb", buffering=0) as file:
            self._size = file.seek(0, os.SEEK_END)
            self._modified_ms = os.fstat(file.fileno()).st_mtime_ns // 1_000_000
            pieces = read_pieces(
                file, self._size, task.base_offset, self._damages, check_crc=self._options.check_crc, is_last=is_last
            )
            for piece in pieces:
                self._count(piece)
                self._checker.add(piece)
                facts = producer_facts(piece, task)
                if facts is not None:
                    yield Fact, facts
                if self._says_for_all and not piece.is_message_set:
                    yield from _typed(Fact, self._internal.add(piece))

    def rest(self) -> Iterator[Typed]:
        """The rows that are known after the last piece."""
        totals, task = self._totals, self._task
        for damage, goes_on_at in zip_longest(self._damages, self._goes_on):
            text = f"{damage.text} (at byte {damage.position})"
            if damage.zeros:
                self._found(damage.kind, damage.offset, text)
            else:
                self.damage(damage.kind, damage.offset, text, goes_on_at)
        self._end()
        totals.findings += self._checker.finish(
            whole=totals.damaged_from < 0 and not (self._options.moving and task.next_base_offset < 0)
        )
        totals.findings += self._internal.findings()
        yield from _typed(Fact, self._checker.facts())
        yield from _typed(Fact, self._internal.facts())
        yield from _typed(Fact, self._snapshots())
        yield from _typed(Part, (state.as_part() for state in self._internal.states()))
        yield from _typed(Finding, self._shown())
        yield from _typed(SegmentStat, (self._stat(),))

    def damage(self, kind: str, offset: int, text: str, goes_on_at: int | None = None) -> None:
        """Note a damage from ``offset`` up to ``goes_on_at``; None: up to the end of the segment, or of the log."""
        if goes_on_at is None:
            goes_on_at = INT64_MAX if self._task.next_base_offset < 0 else self._task.next_base_offset
        self._missing(offset, goes_on_at)
        self._found(kind, offset, text)

    def _missing(self, offset: int, goes_on_at: int) -> None:
        totals = self._totals
        totals.damaged_from = offset if totals.damaged_from < 0 else min(totals.damaged_from, offset)
        totals.damaged_to = max(totals.damaged_to, goes_on_at)

    def _end(self) -> None:
        """The segment has to go on to where the next begins."""
        task, totals = self._task, self._totals
        missing = task.next_base_offset - totals.next_offset
        if task.next_base_offset < 0 or not missing:
            return
        totals.dense_since = max(totals.dense_since, totals.max_timestamp, 0)
        if task.cleaned and missing > 0:
            totals.has_holes = True
        elif missing < 0:
            self._found("batch", totals.next_offset - 1, f"the next segment begins at {task.next_base_offset} already")
        elif totals.damaged_from < 0:
            self.damage("gap", totals.next_offset, f"{missing} offsets are missing before the next segment")

    def _count(self, piece: Piece) -> None:
        totals = self._totals
        while len(self._goes_on) < len(self._damages):
            self._goes_on.append(int(piece.base_offset[0]))
        if totals.first_offset < 0:
            totals.first_offset = int(piece.base_offset[0])
            totals.first_timestamp = int(piece.max_timestamp[0])
        if not piece.sound.all():
            self._unsound(piece)
        self._places(piece)
        totals.batches += len(piece)
        totals.records += int(piece.record_count.sum())
        totals.max_timestamp = max(totals.max_timestamp, int(piece.max_timestamp.max()))
        by_broker = piece.is_control | ((piece.attributes & LOG_APPEND_TIME) != 0)
        by_broker |= self._task.topic in INTERNAL_TOPICS
        by_broker &= piece.sound
        if by_broker.any():
            totals.broker_timestamp = max(totals.broker_timestamp, int(piece.max_timestamp[by_broker].max()))
        totals.next_offset = int(piece.last_offset[-1]) + 1

    def _places(self, piece: Piece) -> None:
        """Offsets have to rise, and without compaction none may be missing."""
        totals = self._totals
        expected = np.concatenate(([totals.next_offset], piece.last_offset[:-1] + 1))
        back = (piece.base_offset < expected) | (piece.last_offset < piece.base_offset) | (piece.record_count < 0)
        back |= piece.record_count > piece.last_offset - piece.base_offset + 1
        for at in np.flatnonzero(back).tolist():
            text = f"offsets {piece.base_offset[at]} to {piece.last_offset[at]}, {piece.record_count[at]} records"
            self._found("batch", int(expected[at]), f"a batch says {text}, where {expected[at]} is next", piece, at)
        thinned = (piece.record_count < piece.last_offset - piece.base_offset + 1) & ~back
        jumps = (piece.base_offset > expected) & ~back
        holes = thinned | jumps
        if not holes.any():
            return
        totals.dense_since = max(int(piece.max_timestamp[np.flatnonzero(holes)[-1]]), 0)
        if self._task.cleaned or totals.has_holes or thinned.any():
            totals.has_holes = True
            return
        for at in np.flatnonzero(jumps).tolist():
            if self._damages and self._damages[-1].offset == expected[at]:
                continue  # said already
            missing = int(piece.base_offset[at]) - int(expected[at])
            self.damage("gap", int(expected[at]), f"{missing} offsets are missing", int(piece.base_offset[at]))

    def _unsound(self, piece: Piece) -> None:
        by_whom = attributable(piece)
        for at in np.flatnonzero(~piece.sound).tolist():
            size, position, offset = piece.size_bytes[at], piece.position[at], int(piece.base_offset[at])
            text = f"a batch of {size} bytes at byte {position} does not have the checksum it says"
            if not by_whom[at]:
                self._missing(offset, max(offset, int(piece.last_offset[at])) + 1)
            self._found("crc", offset, text, piece, at)

    def _snapshots(self) -> Iterator[Fact]:
        task = self._task
        for offset in task.snapshots:
            path = Path(task.snapshot_path(offset))
            try:
                if path.stat().st_size > _MAX_SNAPSHOT_BYTES:
                    raise CorruptFile(f"{path.stat().st_size} bytes")
                entries = decode_snapshot(path.read_bytes())
            except FileNotFoundError:
                continue
            except (CorruptFile, OSError) as error:
                self._totals.findings.append(
                    Finding("producer-snapshot", task.topic, task.partition, offset, path=str(path), text=str(error))
                )
                continue
            for entry in entries:
                first = entry.transaction_first_offset
                yield Fact(
                    task.topic,
                    task.partition,
                    task.replica,
                    entry.producer_id,
                    offset,
                    Rank.SNAPSHOT,
                    entry.last_data_offset,
                    epoch=entry.epoch,
                    last_sequence=entry.last_sequence,
                    outcome=Outcome.OPEN,
                    coordinator_epoch=entry.coordinator_epoch,
                    last_timestamp=entry.last_timestamp,
                    value=-1 if first is None else first,
                )

    def _found(self, kind: str, offset: int, text: str, piece: Piece | None = None, at: int = 0) -> None:
        number = self._totals.numbers[kind] = self._totals.numbers.get(kind, 0) + 1
        if number > _SHOWN:
            return
        task = self._task
        finding = Finding(kind, task.topic, task.partition, offset, path=task.path, text=text)
        if piece is not None:
            finding = finding._replace(
                last_offset=int(piece.last_offset[at]),
                producer_id=int(piece.producer_id[at]),
                epoch=int(piece.producer_epoch[at]),
                time=int(piece.max_timestamp[at]),
            )
        self._totals.findings.append(finding)

    def _shown(self) -> Iterator[Finding]:
        yield from self._totals.findings
        task = self._task
        for kind, number in self._totals.numbers.items():
            if number > _SHOWN:
                text = f"and {number - _SHOWN} more of this kind in this segment"
                yield Finding(kind, task.topic, task.partition, path=task.path, text=text)

    def _stat(self) -> SegmentStat:
        task, totals = self._task, self._totals
        return SegmentStat(
            task.topic,
            task.partition,
            task.replica,
            task.base_offset,
            task.path,
            self._size,
            totals.batches,
            totals.records,
            totals.first_offset,
            totals.next_offset,
            totals.max_timestamp,
            max(totals.broker_timestamp, self._internal.latest_update),
            self._modified_ms,
            totals.first_timestamp,
            totals.has_holes,
            totals.dense_since,
            totals.damaged_from,
            totals.damaged_to,
            self._checker.has_transaction_index,
            time.perf_counter() - self._began,
        )


def _typed(row_type: type[Any], rows: Iterator[Any] | tuple[Any, ...]) -> Iterator[Typed]:
    for batch in batches_of(rows, row_type):
        yield row_type, batch
