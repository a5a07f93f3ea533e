"""Reader of one partition of a 0.7 log, across its files, while an old broker may append to it and delete from it.

The position is 0.7's own offset: the byte at which the next outer entry begins. ``read`` returns messages up to a new
position, a damaged place (again until ``pass_over`` skips it), or None at the end.

Files are read a few megabytes at a time, never mapped. An incomplete entry at the end of the last file, or damage with
nothing valid after it, may still be being written by the old broker or cut by its recovery: it is marked ``is_tail``,
and the position stays before it. Once there is a next file, all that is missing before it is damage.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from oncelog.base.units import KIB, MIB
from oncelog.legacy.logs.directories import LogFile, OldLogError, files_of
from oncelog.legacy.logs.entries import DEFAULT_LIMITS, BadEntry, Limits, UnfinishedEntry, read_messages
from oncelog.legacy.logs.resync import Budget, next_entry

READ_BYTES: Final = 4 * MIB
MARK_BYTES: Final = 1 * KIB


class Messages(NamedTuple):
    payloads: list[bytes]
    position: int
    modified_ms: int
    """The file's modification time in milliseconds: 0.7's messages have no timestamps."""


class BadPlace(NamedTuple):
    path: Path
    """The file that contains them; for a gap between files, the one before it."""
    offset: int
    size: int
    """Bytes up to the next valid entry, the next file, or the end of the last file."""
    reason: str
    resume: int

    @property
    def is_tail(self) -> bool:
        """True at the end of the last file, with nothing valid after it; the position stays before it."""
        return self.resume == self.offset

    def __str__(self) -> str:
        return f"{self.path}: offset {self.offset}: {self.size} bytes cannot be read: {self.reason}"


class Mark(NamedTuple):
    """The size and CRC-32 of the bytes before a position, to recognise a log. ``Mark(0, 0)`` covers none."""

    size: int
    crc: int


NO_MARK: Final = Mark(0, 0)


class LogReader:
    """Reads a partition's directory from a position (None: from its start). Call ``close`` at the end."""

    def __init__(self, directory: Path, position: int | None, limits: Limits = DEFAULT_LIMITS) -> None:
        self.directory = directory
        self.mark = NO_MARK
        """A mark of the bytes before ``position``, if they are in the current file."""
        self._limits = limits
        self._files: list[LogFile] = files_of(directory)
        self._at: LogFile | None = None
        self._descriptor = -1
        self._budget = Budget(0)
        self._next_start: int | None = None
        self._quiet_at: tuple[int, int] | None = None
        self._excess_reported: int | None = None
        self.position = position if position is not None else (self._files[0].start if self._files else -1)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._at = -1, None

    def extent(self) -> tuple[int, int]:
        """The log's first position, and its end by the last file's size; zeros without files. Raises OSError."""
        self._files = files_of(self.directory)
        if not self._files:
            return 0, 0
        start, path = self._files[-1]
        return self._files[0].start, start + path.stat().st_size

    def matches(self, mark: Mark) -> bool:
        """False if the bytes before the position exist and differ from those of ``mark``.

        Raises OldLogError if the log ends before the position.
        """
        end = self.extent()[1]
        if not self._files:
            return True
        if self.position > end:
            raise OldLogError(
                f"{self.directory}: the log ends at offset {end}, but was imported up to {self.position}: it was "
                "truncated or is another log; use --as NAME to import it as another one"
            )
        number = bisect_right(self._files, self.position - 1, key=lambda file: file.start) - 1
        if not mark.size or number < 0 or self._files[number].start > self.position - mark.size:
            return True
        start, path = self._files[number]
        with path.open("rb") as file:
            file.seek(self.position - mark.size - start)
            data = file.read(mark.size)
        return len(data) < mark.size or crc32(data) == mark.crc

    def read(self) -> Messages | BadPlace | None:
        """The next messages or damaged place; None at the end of the log. Raises OldLogError, OSError."""
        while True:
            if self._at is None:
                gap = self._open()
                if gap is not None or self._at is None:
                    return gap
            start, path = self._at
            stat = os.fstat(self._descriptor)
            file_end = start + stat.st_size
            end = file_end if self._next_start is None else min(file_end, self._next_start)
            if self.position < end and self._quiet_at != (self.position, end):
                result = self._read_from(path, start, end, stat.st_mtime_ns // 1_000_000)
                if not (isinstance(result, BadPlace) and result.is_tail and self._find_next_file()):
                    return result
            elif self._next_start is None:
                if self.position > file_end:
                    raise OldLogError(f"{path} was truncated: it ends at offset {file_end}, before {self.position}")
                if not self._find_next_file():
                    return None
            else:
                damage = self._leave(path, file_end, self._next_start)
                if damage is not None:
                    return damage

    def pass_over(self, place: BadPlace) -> None:
        """Skip a damaged place; at the tail, wait until something is written there."""
        if place.is_tail:
            self._quiet_at = (place.offset, place.offset + place.size)
        elif place.resume > self.position:
            self.position, self.mark = place.resume, NO_MARK
            if self._next_start is not None and self.position >= self._next_start:
                self.close()

    def _open(self) -> BadPlace | None:
        """Open the file with the position; returns the gap before the first file, if the position is there."""
        while True:
            self._files = files_of(self.directory)
            if not self._files:
                return None
            if self.position < 0:
                self.position = self._files[0].start
            number = bisect_right(self._files, self.position, key=lambda file: file.start) - 1
            if number < 0:
                start, path = self._files[0]
                reason = "the old broker deleted this part before it was imported"
                return BadPlace(path, self.position, start - self.position, reason, start)
            try:
                self._descriptor = os.open(self._files[number].path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # It was deleted after the listing.
            self._at = self._files[number]
            self._next_start = self._files[number + 1].start if number + 1 < len(self._files) else None
            self._budget = Budget(os.fstat(self._descriptor).st_size)
            return None

    def _find_next_file(self) -> bool:
        assert self._at is not None
        here = self._at.start
        self._next_start = next((file.start for file in files_of(self.directory) if file.start > here), None)
        return self._next_start is not None

    def _read_from(self, path: Path, start: int, end: int, modified_ms: int) -> Messages | BadPlace:
        """Complete entries from the position on, or the damage there. ``end`` is the log's end within this file."""
        at, remaining = self.position - start, end - self.position
        # Not mapped: truncating a mapped file would kill the process.
        data = os.pread(self._descriptor, min(READ_BYTES, remaining), at)
        scanned = read_messages(data, 0, self._limits)
        if not scanned.entries and isinstance(scanned.problem, UnfinishedEntry) and scanned.problem.needed <= remaining:
            data = os.pread(self._descriptor, scanned.problem.needed, at)
            scanned = read_messages(data, 0, self._limits)
        if not scanned.entries:
            assert scanned.problem is not None
            return self._bad_place(path, start, end, scanned.problem)
        self.position += scanned.position
        before = data[max(0, scanned.position - MARK_BYTES) : scanned.position]
        self.mark = Mark(len(before), crc32(before))
        return Messages(scanned.messages, self.position, modified_ms)

    def _bad_place(self, path: Path, start: int, end: int, problem: BadEntry) -> BadPlace:
        descriptor = self._descriptor

        def read(position: int, size: int) -> bytes:
            return os.pread(descriptor, size, position)

        at = self.position
        behind = start + next_entry(read, at - start, end - start, self._budget, self._limits)
        if behind == end and self._next_start is not None:
            behind = self._next_start
        resume = at if behind == end and self._next_start is None else behind
        return BadPlace(path, at, behind - at, str(problem), resume)

    def _leave(self, path: Path, file_end: int, following: int) -> BadPlace | None:
        """Returns the gap or overlap between a file and the next, if any."""
        if self.position < following:
            reason = f"the file ends at offset {file_end}, but the next one begins at {following}"
            return BadPlace(path, self.position, following - self.position, reason, following)
        if file_end > following and self._excess_reported != following:
            self._excess_reported = following
            reason = f"the next file begins at {following}, but this file continues after that"
            return BadPlace(path, following, file_end - following, reason, following)
        self.close()
        return None
