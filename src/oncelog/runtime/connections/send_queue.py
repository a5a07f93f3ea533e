"""The sending half of a connection: chunks in order, file ranges read only when the socket has room. What is small is
joined: a Fetch of a few records is one system call, and wakes its client once.

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


def _size_in_memory(chunk: object) -> int:
    return len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else 0


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
            chunk = chunks.popleft()
            if isinstance(chunk, FileRange):
                self._send_range(chunk)
            elif isinstance(chunk, (bytes, bytearray, memoryview)):
                self._transport.write(self._join_small(chunk))
        if self._close_when_empty and self.is_empty() and not self._full:
            self._transport.close()

    def _join_small(self, first: Buffer) -> Buffer:
        """Join small chunks that follow each other: a response's head, its few records and its tail."""
        chunks = self._chunks
        parts = [first]
        size = len(first)
        self.held_bytes -= size
        while chunks and size < _JOIN_BELOW:
            chunk = chunks[0]
            part = self._read_small(chunk) if isinstance(chunk, FileRange) else chunk
            if not isinstance(part, (bytes, bytearray, memoryview)):
                break
            chunks.popleft()
            self.held_bytes -= _size_in_memory(chunk)
            parts.append(part)
            size += len(part)
        return b"".join(parts) if len(parts) > 1 else first

    def _read_small(self, piece: FileRange) -> bytes | None:
        """The bytes of a small range that is in the page cache; None: it is sent by itself, or cannot be read."""
        if piece.size_bytes > _JOIN_BELOW:
            return None
        try:
            data = piece.file.read_cached(piece.position, piece.size_bytes)
        except OSError:
            return None
        return data if data is not None and len(data) == piece.size_bytes else None

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
