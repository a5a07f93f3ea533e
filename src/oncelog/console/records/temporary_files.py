"""Buffer for bytes that wait to be sent: few in memory, many in an unnamed temporary file.

Output is complete when the read lock is released, so a slow browser delays no other request and takes no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Final

from oncelog.base.units import KIB

_IN_MEMORY: Final = 256 * KIB
_PIECE: Final = 192 * KIB


class TemporaryBytes:
    """Bytes that are written, then read once."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed by __del__
        self._is_empty = True

    def __del__(self) -> None:
        self._file.close()

    def write(self, pieces: Iterable[bytes]) -> None:
        """Append. Raises OSError if temporary storage is full."""
        for piece in pieces:
            self._file.write(piece)
            self._is_empty = False

    def drain(self) -> Iterator[bytes]:
        """Yield the bytes so far, in pieces, and leave the buffer empty."""
        if self._is_empty:
            return
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece
        self._file.seek(0)
        self._file.truncate()
        self._is_empty = True
