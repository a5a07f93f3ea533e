"""Reading one partition of a 0.7 log, file after file, also while an old broker appends to it and deletes from it.

The position is 0.7's own offset: the byte at which the next outer entry begins, in the file that it lies in. ``read``
gives messages up to a new position, or a damaged place, or None at the end of what there is. A damaged place is given
again until ``pass_over`` leaves it behind.

Rules: files are read, never mapped (a mapped file that is cut would end the process), a few megabytes at a time. At
the end of the last file an entry that is unfinished, or damage behind which nothing is sound, may still be written by
the old broker, or cut by its recovery: ``is_tail``, and the position stays before it. Where the next file begins,
everything that the one before did not hold is damage, with the gap.
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
    """Messages of whole entries, in order, and where the next entry begins."""

    payloads: list[bytes]
    position: int
    modified_ms: int
    """The file's time, milliseconds since the epoch: 0.7's messages have none of their own."""


class BadPlace(NamedTuple):
    """Bytes that cannot be read, and the offset at which it goes on."""

    path: Path
    """The file that they are in; in a gap between files, the one before it."""
    offset: int
    size: int
    """Bytes up to the next sound entry, the next file, or the end of the last file."""
    reason: str
    resume: int

    @property
    def is_tail(self) -> bool:
        """True at the end of the last file, with nothing sound behind: it is stayed before."""
        return self.resume == self.offset

    def __str__(self) -> str:
        return f"{self.path}: offset {self.offset}: {self.size} bytes cannot be read: {self.reason}"


class Mark(NamedTuple):
    """The bytes before a position, by number and CRC-32: enough to know a log again. None are in ``Mark(0, 0)``."""

    size: int
    crc: int


NO_MARK: Final = Mark(0, 0)


class LogReader:
    """Reads a partition's directory from a position (None: from its beginning); ``close`` it."""

    def __init__(self, directory: Path, position: int | None, limits: Limits = DEFAULT_LIMITS) -> None:
        self.directory = directory
        self.mark = NO_MARK
        """The bytes before ``position``, if they are in the file at hand."""
        self._limits = limits
        self._files: list[LogFile] = files_of(directory)
        self._at: LogFile | None = None
        self._descriptor = -1
        self._budget = Budget(0)
        self._next_start: int | None = None
        self._quiet_at: tuple[int, int] | None = None
        self._excess_told: int | None = None
        self.position = position if position is not None else (self._files[0].start if self._files else -1)

    def close(self) -> None:
        """Close the file at hand."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._at = -1, None

    def extent(self) -> tuple[int, int]:
        """The log's first position, and its end by the last file's size; zeros if it has no files. Raises OSError."""
        self._files = files_of(self.directory)
        if not self._files:
            return 0, 0
        start, path = self._files[-1]
        return self._files[0].start, start + path.stat().st_size

    def matches(self, mark: Mark) -> bool:
        """False if the bytes before the position are there and are others than those of ``mark``.

        Raises OldLogError if the log ends before the position.
        """
        end = self.extent()[1]
        if not self._files:
            return True
        if self.position > end:
            raise OldLogError(
                f"{self.directory}: the log ends at offset {end}, and was imported up to {self.position}: it was cut, "
                "or is another log; --as NAME imports it as one"
            )
        number = bisect_right(self._files, self.position - 1, key=lambda one: one.start) - 1
        if not mark.size or number < 0 or self._files[number].start > self.position - mark.size:
            return True
        start, path = self._files[number]
        with path.open("rb") as file:
            file.seek(self.position - mark.size - start)
            data = file.read(mark.size)
        return len(data) < mark.size or crc32(data) == mark.crc

    def read(self) -> Messages | BadPlace | None:
        """The next messages or bad place; None if there is nothing more yet. Raises OldLogError, OSError."""
        while True:
            if self._at is None:
                gap = self._open()
                if gap is not None or self._at is None:
                    return gap
            start, path = self._at
            stat = os.fstat(self._descriptor)
            held = start + stat.st_size
            end = held if self._next_start is None else min(held, self._next_start)
            if self.position < end and self._quiet_at != (self.position, end):
                found = self._read_from(path, start, end, stat.st_mtime_ns // 1_000_000)
                if not (isinstance(found, BadPlace) and found.is_tail and self._look_for_next_file()):
                    return found
            elif self._next_start is None:
                if self.position > held:
                    raise OldLogError(f"{path} was cut: it ends at offset {held}, before {self.position}")
                if not self._look_for_next_file():
                    return None
            else:
                left = self._leave(path, held, self._next_start)
                if left is not None:
                    return left

    def pass_over(self, place: BadPlace) -> None:
        """Go on behind a damaged place; at the tail, when something was written there."""
        if place.is_tail:
            self._quiet_at = (place.offset, place.offset + place.size)
        elif place.resume > self.position:
            self.position, self.mark = place.resume, NO_MARK
            if self._next_start is not None and self.position >= self._next_start:
                self.close()

    def _open(self) -> BadPlace | None:
        """Open the file that has the position, if there is one; or the gap before the first file."""
        while True:
            self._files = files_of(self.directory)
            if not self._files:
                return None
            if self.position < 0:
                self.position = self._files[0].start
            number = bisect_right(self._files, self.position, key=lambda file: file.start) - 1
            if number < 0:
                start, path = self._files[0]
                reason = "the old broker deleted them before they were imported"
                return BadPlace(path, self.position, start - self.position, reason, start)
            try:
                self._descriptor = os.open(self._files[number].path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # deleted since it was listed
            self._at = self._files[number]
            self._next_start = self._files[number + 1].start if number + 1 < len(self._files) else None
            self._budget = Budget(os.fstat(self._descriptor).st_size)
            return None

    def _look_for_next_file(self) -> bool:
        """True if there is a file behind the one at hand by now."""
        assert self._at is not None
        here = self._at.start
        self._next_start = next((file.start for file in files_of(self.directory) if file.start > here), None)
        return self._next_start is not None

    def _read_from(self, path: Path, start: int, end: int, modified_ms: int) -> Messages | BadPlace:
        """Whole entries from the position on, or the damage there. ``end``: of the log, as far as this file has it."""
        at, left = self.position - start, end - self.position
        data = os.pread(self._descriptor, min(READ_BYTES, left), at)
        scanned = read_messages(data, 0, self._limits)
        if not scanned.entries and isinstance(scanned.problem, UnfinishedEntry) and scanned.problem.needed <= left:
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

    def _leave(self, path: Path, held: int, following: int) -> BadPlace | None:
        """Leave a file at its end for the next; or the gap, or the excess, that lies between them."""
        if self.position < following:
            reason = f"the file ends at offset {held}, and the next one begins at {following}"
            return BadPlace(path, self.position, following - self.position, reason, following)
        if held > following and self._excess_told != following:
            self._excess_told = following
            reason = f"the next file begins at {following}, and these are behind that"
            return BadPlace(path, following, held - following, reason, following)
        self.close()
        return None
