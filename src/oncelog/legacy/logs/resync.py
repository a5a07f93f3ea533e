"""The next entry behind a damaged place in a file of 0.7, or none: rather than a message that nobody wrote.

What may hold bytes that look like entries is a payload, so it matters where the damaged entry ends. In this order:

1. Its length leads to a sound entry: only its payload or head is damaged.
2. Its length is wrong, but behind some bytes its CRC matches, and an entry may begin there: that is its end.
3. Its length reaches to the file's end or behind it: it is the last, perhaps cut. Nothing inside it is believed.
4. Its length fits in the file: the next sound entry behind that. Else the next sound entry behind the bad place.

Sound is an entry that is whole and has the right CRC, and a payload: 9 bytes of an empty message are found in too much
else, so empty ones count only with another behind them. Work is bounded: a file gets ``Budget`` bytes of searching, and
what is left when they are used up counts as damaged.
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
"""``(position, size)``: bytes of the file from a position on, fewer at its end."""

WINDOW_BYTES: Final = 1 * MIB
EXTENT_BYTES: Final = 2 * MIB
"""How far the end of an entry with a wrong length is looked for: 0.7 has messages of 1,000,000 bytes, unless told
otherwise."""
_HEADS: Final = re.compile(rb"(?=[\x00-\x7f]...(?:\x00|\x01[\x00-\x02]))", re.DOTALL)
_HEAD_PATTERN_BYTES: Final = 6


class Budget:
    """Bytes that may be read in search of entries, in one file."""

    def __init__(self, file_bytes: int) -> None:
        self.left = 64 * file_bytes + 256 * MIB

    def spend(self, size: int) -> bool:
        """Take ``size`` bytes (a few for each step); False when nothing is left."""
        self.left -= size + 64
        return self.left > 0


def next_entry(read: ReadAt, bad_at: int, end: int, budget: Budget, limits: Limits) -> int:
    """The position behind the damaged one at ``bad_at`` from which entries are sound again; ``end``: none is.

    ``end`` is the file's end, or where the next file begins.
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
        found = self._end_by_crc(bad_at)
        if found is not None:
            return found
        if claimed is not None and claimed >= self._end:
            return self._end
        for candidate in self._heads(bad_at + 1 if claimed is None else claimed):
            if self._is_sound_with_payload(candidate):
                return candidate
            if self._budget.left <= 0:
                break
        return self._end

    def _claimed_end(self, at: int) -> int | None:
        """The end of an entry by its length alone, even behind the file; None if no entry has such a length."""
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
        """True if an entry is sound and has a payload, or leads over empty ones to one that has."""
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
        """Size of the entry at ``at`` and True if it has a payload; None if there is no sound one."""
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
        """The position at which the payload that began at ``bad_at`` has its CRC, and another entry may begin."""
        head = self._read(bad_at, min(HEAD_BYTES, self._end - bad_at))
        size = HEAD_BYTES - 1 + (head[LENGTH_BYTES] if len(head) > LENGTH_BYTES else 0)
        if len(head) < size or head[LENGTH_BYTES] > 1:
            return None
        payload_at, wanted = bad_at + size, int.from_bytes(head[size - 4 : size], "big")
        if not wanted:  # the CRC of nothing, but zeroed bytes have it as well
            return payload_at if self._is_sound_with_payload(payload_at) else None
        data = self._read(payload_at, min(EXTENT_BYTES, self._end - payload_at))
        if not self._budget.spend(len(data)):
            return None
        view, crc, checked = memoryview(data), 0, 0
        for found in _HEADS.finditer(data):
            crc = crc32(view[checked : found.start()], crc)
            checked = found.start()
            if crc == wanted:
                return payload_at + checked
            if not self._budget.spend(0):
                return None
        whole = payload_at + len(data) == self._end and crc32(view[checked:], crc) == wanted
        return self._end if whole else None

    def _heads(self, start: int) -> Iterator[int]:
        """Positions from ``start`` on that may be heads of entries; ends early when the budget does."""
        while start < self._end:
            window = self._read(start, min(WINDOW_BYTES, self._end - start))
            if not window or not self._budget.spend(len(window)):
                return
            for found in _HEADS.finditer(window):
                yield start + found.start()
            start += max(1, len(window) - _HEAD_PATTERN_BYTES + 1) if start + len(window) < self._end else len(window)
