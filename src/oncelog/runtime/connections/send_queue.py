"""The sending half of a connection: chunks in order, file ranges read only when the socket has room.

So a slow reader of a 55 MB fetch holds a few hundred kilobytes here, whatever it asked for. What is not in the page
cache is read by a worker, never on the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.units import KIB, MIB
from oncelog.node.events import FileRange
from oncelog.ports import Buffer

if TYPE_CHECKING:
    from oncelog.runtime.workers import Workers

READ_SIZE: Final = MIB
"""File ranges are read and handed to the socket in pieces of this size."""
HIGH_WATER: Final = 256 * KIB
"""Unsent bytes of a socket from which on nothing more is handed to it."""
_JOIN_BELOW: Final = 16 * KIB
_SMALL_RANGE: Final = 4 * KIB
"""Ranges of files up to this size are joined with what is around them."""


def _size_in_memory(chunk: object) -> int:
    return len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else 0


def _small_range(piece: object) -> bytes | None:
    """The bytes of a small range; None where it is another chunk, where they would have to be waited for, or cannot be
    read: whoever sends it alone meets the same."""
    if not isinstance(piece, FileRange) or piece.size_bytes > _SMALL_RANGE:
        return None
    try:
        data = piece.file.read_cached(piece.position, piece.size_bytes)
    except OSError:
        return None
    return data if data is not None and len(data) == piece.size_bytes else None


class SendQueue:
    """Chunks of responses that wait for one transport."""

    def __init__(self, transport: asyncio.WriteTransport, workers: Workers, lost: Callable[[Exception], None]) -> None:
        self._transport = transport
        self._workers = workers
        self._lost = lost
        self._chunks: deque[object] = deque()
        self._reading = False
        self._full = False
        self._close_when_empty = False
        self.held_bytes = 0
        """Bytes of responses waiting here; ranges of files hold none."""
        transport.set_write_buffer_limits(high=HIGH_WATER)

    def add(self, chunks: Sequence[object]) -> None:
        """Queue chunks and send what the socket takes."""
        self._chunks.extend(chunks)
        self.held_bytes += sum(map(_size_in_memory, chunks))
        self._pump()

    @property
    def is_full(self) -> bool:
        """True while the socket's buffer is full."""
        return self._full

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses in memory: those queued here and, for a slow reader, those with the transport."""
        return self.held_bytes + (self._transport.get_write_buffer_size() if self._full else 0)

    def close_when_empty(self) -> None:
        """Close the transport after what is queued."""
        self._close_when_empty = True
        self._pump()

    def pause(self) -> None:
        """Hand the socket nothing more (asyncio's ``pause_writing``)."""
        self._full = True

    def resume(self) -> None:
        """Continue sending (asyncio's ``resume_writing``)."""
        self._full = False
        self._pump()

    def drop(self) -> None:
        """Drop everything queued: the connection is closed."""
        self._chunks.clear()
        self.held_bytes = 0
        self._full = True

    def is_empty(self) -> bool:
        """True once everything was handed to the socket."""
        return not self._chunks and not self._reading

    def _pump(self) -> None:
        chunks = self._chunks
        while chunks and not self._full and not self._reading:
            data = self._joined()
            if data is not None:
                self._transport.write(data)
            elif isinstance(piece := chunks.popleft(), FileRange):
                self._send_range(piece)
        if self._close_when_empty and self.is_empty() and not self._full:
            self._transport.close()

    def _joined(self) -> Buffer | None:
        """The next chunk, with small ones that follow it, ranges of files among them: the answer about a thousand
        partitions with a record each becomes some writes, and not thousands. None: a range that is not small, or that
        is not in the page cache, comes next."""
        chunks = self._chunks
        parts: list[Buffer] = []
        size = 0
        while chunks and size < _JOIN_BELOW:
            chunk = chunks[0]
            if isinstance(chunk, (bytes, bytearray, memoryview)):
                part: Buffer | None = chunk
                self.held_bytes -= len(chunk)
            else:
                part = _small_range(chunk)
            if part is None:
                break
            chunks.popleft()
            parts.append(part)
            size += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts) if parts else None

    def _send_range(self, piece: FileRange) -> None:
        size = min(piece.size_bytes, READ_SIZE)
        if size < piece.size_bytes:
            self._chunks.appendleft(FileRange(piece.file, piece.position + size, piece.size_bytes - size))
        try:
            data = piece.file.read_cached(piece.position, size)
        except OSError as error:
            self._chunks.clear()
            self._lost(error)
            return
        if data is not None and len(data) == size:
            self._transport.write(data)
        else:
            self._read_cold(piece, size)

    def _read_cold(self, piece: FileRange, size: int) -> None:
        self._reading = True

        def work() -> Callable[[], None]:
            try:
                data = piece.file.read(piece.position, size)
            except OSError as error:
                failure = error
                return lambda: self._lost(failure)
            return lambda: self._cold_read(data, size)

        self._workers.submit(work)

    def _cold_read(self, data: bytes, size: int) -> None:
        self._reading = False
        if len(data) != size:
            self._lost(OSError(f"expected {size} bytes of a log, the file has {len(data)}"))
            return
        self._transport.write(data)
        self._pump()
