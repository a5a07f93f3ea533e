"""The port to a table of another format: one commit adds and removes rows *and* moves where its partitions go on.

Rules:
  1. after ``commit`` either all of a change is there or nothing; ``spans`` answers by the newest commit alone;
  2. a change says what it takes for granted of each partition (``Move.before``). If another writer has moved the
     partition, or does so before the commit is there, nothing is written and TableMoved is raised;
  3. a commit whose answer was lost is looked up by its id before it is tried again, so it is there once;
  4. files are written by tasks under names that nobody else has, and count only once a commit names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, Protocol

import pyarrow as pa

from oncelog.base.ids import TopicPartition
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.table.directory import TableBusy


class TableMoved(TableBusy):
    """Another writer has committed rows that this one was about to."""


class Span(NamedTuple):
    """The offsets of a partition that a table has: from ``begin`` (inclusive) to ``end`` (exclusive)."""

    begin: int
    end: int

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.begin <= offset < self.end

    def joined(self, other: Span) -> Span:
        """The least span with both; what is between them is had, or was never to be."""
        return Span(min(self.begin, other.begin), max(self.end, other.end))


Spans = dict[TopicPartition, Span]


class Move(NamedTuple):
    """A partition's span before a commit (None: it had none) and after it.

    One that stays as it was stands for its end: rows are replaced up to there.
    """

    before: Span | None
    after: Span

    @property
    def moves_begin(self) -> bool:
        """True if the change holds for this begin alone; a backfill does, a stream beside it does not."""
        return self.before is None or self.before.begin != self.after.begin

    @property
    def moves_end(self) -> bool:
        """True if the change holds for this end alone."""
        return self.before is None or self.before.end != self.after.end or self.before == self.after

    def holds_for(self, now: Span | None) -> bool:
        """True if a table where the partition has the span ``now`` may be changed so."""
        if now is None or self.before is None:
            return now is self.before
        same_begin, same_end = now.begin == self.before.begin, now.end == self.before.end
        return (same_begin or not self.moves_begin) and (same_end or not self.moves_end)

    def applied(self, now: Span | None) -> Span:
        """The span after the change to a table that it holds for."""
        if now is None:
            return self.after
        return Span(self.after.begin if self.moves_begin else now.begin, self.after.end if self.moves_end else now.end)


class NewFile(NamedTuple):
    """A Parquet file that was written: rows of one partition (``topic`` "" if of several), and the directories that
    stand for columns."""

    path: str
    size: int
    topic: str
    partition: int
    rows: int
    first_offset: int
    last_offset: int
    levels: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Change:
    """One commit: ``replaced`` rows go, those of ``files`` come, partitions move."""

    files: Sequence[NewFile]
    moves: Mapping[TopicPartition, Move]
    replaced: Sequence[OffsetRange] = field(default=())

    def check(self, spans: Spans, name: str) -> None:
        """Raise TableMoved unless every partition is where the change takes it to be."""
        for partition, move in sorted(self.moves.items()):
            if not move.holds_for(spans.get(partition)):
                raise TableMoved(
                    f"another load or stream has committed rows of {partition} to {name} meanwhile; nothing was "
                    "written. Run it again: it goes on where the table ends"
                )


class FileStore(Protocol):
    """The place of a table's files, as a task on any executor sees it. It is pickled."""

    def create(self, name: str, levels: str) -> tuple[str, IO[bytes] | pa.NativeFile]:
        """A new file under ``levels`` (``day=2013-06-01``, or ""), durable once closed; its path as commits name it."""

    def open(self, path: str) -> IO[bytes] | pa.NativeFile:
        """A file by its path, for reading."""

    def size(self, path: str) -> int:
        """The bytes of a file."""

    def delete(self, path: str) -> None:
        """Remove a file that no commit names."""


class Target(Protocol):
    """A table of some format."""

    @property
    def name(self) -> str:
        """The table's address, for people."""

    def spans(self, partitions: Iterable[TopicPartition]) -> Spans:
        """Each partition's span by the newest commit; partitions that were never loaded are left out."""

    def columns(self) -> pa.Schema | None:
        """The table's columns, without those that directories stand for; None if there is no table yet."""

    def prepare(self, schema: pa.Schema, partition_by: str | None, description: Mapping[str, Any]) -> None:
        """Create the table with its description if there is none; add the columns that it lacks."""

    def describe(self) -> dict[str, Any]:
        """The description that ``prepare`` or ``set_description`` has recorded; empty for a new table."""

    def set_description(self, description: Mapping[str, Any]) -> None:
        """Record what is to stay the same for the table's life (topic ids, settings)."""

    def store(self) -> FileStore:
        """The place of its files."""

    def commit(self, change: Change) -> None:
        """Make a change. Raises TableMoved, TableError; see the rules above."""

    def compact(self, target_bytes: int) -> tuple[int, int]:
        """Make larger files of small ones, by the format's own commit; the number of files before and after."""
