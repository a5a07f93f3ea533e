"""Reads a segment file's batch headers into numpy columns, chunk by chunk, at disk speed; trusts no byte.

Entries of message formats 0 and 1 become columns too (``message_sets``), one at a time. Other bytes end the chain; the
reader searches for the next sound batch within a bounded distance. Memory: one chunk, whatever a length field claims.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from oncelog.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    MAGIC_POSITION,
    MIN_BATCH_LENGTH,
)
from oncelog.records.checksum import crc32c
from oncelog.spark.audit.segments.batch_table import BatchTable, Flags, Integers
from oncelog.spark.audit.segments.message_sets import read_message_set

PIECE_BYTES: Final = 16 << 20
# Bytes after garbage that are searched for a sound batch.
MAX_SEARCH_BYTES: Final = 256 << 20
_LENGTH_POSITION: Final = 8
_length_and_magic_at = struct.Struct(">i4xb").unpack_from
_length_at = struct.Struct(">i").unpack_from
_crc_at = struct.Struct(">I").unpack_from
Octets = npt.NDArray[np.uint8]
_LAYOUT: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
_COLUMNS: Final = np.arange(HEADER_SIZE)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the file that are not a sound batch. ``kind`` is the finding's, ``offset`` the log offset expected."""

    kind: str
    position: int
    end: int
    offset: int
    text: str
    # True for preallocated space, in which nothing was lost.
    zeros: bool = False


def read_pieces(
    file: BinaryIO, size: int, base_offset: int, damages: list[Damage], *, check_crc: bool, is_last: bool
) -> Iterator[BatchTable]:
    """Yield the batches of a segment from its first byte; append the bytes that are not batches to ``damages``."""
    position, expected = 0, base_offset
    while position < size:
        count = min(PIECE_BYTES, size - position)
        data = _read(file, position, count)
        positions, after, stop = walk(data, position, size)
        if positions:
            table = _batch_table(data, position, positions, check_crc=check_crc)
            expected = int(table.last_offset[-1]) + 1
            yield table
        position += after
        if stop == "large":
            large = _read_large(file, position, size, check_crc=check_crc)
            expected = int(large.last_offset[-1]) + 1
            position += int(large.size_bytes[-1])
            yield large
        elif stop and (old := read_message_set(data, after, position - after, expected)) is not None:
            expected = int(old.last_offset[-1]) + 1
            position = int(old.position[-1] + old.size_bytes[-1])
            yield old
        elif stop and after and data[after + MAGIC_POSITION : after + MAGIC_POSITION + 1] in (b"\0", b"\1"):
            continue  # perhaps an entry of an old format that the chunk cut off
        elif stop:
            position = _skip_damage(file, position, size, expected, damages, is_last=is_last)
        elif len(data) < count:
            return  # the file was truncated meanwhile


def walk(data: bytes, start: int, size: int) -> tuple[list[int], int, str]:
    """Return the positions of whole batches in ``data``, that of the first incomplete one, and why the walk stopped.

    The reason is empty if more bytes are needed, ``large`` for a batch that exceeds a chunk, ``cut`` or ``no batch``
    for damage.
    """
    positions: list[int] = []
    # The only Python step per batch: its length locates the next one. numpy reads all other fields at once.
    add, position, end = positions.append, 0, len(data)
    last_header = end - HEADER_SIZE
    length_at, prefix = _length_and_magic_at, LENGTH_PREFIX
    while position <= last_header:
        length, magic = length_at(data, position + _LENGTH_POSITION)
        following = position + prefix + length
        if following > end or length < MIN_BATCH_LENGTH or magic != MAGIC:
            break
        add(position)
        position = following
    remaining = size - start - position
    if not remaining:
        return positions, position, ""
    if end - position < HEADER_SIZE:
        return positions, position, "cut" if remaining < HEADER_SIZE else ""
    length = _length_at(data, position + _LENGTH_POSITION)[0]
    if data[position + MAGIC_POSITION] != MAGIC or not MIN_BATCH_LENGTH <= length <= remaining - LENGTH_PREFIX:
        return positions, position, "no batch"
    return positions, position, "large" if not position else ""


def _read(file: BinaryIO, position: int, size: int) -> bytes:
    return os.pread(file.fileno(), size, position)


def _batch_table(data: bytes, start: int, positions: list[int], *, check_crc: bool) -> BatchTable:
    starts = np.array(positions, np.int64)
    # A header may begin at any byte: a stride of one makes each a candidate, and numpy copies 61 bytes per header.
    windows = np.ndarray(len(data) - HEADER_SIZE + 1, _LAYOUT, data, strides=(1,))
    headers = windows[starts]
    return _columns(headers, data, start, starts, _sound(data, positions, headers, check_crc=check_crc))


def _sound(data: bytes, positions: list[int], headers: npt.NDArray[np.void], *, check_crc: bool) -> Flags:
    if not check_crc:
        return np.ones(len(positions), np.bool_)
    view = memoryview(data)
    ends = (np.array(positions, np.int64) + headers["length"] + LENGTH_PREFIX).tolist()
    checksums = [
        crc32c(view[position + ATTRIBUTES_POSITION : end]) for position, end in zip(positions, ends, strict=True)
    ]
    sound: Flags = np.array(checksums, np.uint32) == headers["crc"]
    return sound


def _columns(headers: npt.NDArray[np.void], data: bytes, start: int, at: Integers, sound: Flags) -> BatchTable:
    def column(name: str) -> Integers:
        return headers[name].astype(np.int64)

    base = column("base_offset")
    last = base + column("last_offset_delta")
    if len(base) > 1:  # the end of a damaged batch is where the next one begins
        damaged = ~sound[:-1] & (base[1:] > base[:-1])
        last[:-1][damaged] = base[1:][damaged] - 1
    return BatchTable(
        memoryview(data),
        start,
        at + start,
        column("length") + LENGTH_PREFIX,
        base,
        last,
        column("record_count"),
        column("attributes"),
        column("max_timestamp"),
        column("base_timestamp"),
        column("producer_id"),
        column("producer_epoch"),
        column("base_sequence"),
        sound,
    )


def _read_large(file: BinaryIO, position: int, size: int, *, check_crc: bool) -> BatchTable:
    data = _read(file, position, HEADER_SIZE)
    headers = np.frombuffer(data, _LAYOUT)
    end = min(size, position + int(headers["length"][0]) + LENGTH_PREFIX)
    sound = True
    if check_crc:
        crc, at = 0, position + ATTRIBUTES_POSITION
        while at < end:
            part = _read(file, at, min(PIECE_BYTES, end - at))
            if not part:
                break
            crc, at = crc32c(part, crc), at + len(part)
        sound = crc == int(headers["crc"][0])
    return _columns(headers, data, position, np.zeros(1, np.int64), np.array([sound]))


def _skip_damage(
    file: BinaryIO, position: int, size: int, expected: int, damages: list[Damage], *, is_last: bool
) -> int:
    """Record the damage at ``position``. Returns the position of the next sound batch, or the end of the file."""
    # One bad sector must not hide the rest of the log.
    next_batch, zeros = _find_batch(file, position, size, expected)
    if next_batch < size:
        damages.append(Damage("garbage", position, next_batch, expected, f"{next_batch - position} bytes are no batch"))
        return next_batch
    set_aside = is_last and size - position >= HEADER_SIZE
    magic = _read(file, position + MAGIC_POSITION, 1)
    if zeros:
        text = f"{size - position} zero bytes after the last batch"
    elif size - position < HEADER_SIZE:
        text = f"{size - position} bytes after the last batch, fewer than a header has"
    elif magic in (b"\0", b"\1"):
        text = f"no message of format {magic[0]} at {position}, {size - position} bytes before the end"
    else:
        length = _length_at(_read(file, position + _LENGTH_POSITION, 4))[0]
        whole = magic == bytes((MAGIC,)) and length > size - position - LENGTH_PREFIX
        problem = f"a batch of {length + LENGTH_PREFIX} bytes is cut off" if whole else "no batch"
        text = f"{problem} at {position}, {size - position} bytes before the end"
    damages.append(Damage("tail" if is_last else "garbage", position, size, expected, text, zeros and set_aside))
    return size


def _find_batch(file: BinaryIO, position: int, size: int, expected: int) -> tuple[int, bool]:
    """Position of the next sound batch (``size`` if none is in reach), and True if only zeros precede it."""
    limit = min(size, position + MAX_SEARCH_BYTES)
    start, zeros = position + 1, True
    while start < limit:
        data = _read(file, start, PIECE_BYTES + HEADER_SIZE)
        if not data:
            break
        octets = np.frombuffer(data, np.uint8)
        zeros = zeros and not octets.any()
        if not zeros:
            for at in _candidates(octets[: PIECE_BYTES + HEADER_SIZE], expected, size - start):
                if _is_sound(file, start + at):
                    return start + at, False
        start += PIECE_BYTES
    return size, zeros and limit == size


def _candidates(octets: Octets, expected: int, remaining: int) -> list[int]:
    """Positions that may hold a header that continues the log from offset ``expected``."""
    starts = np.flatnonzero(octets[MAGIC_POSITION:] == MAGIC)
    starts = starts[starts <= len(octets) - HEADER_SIZE]
    if not len(starts):
        return []
    starts = starts[octets[starts] == 0]  # no log has reached offset 2^56
    headers = np.ascontiguousarray(octets[starts[:, None] + _COLUMNS]).view(_LAYOUT)[:, 0] if len(starts) else None
    if headers is None:
        return []
    base, length = headers["base_offset"].astype(np.int64), headers["length"].astype(np.int64)
    # Offset and length must fit; the caller checks the checksum.
    fits = (base >= expected) & (base - expected < 1 << 31) & (length >= MIN_BATCH_LENGTH)
    fits &= length + LENGTH_PREFIX <= remaining - starts
    positions: list[int] = starts[fits].tolist()
    return positions


def _is_sound(file: BinaryIO, position: int) -> bool:
    header = _read(file, position, HEADER_SIZE)
    length = _length_at(header, _LENGTH_POSITION)[0]
    # A corrupt length must not make the reader allocate more than one chunk.
    if length > PIECE_BYTES:
        return False
    data = _read(file, position + ATTRIBUTES_POSITION, length + LENGTH_PREFIX - ATTRIBUTES_POSITION)
    return bool(crc32c(data) == _crc_at(header, CRC_POSITION)[0])
