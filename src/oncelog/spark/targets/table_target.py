"""The port to a table of another format: one commit adds and removes rows *and* moves its partitions' spans.

1. After ``commit`` the table has either all of a change or nothing. ``spans`` reads the newest commit alone.
2. A change states the span it assumes for each partition (``Move.before``). If another writer moves the partition
   before the commit, nothing is written and TableMoved is raised.
3. A commit whose response was lost is looked up by its id before it is retried, so it is there once.
4. Tasks write files under unique names, which count only once a commit names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from oncelog.base.ids import TopicPartition
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.table.directory import TableBusy, TableError

T = TypeVar("T")


class TableMoved(TableBusy):
    """Another writer has already committed these rows."""


def existing(table: T | None, name: str) -> T:
    if table is None:
        raise TableError(f"there is no table at {name}")
    return table


class Span(NamedTuple):
    """The offsets of a partition in a table; ``end`` is exclusive."""

    begin: int
    end: int

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.begin <= offset < self.end

    def joined(self, other: Span) -> Span:
        """The smallest span with both. Offsets between them are in the table, or were never to be."""
        return Span(min(self.begin, other.begin), max(self.end, other.end))


Spans = dict[TopicPartition, Span]


class Move(NamedTuple):
    """A partition's span before a commit (None: it had none) and after it. An equal span stands for its end: rows are
    replaced up to there."""

    before: Span | None
    after: Span

    @property
    def moves_begin(self) -> bool:
        """True if the change requires this begin. A backfill does; a stream beside it does not."""
        return self.before is None or self.before.begin != self.after.begin

    @property
    def moves_end(self) -> bool:
        """True if the change requires this end."""
        return self.before is None or self.before.end != self.after.end or self.before == self.after

    def holds_for(self, now: Span | None) -> bool:
        """True if the change may be made to a table where the partition has the span ``now``."""
        if now is None or self.before is None:
            return now is self.before
        same_begin, same_end = now.begin == self.before.begin, now.end == self.before.end
        return (same_begin or not self.moves_begin) and (same_end or not self.moves_end)

    def applied(self, now: Span | None) -> Span:
        """The span after the change to such a table."""
        if now is None:
            return self.after
        return Span(self.after.begin if self.moves_begin else now.begin, self.after.end if self.moves_end else now.end)


class NewFile(NamedTuple):
    """A new Parquet file with rows of one partition (``topic`` "" if several), and its directories for columns."""

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
    """One commit: removes ``replaced`` rows, adds ``files``, moves partitions."""

    files: Sequence[NewFile]
    moves: Mapping[TopicPartition, Move]
    replaced: Sequence[OffsetRange] = field(default=())

    def check(self, spans: Spans, name: str) -> None:
        """Raise TableMoved unless every partition has the span that the change assumes."""
        for partition, move in sorted(self.moves.items()):
            if not move.holds_for(spans.get(partition)):
                raise TableMoved(
                    f"another load or stream has committed rows of {partition} to {name} meanwhile; nothing was "
                    "written. Run it again: it resumes where the table ends"
                )


class FileStore(Protocol):
    """The store of a table's files, on any executor. It is pickled."""

    def create(self, name: str, levels: str) -> tuple[str, IO[bytes] | pa.NativeFile]:
        """Open a new file under ``levels`` (``day=2013-06-01``, or ""). Returns its path as commits name it and a
        stream; closing makes it durable."""

    def open(self, path: str) -> IO[bytes] | pa.NativeFile:
        """Open for reading."""

    def size(self, path: str) -> int:
        """The size of a file in bytes."""

    def delete(self, path: str) -> None:
        """Remove a file that no commit names."""


class Target(Protocol):
    @property
    def name(self) -> str:
        """The table's address, for messages."""

    def spans(self, partitions: Iterable[TopicPartition]) -> Spans:
        """Each partition's span by the newest commit, without partitions never loaded."""

    def columns(self) -> pa.Schema | None:
        """The table's columns, without those of directories; None without a table."""

    def prepare(self, schema: pa.Schema, partition_by: str | None, description: Mapping[str, Any]) -> None:
        """Create the table with its description if it is missing, and add the columns that it lacks."""

    def describe(self) -> dict[str, Any]:
        """The description recorded by ``prepare`` or ``set_description``; empty for a new table."""

    def set_description(self, description: Mapping[str, Any]) -> None:
        """Record settings that never change for the table (topic ids, shape)."""

    def store(self) -> FileStore:
        """The store of its files."""

    def commit(self, change: Change) -> None:
        """Commit a change by the rules above. Raises TableMoved, TableError."""

    def compact(self, target_bytes: int) -> tuple[int, int]:
        """Merge small files with the format's own commit. Returns the number of files before and after."""
