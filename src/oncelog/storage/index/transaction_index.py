"""The transaction index of one segment: aborted transactions whose marker lies in it, in order of their markers.

Entry, 34 bytes: version int16 (0), producer id, first offset, last offset (the marker), last stable offset, int64 each.
A read_committed fetch collects overlapping entries, from later segments too, until an entry's last stable offset shows
that nothing earlier can still be open.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from oncelog.storage.errors import CorruptFile

VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size
_MARKER: Final = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """Offsets are inclusive; ``last_offset`` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        return _ENTRY.pack(VERSION, *self)


def load_transaction_index(data: bytes, base_offset: int) -> list[AbortedTransaction]:
    """Raises CorruptFile if a segment at ``base_offset`` cannot have the entries."""
    if len(data) % ENTRY_SIZE:
        raise CorruptFile(f"transaction index of {len(data)} bytes: not a multiple of {ENTRY_SIZE}")
    entries = []
    for version, *values in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*values)
        if version != VERSION or entry.last_offset < base_offset or entry.first_offset > entry.last_offset:
            raise CorruptFile(f"transaction index entry {entry} of version {version}")
        entries.append(entry)
    entries.sort(key=_MARKER)  # every file is sorted already; ``overlapping`` relies on it
    return entries


def overlapping(
    entries: Sequence[AbortedTransaction], first_offset: int, upper_bound: int
) -> tuple[list[AbortedTransaction], bool]:
    """The entries that overlap [``first_offset``, ``upper_bound``), and True if later segments cannot have more."""
    matches = []
    # Markers are in order, and there may be a hundred thousand: bisect to the first one that counts.
    for index in range(bisect_left(entries, first_offset, key=_MARKER), len(entries)):
        entry = entries[index]
        if entry.first_offset < upper_bound:
            matches.append(entry)
        if entry.last_stable_offset >= upper_bound:
            return matches, True
    return matches, False
