"""Chunks of an encoded message: buffers, and ranges of files that the runtime reads when the socket has room.

Chunks are never copied or read here. A buffer must not change between its hand-over and the send.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class RecordsRange(Protocol):
    """Record batches in another place (a range of a log segment), of known size."""

    @property
    def size_bytes(self) -> int:
        """The exact number of bytes to send."""


Chunk: TypeAlias = Buffer | RecordsRange
Records: TypeAlias = Buffer | RecordsRange | list[Chunk]
"""A ``records`` field: decoded to a memoryview of the frame; any of these can be encoded, a list in order."""


def chunk_size(chunk: Chunk) -> int:
    return len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size_bytes


def join_chunks(chunks: Iterable[Chunk]) -> bytes:
    """The chunks joined into one buffer. Raises TypeError for a file range."""
    buffers = []
    for chunk in chunks:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            # Joining would read the file on the loop.
            raise TypeError("a range of a file can only be sent, not joined")
        buffers.append(chunk)
    return b"".join(buffers)
