"""The sending half of a connection: chunks in order, with file ranges read only when the socket has room.

A slow reader of a 55 MB fetch holds a few hundred kilobytes here. Ranges outside the page cache are read by a worker,
never on the loop.
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
"""Size of the pieces in which file ranges are read and sent."""
HIGH_WATER: Final = 256 * KIB
"""Unsent bytes of a socket above which sending pauses."""
# Size up to which joining chunks is cheaper than passing them one by one.
_JOIN_BELOW: Final = 64 * KIB
# Bytes of one system call: a piece of a file with the chunks around it.
_MOST_BYTES: Final = READ_SIZE + _JOIN_BELOW
# Chunks of one system call; the kernel takes 1,024.
_MOST_PARTS: Final = 256


def _size_in_memory(chunk: object) -> int:
    return len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else 0


class SendQueue:
    def __init__(
        self, transport: asyncio.WriteTransport, workers: Workers, on_error: Callable[[Exception], None]
    ) -> None:
        self._transport = transport
        self._workers = workers
        self._on_error = on_error
        self._chunks: deque[object] = deque()
        self._reading = False
        self._full = False
        self.is_gathering = False
        self._close_when_empty = False
        self.held_bytes = 0
        """Bytes of responses queued here, without file ranges."""
        transport.set_write_buffer_limits(high=HIGH_WATER)

    def add(self, chunks: Sequence[object]) -> None:
        """Queue chunks and send what the socket takes."""
        self._chunks.extend(chunks)
        self.held_bytes += sum(map(_size_in_memory, chunks))
        if not self.is_gathering or self.held_bytes > _JOIN_BELOW or len(self._chunks) > _MOST_PARTS:
            self._send_ready()

    def gather(self) -> None:
        """Keep small responses until :meth:`send_gathered`, to send them in one system call."""
        self.is_gathering = True

    def send_gathered(self) -> None:
        self.is_gathering = False
        self._send_ready()

    @property
    def is_full(self) -> bool:
        return self._full

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses in memory: queued here and, for a slow reader, in the transport."""
        return self.held_bytes + (self._transport.get_write_buffer_size() if self._full else 0)

    def close_when_empty(self) -> None:
        self._close_when_empty = True
        self._send_ready()

    def pause(self) -> None:
        """Pause sending (asyncio's ``pause_writing``)."""
        self._full = True

    def resume(self) -> None:
        """Resume sending (asyncio's ``resume_writing``)."""
        self._full = False
        self._send_ready()

    def drop(self) -> None:
        self._chunks.clear()
        self.held_bytes = 0
        self._full = True

    def is_empty(self) -> bool:
        return not self._chunks and not self._reading

    def _send_ready(self) -> None:
        while self._chunks and not self._full and not self._reading:
            parts = self._next_parts()
            if len(parts) == 1:
                self._transport.write(parts[0])
            elif parts:
                self._transport.writelines(parts)
        if self._close_when_empty and self.is_empty() and not self._full:
            self._transport.close()

    def _next_parts(self) -> list[Buffer]:
        """Dequeue the parts for the next system call, up to a piece of a larger range, or a range that a worker then
        begins to read.
        """
        chunks, room = self._chunks, _MOST_BYTES
        # A response's head, records and tail go together, so that they wake the client once.
        parts: list[Buffer] = []
        while chunks and room > 0 and len(parts) < _MOST_PARTS:
            chunk = chunks.popleft()
            if isinstance(chunk, FileRange):
                size = min(chunk.size_bytes, READ_SIZE, room)
                if size < chunk.size_bytes:
                    chunks.appendleft(FileRange(chunk.file, chunk.position + size, chunk.size_bytes - size))
                    room = 0
                data = self._read_cached(chunk, size)
                if data is None:
                    return parts if self._reading else []
            elif isinstance(chunk, (bytes, bytearray, memoryview)):
                data = chunk
                self.held_bytes -= len(data)
            else:
                continue
            parts.append(data)
            room -= len(data)
        is_small = len(parts) > 1 and _MOST_BYTES - room <= _JOIN_BELOW
        return [b"".join(parts)] if is_small else parts

    def _read_cached(self, piece: FileRange, size: int) -> Buffer | None:
        """The first bytes of a file range, from the page cache. None: a worker reads them, or the file is unreadable
        and the connection is given up.
        """
        try:
            data = piece.file.read_cached(piece.position, size)
        except OSError as error:
            self._chunks.clear()
            self._on_error(error)
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
                return lambda: self._on_error(failure)
            return lambda: self._cold_read_done(data, size)

        self._workers.submit(work)

    def _cold_read_done(self, data: bytes, size: int) -> None:
        self._reading = False
        if self._transport.is_closing():
            return  # uvloop's write would raise, and the other results of the workers would wait
        if len(data) != size:
            self._on_error(OSError(f"expected {size} bytes of a log, but the file has {len(data)}"))
            return
        self._transport.write(data)
        self._send_ready()
