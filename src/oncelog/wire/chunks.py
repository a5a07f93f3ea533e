"""Chunks of an encoded message: buffers, and ranges of files that the runtime reads when the socket has room.

The rule: a chunk is never copied or read here, only put in its place; so a Fetch response of 50 MB costs nothing until
it is sent. A buffer that was handed over must not change until it has been sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class RecordsRange(Protocol):
    """Record batches that are somewhere else (a range of a log segment), of known size."""

    @property
    def size_bytes(self) -> int:
        """The exact number of bytes that the range will send."""


Chunk: TypeAlias = Buffer | RecordsRange
Records: TypeAlias = Buffer | RecordsRange | list[Chunk]
"""A ``records`` field: decoding yields a memoryview into the frame; encoding takes any of these, a list in order."""


def chunk_size(chunk: Chunk) -> int:
    """Size in bytes of one chunk."""
    return len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size_bytes


def join_chunks(chunks: Iterable[Chunk]) -> bytes:
    """The chunks joined into one buffer. Raises TypeError when one is a file range."""
    buffers = []
    for chunk in chunks:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            raise TypeError("a range of a file cannot be joined, only sent")
        buffers.append(chunk)
    return b"".join(buffers)
