"""Positions of a log's last batches, in memory: reads at the end find their place without a system call."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

KEPT: Final = 256


class TailPositions:
    """Base offsets and positions of contiguous batches at the end of the active segment."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._positions: list[int] = []

    def add(self, base_offset: int, position: int) -> None:
        self._offsets.append(base_offset)
        self._positions.append(position)
        if len(self._offsets) > 2 * KEPT:
            del self._offsets[:KEPT]
            del self._positions[:KEPT]

    def clear(self) -> None:
        """Forget all positions: the log rolled, was truncated, or has a gap here."""
        self._offsets.clear()
        self._positions.clear()

    def find(self, offset: int, segment_size: int) -> tuple[int, int] | None:
        """Position and size of the batch with ``offset``, which is in the log; None if it is not cached."""
        index = bisect_right(self._offsets, offset) - 1
        if index < 0:
            return None
        position = self._positions[index]
        following = index + 1
        end = self._positions[following] if following < len(self._positions) else segment_size
        return position, end - position

    def position_of(self, base_offset: int) -> int | None:
        """Position of the batch that begins with ``base_offset``; None if it is not cached."""
        index = bisect_right(self._offsets, base_offset) - 1
        if index < 0 or self._offsets[index] != base_offset:
            return None
        return self._positions[index]
