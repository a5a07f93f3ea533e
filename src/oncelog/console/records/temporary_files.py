"""Bytes that wait for a browser: few in memory, many in a temporary file that has no name.

The rule: what is written in a turn at reading records is whole when the turn is over; how fast somebody takes it is
nobody else's concern, and it costs no memory until then.
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
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed when nobody has it any more
        self._is_empty = True

    def __del__(self) -> None:
        self._file.close()

    def write(self, pieces: Iterable[bytes]) -> None:
        """Append. Raises OSError where there is no room for temporary files."""
        for piece in pieces:
            self._file.write(piece)
            self._is_empty = False

    def taken(self) -> Iterator[bytes]:
        """The bytes so far, in pieces; it is empty after that."""
        if self._is_empty:
            return
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece
        self._file.seek(0)
        self._file.truncate()
        self._is_empty = True
