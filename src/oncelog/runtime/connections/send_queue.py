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
from oncelog.node.kernel.events import FileRange
from oncelog.ports import Buffer

if TYPE_CHECKING:
    from oncelog.runtime.workers import Workers

READ_SIZE: Final = MIB
"""File ranges are read and handed to the socket in pieces of this size."""
HIGH_WATER: Final = 256 * KIB
"""Unsent bytes of a socket from which on nothing more is handed to it."""
_JOIN_BELOW: Final = 64 * KIB
"""Up to here copying chunks together is cheaper than handing them over one by one."""
_MOST_BYTES: Final = READ_SIZE + _JOIN_BELOW
"""Bytes of one system call: a piece of a file, a head and a tail around it."""
_MOST_PARTS: Final = 256
"""Chunks of one system call; the kernel takes 1,024."""


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
        while self._chunks and not self._full and not self._reading:
            parts = self._next_parts()
            if len(parts) == 1:
                self._transport.write(parts[0])
            elif parts:
                self._transport.writelines(parts)
        if self._close_when_empty and self.is_empty() and not self._full:
            self._transport.close()

    def _next_parts(self) -> list[Buffer]:
        """Take what is next for one system call: a response's head, its records and its tail wake the client once.

        It ends after the piece of a range that is larger, and before one that has to be read by a worker, which is
        under way then.
        """
        chunks, left = self._chunks, _MOST_BYTES
        parts: list[Buffer] = []
        while chunks and left > 0 and len(parts) < _MOST_PARTS:
            chunk = chunks.popleft()
            if isinstance(chunk, FileRange):
                size = min(chunk.size_bytes, READ_SIZE, left)
                if size < chunk.size_bytes:
                    chunks.appendleft(FileRange(chunk.file, chunk.position + size, chunk.size_bytes - size))
                    left = 0
                data = self._read_cached(chunk, size)
                if data is None:
                    return parts if self._reading else []
            elif isinstance(chunk, (bytes, bytearray, memoryview)):
                data = chunk
                self.held_bytes -= len(data)
            else:
                continue
            parts.append(data)
            left -= len(data)
        is_small = len(parts) > 1 and _MOST_BYTES - left <= _JOIN_BELOW
        return [b"".join(parts)] if is_small else parts

    def _read_cached(self, piece: FileRange, size: int) -> Buffer | None:
        """The first bytes of a range of a file, from the page cache. None: a worker reads them, or the file cannot be
        read and the connection is given up."""
        try:
            data = piece.file.read_cached(piece.position, size)
        except OSError as error:
            self._chunks.clear()
            self._lost(error)
            return None
        if data is None or len(data) != size:
            self._read_cold(piece, size)
            return None
        return data

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
