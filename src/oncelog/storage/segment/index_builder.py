"""Builds the indexes of a segment from the batches in its file."""

from __future__ import annotations

from oncelog.records.batch import BatchHeader
from oncelog.storage.index.offset_index import OffsetIndex
from oncelog.storage.index.time_index import NO_TIMESTAMP, TimeIndex


class IndexBuilder:
    """Receives every batch of a segment in order; adds an entry after more than ``interval_bytes``."""

    __slots__ = ("_interval_bytes", "_latest", "offsets", "since_entry_bytes", "times")

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.since_entry_bytes = 0
        self._interval_bytes = interval_bytes
        self._latest = (NO_TIMESTAMP, base_offset)

    def add(self, position: int, header: BatchHeader) -> None:
        if header.max_timestamp > self._latest[0]:
            self._latest = (header.max_timestamp, header.last_offset)
        if self.since_entry_bytes > self._interval_bytes:
            self.offsets.append(header.last_offset, position)
            self.times.append(*self._latest)
            self.since_entry_bytes = 0
        self.since_entry_bytes += header.size_bytes

    def seal(self) -> None:
        """End the time index with the largest timestamp: the segment is complete."""
        self.times.append(*self._latest)
