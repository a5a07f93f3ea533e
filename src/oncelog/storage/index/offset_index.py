"""The offset index of one segment: sparse, from offset to position, sorted, 8 bytes an entry.

An entry says that the batch ending with this offset begins at this position, both relative to the segment. A lost or
damaged index costs time, never correctness: lookups check the batch at an entry's position (``Segment.start_of``).
"""

from __future__ import annotations

import struct
from typing import Final

from oncelog.base.units import INT32_MAX
from oncelog.storage.errors import CorruptFile

ENTRY_SIZE: Final = 8
_ENTRY: Final = struct.Struct(">ii")
_unpack = _ENTRY.unpack_from


class OffsetIndex:
    """``base_offset`` is the segment's; entries are kept as the bytes of the file."""

    __slots__ = ("_last", "base_offset", "data")

    def __init__(self, base_offset: int, data: bytearray | None = None) -> None:
        self.base_offset = base_offset
        self.data = bytearray() if data is None else data
        self._last = -1 if not self.data else _unpack(self.data, len(self.data) - ENTRY_SIZE)[0]

    def __len__(self) -> int:
        return len(self.data) // ENTRY_SIZE

    def entry(self, slot: int) -> tuple[int, int]:
        relative, position = _unpack(self.data, slot * ENTRY_SIZE)
        return self.base_offset + relative, position

    def append(self, offset: int, position: int) -> None:
        """Add an entry, unless it does not rise and so is of no use."""
        relative = offset - self.base_offset
        if self._last < relative <= INT32_MAX and position <= INT32_MAX:
            self.data += _ENTRY.pack(relative, position)
            self._last = relative

    def entry_before(self, offset: int) -> tuple[int, int]:
        """The last entry not after ``offset``; the segment's beginning without one."""
        slot = self._last_slot_at_or_before(offset - self.base_offset)
        return (self.base_offset, 0) if slot < 0 else self.entry(slot)

    def last(self) -> tuple[int, int]:
        """Offset and position of the last entry; the segment's beginning without one."""
        return self.entry(len(self) - 1) if self.data else (self.base_offset, 0)

    def entry_from(self, position: int) -> tuple[int, int] | None:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if _unpack(self.data, middle * ENTRY_SIZE)[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.entry(low) if low < len(self) else None

    def truncate(self, offset: int) -> None:
        slots = self._last_slot_at_or_before(offset - 1 - self.base_offset) + 1
        del self.data[slots * ENTRY_SIZE :]
        self._last = _unpack(self.data, len(self.data) - ENTRY_SIZE)[0] if self.data else -1

    def _last_slot_at_or_before(self, relative: int) -> int:
        data = self.data
        low, high = 0, len(data) // ENTRY_SIZE
        while low < high:
            middle = (low + high) // 2
            if _unpack(data, middle * ENTRY_SIZE)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        return low - 1


def load_offset_index(data: bytes, base_offset: int, segment_size: int) -> OffsetIndex:
    """Raises CorruptFile unless entries rise and lie within the segment."""
    if len(data) % ENTRY_SIZE:
        raise CorruptFile(f"offset index of {len(data)} bytes: not a multiple of {ENTRY_SIZE}")
    end = len(data)
    # A broker that was killed leaves zeros at the end: preallocated space, not entries.
    if end and not any(data[end - ENTRY_SIZE :]):
        end = (len(data.rstrip(b"\0")) + ENTRY_SIZE - 1) // ENTRY_SIZE * ENTRY_SIZE
        if not end:
            raise CorruptFile("offset index with nothing but zeros")
    previous_offset, previous_position = -1, -1
    for relative, position in _ENTRY.iter_unpack(data[:end]):
        if relative <= previous_offset or position <= previous_position or position >= segment_size:
            raise CorruptFile(
                f"offset index entry ({relative}, {position}) after ({previous_offset}, {previous_position})"
            )
        previous_offset, previous_position = relative, position
    return OffsetIndex(base_offset, bytearray(data[:end]))
