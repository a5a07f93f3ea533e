"""Tracks the records of a TLS stream by their headers, to tell how many bytes the record in progress lacks.

OpenSSL consumes a record's first bytes without telling how many it has, so the tracker sees every byte read from the
socket (RFC 8446, 5.1; RFC 5246, 6.2.1).
"""

from __future__ import annotations

from typing import Final

# Type, version, and a 16-bit length.
_HEADER_BYTES: Final = 5


class RecordTracker:
    __slots__ = ("_header", "_missing")

    def __init__(self) -> None:
        # The part of a header that has arrived; empty between headers.
        self._header = bytearray()
        # Bytes missing of a record whose header is complete.
        self._missing = 0

    def feed(self, data: memoryview) -> None:
        position, end = 0, len(data)
        while True:
            position += self._missing
            if position > end:
                self._missing = position - end
                return
            self._missing = 0
            if position == end:
                return
            header = self._header
            taken = data[position : position + _HEADER_BYTES - len(header)]
            header += taken
            position += len(taken)
            if len(header) < _HEADER_BYTES:
                return
            self._missing = int.from_bytes(header[3:], "big")
            header.clear()

    @property
    def missing_bytes(self) -> int:
        """Bytes missing of the record in progress, or of its header; 0 between records."""
        return self._missing or (_HEADER_BYTES - len(self._header) if self._header else 0)
