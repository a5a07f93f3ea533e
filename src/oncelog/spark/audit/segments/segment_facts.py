"""Reads one segment for the audit, chunk by chunk: yields its facts, coordinator states, findings and totals.

Unreadable content is a finding: a task never fails because of a file's content or disappearance.
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
from oncelog.spark.audit.model import Fact, Finding, Part, Rank, SegmentStat, TransactionOutcome, batches_of
from oncelog.spark.audit.segments.batch_headers import Damage, read_pieces
from oncelog.spark.audit.segments.batch_table import BatchTable
from oncelog.spark.audit.segments.index_checks import IndexChecker
from oncelog.spark.audit.segments.internal_topics import InternalReader
from oncelog.spark.audit.segments.producer_runs import attributable, producer_facts
from oncelog.storage.errors import CorruptFile
from oncelog.storage.producer_snapshots import decode_snapshot

# Findings of one kind that a segment reports individually.
_SHOWN: Final = 100
_MAX_SNAPSHOT_BYTES: Final = 256 << 20
TypedBatch = tuple[type[Any], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    check_crc: bool = True
    places: Mapping[TopicPartition, PartitionPlace] = field(default_factory=dict)
    # True if files may be from different moments: the last segment's indexes may name batches that it lacks.
    moving: bool = False


@dataclass(slots=True)
class _Totals:
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
    counts: dict[str, int] = field(default_factory=dict)


def read_segment(task: SegmentTask, options: ReadOptions) -> Iterator[TypedBatch]:
    """Yield facts, coordinator states (as Parts), findings and one SegmentStat."""
    reader = _SegmentReader(task, options)
    try:
        yield from reader.tables()
    except OSError as error:
        reader.damage("unreadable", task.base_offset, f"{type(error).__name__}: {error.strerror or error}")
    yield from reader.rest()


class _SegmentReader:
    def __init__(self, task: SegmentTask, options: ReadOptions) -> None:
        self._task, self._options = task, options
        self._totals = _Totals(next_offset=task.base_offset)
        self._damages: list[Damage] = []
        # Offset of the first batch after each damage that has one.
        self._resume_offsets: list[int] = []
        self._checker = IndexChecker(task)
        self._internal = InternalReader(task, options.places)
        place = options.places.get(TopicPartition(TopicName(task.topic), task.partition))
        # All replicas of an internal topic have the same records: decode only the primary's.
        self._decodes_internal = task.topic in INTERNAL_TOPICS and place is not None and place.replica == task.replica
        self._size = task.size_bytes
        self._modified_ms = -1
        self._began = time.perf_counter()

    def tables(self) -> Iterator[TypedBatch]:
        task = self._task
        is_last = task.next_base_offset < 0
        with open(task.path, "rb", buffering=0) as file:
            self._size = file.seek(0, os.SEEK_END)
            self._modified_ms = os.fstat(file.fileno()).st_mtime_ns // 1_000_000
            tables = read_pieces(
                file, self._size, task.base_offset, self._damages, check_crc=self._options.check_crc, is_last=is_last
            )
            for batches in tables:
                self._add_totals(batches)
                self._checker.add(batches)
                facts = producer_facts(batches, task)
                if facts is not None:
                    yield Fact, facts
                if self._decodes_internal and not batches.is_message_set:
                    yield from _typed(Fact, self._internal.add(batches))

    def rest(self) -> Iterator[TypedBatch]:
        totals, task = self._totals, self._task
        for damage, resume_offset in zip_longest(self._damages, self._resume_offsets):
            text = f"{damage.text} (at byte {damage.position})"
            if damage.zeros:
                self._report(damage.kind, damage.offset, text)
            else:
                self.damage(damage.kind, damage.offset, text, resume_offset)
        self._check_end()
        totals.findings += self._checker.finish(
            whole=totals.damaged_from < 0 and not (self._options.moving and task.next_base_offset < 0)
        )
        totals.findings += self._internal.findings()
        yield from _typed(Fact, self._checker.facts())
        yield from _typed(Fact, self._internal.facts())
        yield from _typed(Fact, self._snapshots())
        yield from _typed(Part, (state.as_part() for state in self._internal.states()))
        yield from _typed(Finding, self._findings())
        yield from _typed(SegmentStat, (self._stat(),))

    def damage(self, kind: str, offset: int, text: str, resume_offset: int | None = None) -> None:
        """Record damage from ``offset`` to ``resume_offset``; None: to the end of the segment, or of the log."""
        if resume_offset is None:
            resume_offset = INT64_MAX if self._task.next_base_offset < 0 else self._task.next_base_offset
        self._add_missing(offset, resume_offset)
        self._report(kind, offset, text)

    def _add_missing(self, offset: int, resume_offset: int) -> None:
        totals = self._totals
        totals.damaged_from = offset if totals.damaged_from < 0 else min(totals.damaged_from, offset)
        totals.damaged_to = max(totals.damaged_to, resume_offset)

    def _check_end(self) -> None:
        task, totals = self._task, self._totals
        missing = task.next_base_offset - totals.next_offset
        if task.next_base_offset < 0 or not missing:
            return
        totals.dense_since = max(totals.dense_since, totals.max_timestamp, 0)
        if task.cleaned and missing > 0:
            totals.has_holes = True
        elif missing < 0:
            self._report("batch", totals.next_offset - 1, f"the next segment already begins at {task.next_base_offset}")
        elif totals.damaged_from < 0:
            self.damage("gap", totals.next_offset, f"{missing} offsets are missing before the next segment")

    def _add_totals(self, batches: BatchTable) -> None:
        totals = self._totals
        while len(self._resume_offsets) < len(self._damages):
            self._resume_offsets.append(int(batches.base_offset[0]))
        if totals.first_offset < 0:
            totals.first_offset = int(batches.base_offset[0])
            totals.first_timestamp = int(batches.max_timestamp[0])
        if not batches.sound.all():
            self._report_unsound(batches)
        self._check_offsets(batches)
        totals.batches += len(batches)
        totals.records += int(batches.record_count.sum())
        totals.max_timestamp = max(totals.max_timestamp, int(batches.max_timestamp.max()))
        by_broker = batches.is_control | ((batches.attributes & LOG_APPEND_TIME) != 0)
        by_broker |= self._task.topic in INTERNAL_TOPICS
        by_broker &= batches.sound
        if by_broker.any():
            totals.broker_timestamp = max(totals.broker_timestamp, int(batches.max_timestamp[by_broker].max()))
        totals.next_offset = int(batches.last_offset[-1]) + 1

    def _check_offsets(self, batches: BatchTable) -> None:
        totals = self._totals
        expected = np.concatenate(([totals.next_offset], batches.last_offset[:-1] + 1))
        invalid = (
            (batches.base_offset < expected) | (batches.last_offset < batches.base_offset) | (batches.record_count < 0)
        )
        invalid |= batches.record_count > batches.last_offset - batches.base_offset + 1
        for index in np.flatnonzero(invalid).tolist():
            text = (
                f"offsets {batches.base_offset[index]} to {batches.last_offset[index]}, "
                f"{batches.record_count[index]} records"
            )
            self._report(
                "batch", int(expected[index]), f"a batch says {text}, where {expected[index]} is next", batches, index
            )
        thinned = (batches.record_count < batches.last_offset - batches.base_offset + 1) & ~invalid
        jumps = (batches.base_offset > expected) & ~invalid
        holes = thinned | jumps
        if not holes.any():
            return
        totals.dense_since = max(int(batches.max_timestamp[np.flatnonzero(holes)[-1]]), 0)
        if self._task.cleaned or totals.has_holes or thinned.any():
            totals.has_holes = True
            return
        for index in np.flatnonzero(jumps).tolist():
            if self._damages and self._damages[-1].offset == expected[index]:
                continue  # already reported with the damage
            missing = int(batches.base_offset[index]) - int(expected[index])
            self.damage("gap", int(expected[index]), f"{missing} offsets are missing", int(batches.base_offset[index]))

    def _report_unsound(self, batches: BatchTable) -> None:
        is_attributable = attributable(batches)
        for index in np.flatnonzero(~batches.sound).tolist():
            size, position, offset = batches.size_bytes[index], batches.position[index], int(batches.base_offset[index])
            text = f"a batch of {size} bytes at byte {position} does not have the checksum it says"
            if not is_attributable[index]:
                self._add_missing(offset, max(offset, int(batches.last_offset[index])) + 1)
            self._report("crc", offset, text, batches, index)

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
                    outcome=TransactionOutcome.OPEN,
                    coordinator_epoch=entry.coordinator_epoch,
                    last_timestamp=entry.last_timestamp,
                    value=-1 if first is None else first,
                )

    def _report(self, kind: str, offset: int, text: str, batches: BatchTable | None = None, index: int = 0) -> None:
        count = self._totals.counts[kind] = self._totals.counts.get(kind, 0) + 1
        if count > _SHOWN:
            return
        task = self._task
        finding = Finding(kind, task.topic, task.partition, offset, path=task.path, text=text)
        if batches is not None:
            finding = finding._replace(
                last_offset=int(batches.last_offset[index]),
                producer_id=int(batches.producer_id[index]),
                epoch=int(batches.producer_epoch[index]),
                time=int(batches.max_timestamp[index]),
            )
        self._totals.findings.append(finding)

    def _findings(self) -> Iterator[Finding]:
        yield from self._totals.findings
        task = self._task
        for kind, count in self._totals.counts.items():
            if count > _SHOWN:
                text = f"and {count - _SHOWN} more of this kind in this segment"
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


def _typed(row_type: type[Any], rows: Iterator[Any] | tuple[Any, ...]) -> Iterator[TypedBatch]:
    for batch in batches_of(rows, row_type):
        yield row_type, batch
