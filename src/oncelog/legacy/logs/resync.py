"""Search for the next valid entry after damage in a 0.7 file; it prefers finding none to inventing a message.

A payload may contain bytes that look like entries, so the search needs the end of the damaged entry:
1. Its length leads to a valid entry: only its payload or head is damaged.
2. Its length is wrong, but its CRC matches after some bytes, where an entry may begin: that is its end.
3. Its length reaches the file's end or beyond: it is the last entry, perhaps truncated. Nothing within it counts.
4. Its length fits in the file: the next valid entry after that. Otherwise the next valid entry after the damage.

A valid entry is complete and has a matching CRC and a payload; empty messages count only if another follows. A file
gets ``Budget`` bytes of searching; the remainder counts as damaged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final
from zlib import crc32

from oncelog.base.units import MIB
from oncelog.legacy.logs.entries import (
    HEAD_BYTES,
    LENGTH_BYTES,
    MIN_MESSAGE_BYTES,
    BadEntry,
    Limits,
    crc_matches,
    read_entry,
)

ReadAt = Callable[[int, int], bytes]
"""``(position, size)``: reads bytes of the file, fewer at its end."""

WINDOW_BYTES: Final = 1 * MIB
EXTENT_BYTES: Final = 2 * MIB  # Search range for the end of an entry with a wrong length; 0.7's default limit is 1 MB.
_HEADS: Final = re.compile(rb"(?=[\x00-\x7f]...(?:\x00|\x01[\x00-\x02]))", re.DOTALL)
_HEAD_PATTERN_BYTES: Final = 6


class Budget:
    """Bytes that may be read in search of entries, for one file."""

    def __init__(self, file_bytes: int) -> None:
        self.left = 64 * file_bytes + 256 * MIB

    def spend(self, size: int) -> bool:
        """Deduct ``size`` bytes, plus a few for each step; False once nothing is left."""
        self.left -= size + 64
        return self.left > 0


def next_entry(read: ReadAt, bad_at: int, end: int, budget: Budget, limits: Limits) -> int:
    """The position after the damage at ``bad_at`` from which entries are valid again, or ``end``: the file's end, or
    the next file's start.
    """
    return _Search(read, end, budget, limits).behind(bad_at)


class _Search:
    def __init__(self, read: ReadAt, end: int, budget: Budget, limits: Limits) -> None:
        self._read = read
        self._end = end
        self._budget = budget
        self._limits = limits
        self._refused: set[int] = set()

    def behind(self, bad_at: int) -> int:
        claimed = self._claimed_end(bad_at)
        if claimed is not None and claimed < self._end and self._leads_on(claimed):
            return claimed
        crc_end = self._end_by_crc(bad_at)
        if crc_end is not None:
            return crc_end
        if claimed is not None and claimed >= self._end:
            return self._end
        for candidate in self._heads(bad_at + 1 if claimed is None else claimed):
            if self._is_sound_with_payload(candidate):
                return candidate
            if self._budget.left <= 0:
                break
        return self._end

    def _claimed_end(self, at: int) -> int | None:
        """The end of an entry by its length, possibly beyond the file; None for an impossible length."""
        head = self._read(at, min(LENGTH_BYTES, self._end - at))
        length = int.from_bytes(head, "big", signed=True) if len(head) == LENGTH_BYTES else MIN_MESSAGE_BYTES
        return at + LENGTH_BYTES + length if MIN_MESSAGE_BYTES <= length <= self._limits.entry_bytes else None

    def _leads_on(self, at: int) -> bool:
        """True if entries lead from ``at`` to one with a payload, or to the end of the file."""
        while at < self._end:
            sound = self._sound(at)
            if sound is None:
                return False
            size, has_payload = sound
            if has_payload:
                return True
            at += size
        return True

    def _is_sound_with_payload(self, at: int) -> bool:
        """True if an entry is valid and has a payload, or leads over empty ones to one that has."""
        # The 9 bytes of an empty message occur by chance too often to count alone.
        passed = []
        while at < self._end and at not in self._refused:
            sound = self._sound(at)
            if sound is None:
                break
            size, has_payload = sound
            if has_payload:
                return True
            passed.append(at)
            at += size
        self._refused.update(passed)
        return False

    def _sound(self, at: int) -> tuple[int, bool] | None:
        """The size of the valid entry at ``at``, and True if it has a payload; None if it is invalid."""
        claimed = self._claimed_end(at)
        if claimed is None or claimed > self._end or not self._budget.spend(claimed - at):
            return None
        data = self._read(at, claimed - at)
        try:
            entry = read_entry(data, 0, self._limits)
        except BadEntry:
            return None
        return (entry.size_bytes, entry.payload_bytes > 0) if crc_matches(data, entry) else None

    def _end_by_crc(self, bad_at: int) -> int | None:
        """The position at which the payload that began at ``bad_at`` matches its CRC, and another entry may begin."""
        head = self._read(bad_at, min(HEAD_BYTES, self._end - bad_at))
        size = HEAD_BYTES - 1 + (head[LENGTH_BYTES] if len(head) > LENGTH_BYTES else 0)
        if len(head) < size or head[LENGTH_BYTES] > 1:
            return None
        payload_at, expected_crc = bad_at + size, int.from_bytes(head[size - 4 : size], "big")
        if not expected_crc:  # The CRC of an empty payload, but also of zeroed bytes.
            return payload_at if self._is_sound_with_payload(payload_at) else None
        data = self._read(payload_at, min(EXTENT_BYTES, self._end - payload_at))
        if not self._budget.spend(len(data)):
            return None
        view, crc, checked = memoryview(data), 0, 0
        for match in _HEADS.finditer(data):
            crc = crc32(view[checked : match.start()], crc)
            checked = match.start()
            if crc == expected_crc:
                return payload_at + checked
            if not self._budget.spend(0):
                return None
        whole = payload_at + len(data) == self._end and crc32(view[checked:], crc) == expected_crc
        return self._end if whole else None

    def _heads(self, start: int) -> Iterator[int]:
        """Positions that may be heads of entries, until the budget is spent."""
        while start < self._end:
            window = self._read(start, min(WINDOW_BYTES, self._end - start))
            if not window or not self._budget.spend(len(window)):
                return
            for match in _HEADS.finditer(window):
                yield start + match.start()
            start += max(1, len(window) - _HEAD_PATTERN_BYTES + 1) if start + len(window) < self._end else len(window)
