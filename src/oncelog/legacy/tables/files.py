"""Planning of loads from old logs: the files of a directory, and the ranges that a table lacks.

Offsets are the format's: in 0.7 the byte position of an outer entry, shared by its messages; in formats 0 and 1 the
message's. A file ends where the next begins, the last after its last complete entry, which the driver finds by lengths
alone: no range ends inside an entry, and the next load begins there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple

from oncelog.base.ids import partition_of_directory
from oncelog.base.units import MIB
from oncelog.legacy.logs.directories import files_of, logs_in
from oncelog.legacy.logs.entries import LENGTH_BYTES, MIN_MESSAGE_BYTES
from oncelog.legacy.message_set import LOG_OVERHEAD, MIN_SIZES
from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.source.offset_ranges import OffsetRange

Format = Literal["0.7", "message set"]
WINDOW_BYTES: Final = 4 * MIB
_LENGTH: Final = struct.Struct(">i")
_OFFSET_AND_SIZE: Final = struct.Struct(">qi")


class OldLogsError(SparkSourceError):
    """Old logs cannot be found or read; the text names the file and says what to do."""


@dataclass(frozen=True)
class OldLogRange(OffsetRange):
    """A task's range of one file. A dataclass, because it is sent to executors."""

    path: str = ""
    file_start: int = 0
    kind: Format = "0.7"
    end_position: int = -1
    """The end of complete entries in the file; −1: the file's end."""

    @property
    def max_rows(self) -> int | None:
        """None for 0.7, whose compressed entries may hold more messages than bytes."""
        return None if self.kind == "0.7" else self.size


class OldFile(NamedTuple):
    """A file of a partition, and its offsets from ``start`` (inclusive) to ``end`` (exclusive)."""

    topic: str
    partition: int
    path: Path
    kind: Format
    start: int
    end: int
    end_position: int = -1

    def since(self, position: int) -> OldLogRange:
        """The range from a position on, which may lie within the file."""
        start = max(self.start, position)
        return OldLogRange(
            self.topic, self.partition, start, self.end, "", str(self.path), self.start, self.kind, self.end_position
        )


def old_files(directory: Path, topics: Iterable[str]) -> list[OldFile]:
    """The files of the named logs (all by default), by topic, partition and offset. Raises OldLogsError for a directory
    without old logs and for an unknown log, ClientError, OSError.
    """
    by_log: dict[str, list[OldFile]] = {}
    for log, partitions in logs_in(directory).items():
        for number, path in partitions.items():
            by_log.setdefault(log, []).extend(_files_of_0_7(log, number, path))
    for path in _directories(directory):
        named = partition_of_directory(path.name)
        segments = sorted(segment for segment in path.iterdir() if segment.suffix == ".log" and segment.stem.isdigit())
        if named is not None and segments:
            by_log.setdefault(named.topic, []).extend(_segments(named.topic, named.partition, segments))
    selected = set(topics)
    missing = sorted(selected - by_log.keys())
    if missing or not by_log:
        has = f"it has {', '.join(sorted(by_log))}" if by_log else "it has no directories NAME-N with files of a log"
        raise OldLogsError(f"{directory} has no log {', '.join(missing)}; {has}" if missing else f"{directory}: {has}")
    return sorted(file for log, files in by_log.items() if not selected or log in selected for file in files)


def _directories(directory: Path) -> Iterator[Path]:
    yield directory.resolve()
    yield from sorted(child for child in directory.iterdir() if child.is_dir())


def _files_of_0_7(log: str, partition: int, directory: Path) -> Iterator[OldFile]:
    files = files_of(directory)
    for file, following in pairwise(files):
        yield OldFile(log, partition, file.path, "0.7", file.start, following.start)
    if files:
        start, path = files[-1]
        end = start + _end_of_whole_entries(path, _LENGTH, LENGTH_BYTES, MIN_MESSAGE_BYTES)[0]
        yield OldFile(log, partition, path, "0.7", start, end)


def _segments(topic: str, partition: int, paths: list[Path]) -> Iterator[OldFile]:
    for path, following in pairwise(paths):
        yield OldFile(topic, partition, path, "message set", int(path.stem), int(following.stem))
    last = paths[-1]
    start = int(last.stem)
    position, head = _end_of_whole_entries(last, _OFFSET_AND_SIZE, LOG_OVERHEAD, MIN_SIZES[0])
    end = start if head is None else max(start, head[0] + 1)
    yield OldFile(topic, partition, last, "message set", start, end, position)


def _end_of_whole_entries(
    path: Path, head: struct.Struct, overhead: int, least: int
) -> tuple[int, tuple[int, ...] | None]:
    """The position after the last complete entry, and that entry's head, whose last number is its length."""
    at, last = 0, None
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        window, begin = b"", 0
        while at + overhead <= size:
            if not begin <= at <= begin + len(window) - overhead:
                window, begin = os.pread(file.fileno(), WINDOW_BYTES, at), at
                if len(window) < overhead:
                    break
            fields = head.unpack_from(window, at - begin)
            if fields[-1] < least or at + overhead + fields[-1] > size:
                break
            last = fields
            at += overhead + fields[-1]
    return at, last
