"""Follows the records of a TLS stream by their headers, to tell how many bytes the record under way lacks.

OpenSSL takes the first bytes of a record as they come, and nothing tells how many it has. The tracker sees every byte
that the socket gave (RFC 8446, 5.1; RFC 5246, 6.2.1).
"""

from __future__ import annotations

from typing import Final

_HEADER_BYTES: Final = 5
"""Type, version, and the 16-bit length of the rest."""


class RecordTracker:
    """The record under way in a stream that is fed as it arrives."""

    __slots__ = ("_header", "_missing")

    def __init__(self) -> None:
        self._header = bytearray()
        """The part of a header that has arrived; empty between headers."""
        self._missing = 0
        """Bytes that have not arrived of a record whose header has."""

    def feed(self, data: memoryview) -> None:
        """Note the next bytes of the stream."""
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
        """Bytes that the record under way lacks, or its header; 0 between records."""
        return self._missing or (_HEADER_BYTES - len(self._header) if self._header else 0)
