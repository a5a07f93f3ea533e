"""Follows the records of a TLS stream by their headers, to tell how many encrypted bytes a request must still bring.

OpenSSL takes the first bytes of a record as they come and tells nobody. So the plain bytes that a request lacks say
nothing of the bytes that are still to come: most of a record may be inside OpenSSL already. The tracker sees every
byte that the socket gave and counts what the record under way lacks (RFC 8446, 5.1; RFC 5246, 6.2.1).
"""

from __future__ import annotations

from typing import Final

_HEADER_BYTES: Final = 5
"""Type, version, and the 16-bit length of the rest."""


class RecordTracker:
    """The record under way in a stream that is fed as it arrives."""

    __slots__ = ("_header", "_length", "_missing")

    def __init__(self) -> None:
        self._header = bytearray()
        """The part of a header that has arrived; empty between headers."""
        self._length = 0
        """Bytes of the record under way, without its header."""
        self._missing = 0
        """Bytes of it that have not arrived."""

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
            self._missing = self._length = int.from_bytes(header[3:], "big")
            header.clear()

    def least_bytes_until(self, plain_bytes: int) -> int:
        """The encrypted bytes that have to arrive, at least, before ``plain_bytes`` more can be decrypted.

        Holds when every whole record so far is decrypted. A record holds fewer plain bytes than its length; so what is
        lacking beyond the record under way takes at least as many encrypted bytes as it has.
        """
        if self._missing:
            return self._missing + max(0, plain_bytes - self._length)
        if self._header:
            return _HEADER_BYTES - len(self._header) + plain_bytes
        return plain_bytes
