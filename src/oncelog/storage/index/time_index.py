"""The time index of one segment: sparse, from timestamp to offset, sorted by both, 12 bytes an entry.

An entry says that no record up to and including this offset is later than this timestamp. The last entry of a sealed
segment is its largest timestamp.
"""

from __future__ import annotations

import struct
from typing import Final

from oncelog.base.units import INT32_MAX
from oncelog.storage.errors import CorruptFile

ENTRY_SIZE: Final = 12
NO_TIMESTAMP: Final = -1
_ENTRY: Final = struct.Struct(">qi")
_unpack = _ENTRY.unpack_from


class TimeIndex:
    __slots__ = ("base_offset", "data")

    def __init__(self, base_offset: int, data: bytearray | None = None) -> None:
        self.base_offset = base_offset
        self.data = bytearray() if data is None else data

    def __len__(self) -> int:
        return len(self.data) // ENTRY_SIZE

    def entry(self, slot: int) -> tuple[int, int]:
        timestamp, relative = _unpack(self.data, slot * ENTRY_SIZE)
        return timestamp, self.base_offset + relative

    def last(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry; (−1, base offset) without one."""
        return self.entry(len(self) - 1) if self.data else (NO_TIMESTAMP, self.base_offset)

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry, if it is later than the last one."""
        last_timestamp, last_offset = self.last()
        if timestamp > last_timestamp and offset >= last_offset and offset - self.base_offset <= INT32_MAX:
            self.data += _ENTRY.pack(timestamp, offset - self.base_offset)

    def offset_before(self, timestamp: int) -> int:
        """The offset of the last entry not later than ``timestamp``: no record before it is at or after
        ``timestamp``."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if _unpack(self.data, middle * ENTRY_SIZE)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1)[1] if low else self.base_offset

    def truncate(self, offset: int) -> None:
        slots = len(self)
        while slots and self.entry(slots - 1)[1] >= offset:
            slots -= 1
        del self.data[slots * ENTRY_SIZE :]


def load_time_index(data: bytes, base_offset: int) -> TimeIndex:
    """Raises CorruptFile unless timestamps rise and offsets do not fall."""
    if len(data) % ENTRY_SIZE:
        raise CorruptFile(f"time index of {len(data)} bytes: not a multiple of {ENTRY_SIZE}")
    end = len(data)
    # A broker that was killed leaves zeros at the end: preallocated space, not entries.
    if end and not any(data[end - ENTRY_SIZE :]):
        end = (len(data.rstrip(b"\0")) + ENTRY_SIZE - 1) // ENTRY_SIZE * ENTRY_SIZE
        if not end:
            raise CorruptFile("time index with nothing but zeros")
    previous_timestamp, previous_offset = NO_TIMESTAMP, 0
    for timestamp, relative in _ENTRY.iter_unpack(data[:end]):
        if timestamp <= previous_timestamp or relative < previous_offset:
            raise CorruptFile(
                f"time index entry ({timestamp}, {relative}) after ({previous_timestamp}, {previous_offset})"
            )
        previous_timestamp, previous_offset = timestamp, relative
    return TimeIndex(base_offset, bytearray(data[:end]))
