"""Iterates over the batches of a segment file by their headers, in large reads.

:func:`iter_batches` trusts the file, which was checked when it was written or recovered; indexed reads use it.
:func:`iter_checked`, for recovery, verifies every checksum and stops at the first batch that is not whole and sound.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from oncelog.ports import Buffer, OpenFile
from oncelog.records.batch import HEADER_SIZE, LENGTH_PREFIX, BatchHeader, CorruptBatch, crc_matches, read_header

LOOKUP_CHUNK: Final = 16 << 10
SCAN_CHUNK: Final = 4 << 20
# Offset, size of the rest, CRC-32 of what follows it, magic (formats 0 and 1 of Apache Kafka 0.8 to 0.10).
_MESSAGE: Final = struct.Struct(">qiIb")
_CRC_END: Final = 16


def iter_batches(
    file: OpenFile, position: int, end: int, chunk_size: int = LOOKUP_CHUNK
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from ``position`` to ``end``. Stops at an unreadable batch."""
    while position + HEADER_SIZE <= end:
        chunk = file.read(position, min(chunk_size, end - position))
        start = position
        last = len(chunk) - HEADER_SIZE
        while position - start <= last:
            try:
                header = read_header(chunk, position - start)
            except CorruptBatch:
                return
            if position + header.size_bytes > end:
                return
            yield position, header
            position += header.size_bytes
        if last < 0:
            return


def iter_checked(
    file: OpenFile, position: int, end: int, max_batch_bytes: int
) -> Iterator[tuple[int, BatchHeader, Buffer, int]]:
    """Position, header, buffer and place in that buffer of each sound batch; stops before the first unsound one.

    A batch that claims more than ``max_batch_bytes`` is unsound and not read.
    """
    buffer: bytes = b""
    start = position
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + HEADER_SIZE > len(buffer):
            buffer, start, at = file.read(position, min(SCAN_CHUNK, end - position)), position, 0
            if len(buffer) < HEADER_SIZE:
                return
        try:
            header = read_header(buffer, at)
        except CorruptBatch:
            return
        size = header.batch_length + LENGTH_PREFIX
        if position + size > end or size > max_batch_bytes:
            return
        if at + size > len(buffer):
            buffer, start, at = file.read(position, min(max(SCAN_CHUNK, size), end - position)), position, 0
        if header.last_offset_delta < 0 or not crc_matches(buffer, at, header):
            return
        yield position, header, buffer, at
        position += size


def message_format_at(file: OpenFile, position: int, end: int, max_bytes: int) -> int | None:
    """0 or 1 for a sound message of that format; None for anything else."""
    head = file.read(position, min(_MESSAGE.size, end - position))
    if len(head) < _MESSAGE.size:
        return None
    _, size, crc, magic = _MESSAGE.unpack(head)
    size_bytes = _CRC_END - 4 + size
    if magic not in (0, 1) or size <= _MESSAGE.size - _CRC_END or size_bytes > min(max_bytes, end - position):
        return None
    checked = file.read(position + _CRC_END, size_bytes - _CRC_END)
    return magic if crc32(checked) == crc else None
