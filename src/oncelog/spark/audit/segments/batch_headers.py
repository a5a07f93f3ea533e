"""A segment file's batch headers as numpy columns, in pieces, at the speed of the disk; no byte is trusted.

The only Python step a batch is one ``unpack`` of its length: where the next one begins is known only then. All the
fields of all headers of a piece are then taken out at once. Checksums cost a call each, and are an option.

Entries of message formats 0 and 1 become columns as well (``message_sets``), one by one. Bytes that are neither end the
chain. A sound batch further on is looked for (magic, offset, length and checksum must fit), so that one bad sector does
not hide the rest; the search is bounded. Memory: one piece, whatever a length field says.
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
from oncelog.spark.audit.segments.batch_table import Flags, Integers, Piece
from oncelog.spark.audit.segments.message_sets import old_piece

PIECE_BYTES: Final = 16 << 20
MAX_SEARCH_BYTES: Final = 256 << 20
"""Bytes behind garbage that are searched for a sound batch."""
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
    """Bytes of the file that are no sound batch. ``kind`` is a finding's; ``offset`` the log offset expected there."""

    kind: str
    position: int
    end: int
    offset: int
    text: str
    zeros: bool = False
    """Space that was set aside, in which nothing was lost."""


def read_pieces(
    file: BinaryIO, size: int, base_offset: int, damages: list[Damage], *, check_crc: bool, is_last: bool
) -> Iterator[Piece]:
    """The batches of a segment from its first byte. Bytes that are no batch are added to ``damages``."""
    position, expected = 0, base_offset
    while position < size:
        wanted = min(PIECE_BYTES, size - position)
        data = _read(file, position, wanted)
        places, after, stop = walk(data, position, size)
        if places:
            piece = _piece(data, position, places, check_crc=check_crc)
            expected = int(piece.last_offset[-1]) + 1
            yield piece
        position += after
        if stop == "large":
            large = _large(file, position, size, check_crc=check_crc)
            expected = int(large.last_offset[-1]) + 1
            position += int(large.size_bytes[-1])
            yield large
        elif stop and (old := old_piece(data, after, position - after, expected)) is not None:
            expected = int(old.last_offset[-1]) + 1
            position = int(old.position[-1] + old.size_bytes[-1])
            yield old
        elif stop and after and data[after + MAGIC_POSITION : after + MAGIC_POSITION + 1] in (b"\0", b"\1"):
            continue  # perhaps an entry of an old format that the piece has not whole
        elif stop:
            position = _past_damage(file, position, size, expected, damages, is_last=is_last)
        elif len(data) < wanted:
            return  # the file has become shorter


def walk(data: bytes, start: int, size: int) -> tuple[list[int], int, str]:
    """The positions in ``data`` of its whole batches, that of the first that is not whole, and the reason for the stop:
    empty if more bytes are needed, ``large`` if the batch does not fit in a piece, else it is no batch."""
    places: list[int] = []
    add, position, end = places.append, 0, len(data)
    last_header = end - HEADER_SIZE
    length_at, prefix = _length_and_magic_at, LENGTH_PREFIX
    while position <= last_header:
        length, magic = length_at(data, position + _LENGTH_POSITION)
        following = position + prefix + length
        if following > end or length < MIN_BATCH_LENGTH or magic != MAGIC:
            break
        add(position)
        position = following
    left = size - start - position
    if not left:
        return places, position, ""
    if end - position < HEADER_SIZE:
        return places, position, "cut" if left < HEADER_SIZE else ""
    length = _length_at(data, position + _LENGTH_POSITION)[0]
    if data[position + MAGIC_POSITION] != MAGIC or not MIN_BATCH_LENGTH <= length <= left - LENGTH_PREFIX:
        return places, position, "no batch"
    return places, position, "large" if not position else ""


def _read(file: BinaryIO, position: int, size: int) -> bytes:
    return os.pread(file.fileno(), size, position)


def _piece(data: bytes, start: int, places: list[int], *, check_crc: bool) -> Piece:
    at = np.array(places, np.int64)
    # A header might begin at any byte: with a stride of one, taking some of them is one copy of 61 bytes each.
    anywhere = np.ndarray(len(data) - HEADER_SIZE + 1, _LAYOUT, data, strides=(1,))
    headers = anywhere[at]
    return _columns(headers, data, start, at, _sound(data, places, headers, check_crc=check_crc))


def _sound(data: bytes, places: list[int], headers: npt.NDArray[np.void], *, check_crc: bool) -> Flags:
    if not check_crc:
        return np.ones(len(places), np.bool_)
    view = memoryview(data)
    ends = (np.array(places, np.int64) + headers["length"] + LENGTH_PREFIX).tolist()
    found = [crc32c(view[at + ATTRIBUTES_POSITION : end]) for at, end in zip(places, ends, strict=True)]
    sound: Flags = np.array(found, np.uint32) == headers["crc"]
    return sound


def _columns(headers: npt.NDArray[np.void], data: bytes, start: int, at: Integers, sound: Flags) -> Piece:
    def column(name: str) -> Integers:
        return headers[name].astype(np.int64)

    base = column("base_offset")
    last = base + column("last_offset_delta")
    if len(base) > 1:  # of a damaged batch the next one says where it ends
        damaged = ~sound[:-1] & (base[1:] > base[:-1])
        last[:-1][damaged] = base[1:][damaged] - 1
    return Piece(
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


def _large(file: BinaryIO, position: int, size: int, *, check_crc: bool) -> Piece:
    """A batch that is larger than a piece: its header, and its checksum a piece at a time."""
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


def _past_damage(
    file: BinaryIO, position: int, size: int, expected: int, damages: list[Damage], *, is_last: bool
) -> int:
    """Note the damage at ``position``; the position of the next sound batch, or the end of the file."""
    found, zeros = _find_batch(file, position, size, expected)
    if found < size:
        damages.append(Damage("garbage", position, found, expected, f"{found - position} bytes are no batch"))
        return found
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
        said = f"a batch of {length + LENGTH_PREFIX} bytes is cut off" if whole else "no batch"
        text = f"{said} at {position}, {size - position} bytes before the end"
    damages.append(Damage("tail" if is_last else "garbage", position, size, expected, text, zeros and set_aside))
    return size


def _find_batch(file: BinaryIO, position: int, size: int, expected: int) -> tuple[int, bool]:
    """The position of the next sound batch (``size``: none in reach), and True if all bytes before it are zeros."""
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


def _candidates(octets: Octets, expected: int, left: int) -> list[int]:
    """Places where a header may stand that goes on from offset ``expected``."""
    at = np.flatnonzero(octets[MAGIC_POSITION:] == MAGIC)
    at = at[at <= len(octets) - HEADER_SIZE]
    if not len(at):
        return []
    at = at[octets[at] == 0]  # no log has come to offset 2^56
    headers = np.ascontiguousarray(octets[at[:, None] + _COLUMNS]).view(_LAYOUT)[:, 0] if len(at) else None
    if headers is None:
        return []
    base, length = headers["base_offset"].astype(np.int64), headers["length"].astype(np.int64)
    fits = (base >= expected) & (base - expected < 1 << 31) & (length >= MIN_BATCH_LENGTH)
    fits &= length + LENGTH_PREFIX <= left - at
    found: list[int] = at[fits].tolist()
    return found


def _is_sound(file: BinaryIO, position: int) -> bool:
    header = _read(file, position, HEADER_SIZE)
    length = _length_at(header, _LENGTH_POSITION)[0]
    if length > PIECE_BYTES:
        return False
    data = _read(file, position + ATTRIBUTES_POSITION, length + LENGTH_PREFIX - ATTRIBUTES_POSITION)
    return bool(crc32c(data) == _crc_at(header, CRC_POSITION)[0])
