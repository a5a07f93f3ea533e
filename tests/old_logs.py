"""A writer of Kafka 0.7's log files that shares nothing with the code under test, and damage for them.

From the design document of 0.7 and the class comments of ``kafka.message.Message``: a length, then magic, with magic 1
attributes, the CRC-32 of the payload, the payload; compressed sets are entries of a gzip or snappy-java stream.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import snappy

GZIP = 1
SNAPPY = 2


def message(payload: bytes, *, magic: int = 1, attributes: int = 0) -> bytes:
    """An entry with one message."""
    head = struct.pack(">B", magic) + (struct.pack(">B", attributes) if magic else b"")
    body = head + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def message_set(entries: Iterable[bytes], codec: int) -> bytes:
    """An entry whose payload is a compressed set of entries."""
    plain = b"".join(entries)
    return message(gzip.compress(plain, mtime=0) if codec == GZIP else xerial(plain), attributes=codec)


def xerial(plain: bytes, block_bytes: int = 32 * 1024) -> bytes:
    """A stream as snappy-java's SnappyOutputStream writes it."""
    stream = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(plain), block_bytes):
        block: bytes = snappy.compress(plain[start : start + block_bytes])
        stream += struct.pack(">i", len(block)) + block
    return stream


def write_log(
    directory: Path, entries: Sequence[bytes], *, file_bytes: int = 1 << 30, start: int = 0, digits: int = 20
) -> list[int]:
    """Write a partition's files, a new one whenever one has ``file_bytes`` or more; the offsets of the entries."""
    directory.mkdir(parents=True, exist_ok=True)
    offsets = []
    at, name, content = start, start, bytearray()
    for entry in entries:
        if len(content) >= file_bytes:
            file_path(directory, name, digits).write_bytes(content)
            name, content = at, bytearray()
        offsets.append(at)
        content += entry
        at += len(entry)
    file_path(directory, name, digits).write_bytes(content)
    return offsets


def file_path(directory: Path, start: int, digits: int = 20) -> Path:
    """The file that begins at an offset."""
    return directory / f"{start:0{digits}d}.kafka"
