"""One entry of a message set: its layout, validation and encoding.

No length is trusted beyond the available bytes, and the declared sizes must add up. The magic byte's position is that
in a record batch: one byte tells the formats apart.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from zlib import crc32

from oncelog.records.batch import CODEC_MASK, LOG_APPEND_TIME, MAGIC_POSITION, NO_TIMESTAMP
from oncelog.records.compression import Buffer, Codec
from oncelog.records.errors import CorruptBatch, InvalidSet, TruncatedBatch, UnsupportedMagic

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1
LOG_OVERHEAD: Final = 12  # The offset and size fields, which ``size`` does not count.
MIN_SIZES: Final = (14, 22)  # The minimum of ``size`` by magic: a message with null key and value.
_CRC_BYTES: Final = 4

# Big-endian: offset, and size of everything after it. Then the message: CRC-32 of everything after it, magic,
# attributes (bits 0–2 codec, bit 3 in format 1 log append time), in format 1 the timestamp (KIP-32), then key and
# value, each as a length (−1: null) and bytes.
_PREFIX: Final = struct.Struct(">qi")
_HEADERS: Final = (struct.Struct(">Ibb"), struct.Struct(">Ibbq"))
_CRC: Final = struct.Struct(">I")
_SIZE: Final = struct.Struct(">i")
_NULL: Final = _SIZE.pack(-1)


class TimestampType(IntEnum):
    """Timestamp types (KIP-32), with Apache Kafka's ids."""

    NONE = -1
    """Format 0 has no timestamps."""
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a consumer sees it: absolute offset, timestamp in milliseconds (−1: none), key and value. ``magic``
    is the format it was read from.
    """

    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    magic: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of reading one outer entry.

    ``max_bytes`` limits decompressed bytes, nested wrappers included, and so the number of messages, each of at least
    26 bytes. ``max_depth`` limits nesting: 0 rejects compressed entries, Apache Kafka since 0.10 reads 1, and 0.8's own
    consumers any depth.
    """

    max_bytes: int = 128 << 20
    max_depth: int = 1


DEFAULT_LIMITS: Final = Limits()


class Entry(NamedTuple):
    """An entry as it lies in the buffer: a message, or the wrapper of several. ``size`` is the declared one. ``key``
    and ``value`` are slices: bytes of bytes, views of views.
    """

    position: int
    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: Buffer | None
    value: Buffer | None

    @property
    def end(self) -> int:
        return self.position + LOG_OVERHEAD + self.size

    @property
    def is_compressed(self) -> bool:
        return bool(self.attributes & CODEC_MASK)

    @property
    def codec(self) -> Codec:
        """The compression codec. Raises InvalidSet for zstd, which these formats lack, and for unknown codecs."""
        codec = self.attributes & CODEC_MASK
        if codec > Codec.LZ4:
            raise InvalidSet(f"compression codec {codec} in a message of format {self.magic}")
        return Codec(codec)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic < MAGIC_V1:
            return TimestampType.NONE
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME else TimestampType.CREATE_TIME


def read_entry(buffer: Buffer, position: int = 0) -> Entry:
    """The entry at ``position``; its CRC is not checked. Raises TruncatedBatch if the buffer ends before it,
    UnsupportedMagic for a record batch or an unknown format, CorruptBatch if the lengths do not add up.
    """
    remaining = len(buffer) - position
    if remaining < LOG_OVERHEAD:
        raise TruncatedBatch(f"{remaining} bytes left at {position}, a message set's entry begins with {LOG_OVERHEAD}")
    offset, size = _PREFIX.unpack_from(buffer, position)
    if size < MIN_SIZES[0]:
        raise CorruptBatch(f"message of {size} bytes at {position}: the smallest has {MIN_SIZES[0]}")
    if size > remaining - LOG_OVERHEAD:
        if remaining > MAGIC_POSITION:
            _known_magic(buffer, position)
        raise TruncatedBatch(f"message of {size} bytes at {position}, {remaining - LOG_OVERHEAD} left")
    magic = _known_magic(buffer, position)
    at, end = position + LOG_OVERHEAD, position + LOG_OVERHEAD + size
    if size < MIN_SIZES[magic]:
        raise CorruptBatch(f"message of {size} bytes at {position}: format {magic} has at least {MIN_SIZES[magic]}")
    header = _HEADERS[magic]
    crc, _magic, attributes, *stamps = header.unpack_from(buffer, at)
    key, at = _read_bytes(buffer, at + header.size, end)
    value, at = _read_bytes(buffer, at, end)
    if at != end:
        raise CorruptBatch(f"message at {position} ends at {at}, its size says {end}")
    timestamp = stamps[0] if stamps else NO_TIMESTAMP
    return Entry(position, offset, size, crc, magic, attributes, timestamp, key, value)


def shallow(data: Buffer) -> Iterator[Entry]:
    """The entries of a set, with wrappers unopened; CRCs are not checked.

    Yields all before the first incomplete one, then raises like ``read_entry``: a Fetch response, and the last file of
    an unclosed log, may end inside an entry.
    """
    position = 0
    while position < len(data):
        entry = read_entry(data, position)
        yield entry
        position = entry.end


def crc_matches(buffer: Buffer, entry: Entry) -> bool:
    start = entry.position + LOG_OVERHEAD + _CRC_BYTES
    return crc32(memoryview(buffer)[start : entry.end]) == entry.crc


def ensure_crc(buffer: Buffer, entry: Entry) -> None:
    """Raises CorruptBatch if the CRC does not match."""
    if not crc_matches(buffer, entry):
        raise CorruptBatch(f"wrong checksum of the message at {entry.position}, offset {entry.offset}")


def append_entry(
    output: bytearray,
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
) -> None:
    """Append an entry with its CRC; format 0 drops ``timestamp``."""
    size = MIN_SIZES[magic] + len(key or b"") + len(value or b"")
    start = len(output) + LOG_OVERHEAD
    output += _PREFIX.pack(offset, size)
    stamps = (timestamp,) if magic >= MAGIC_V1 else ()
    output += _HEADERS[magic].pack(0, magic, attributes, *stamps)
    _append_bytes(output, key)
    _append_bytes(output, value)
    _CRC.pack_into(output, start, crc32(memoryview(output)[start + _CRC_BYTES :]))


def _known_magic(buffer: Buffer, position: int) -> int:
    magic: int = buffer[position + MAGIC_POSITION]
    if magic > MAGIC_V1:
        raise UnsupportedMagic(magic - 256 if magic > 127 else magic)
    return magic


def _read_bytes(buffer: Buffer, at: int, end: int) -> tuple[Buffer | None, int]:
    if end - at < _SIZE.size:
        raise CorruptBatch(f"message ends at {end}, inside a length")
    size = _SIZE.unpack_from(buffer, at)[0]
    at += _SIZE.size
    if size == -1:
        return None, at
    if not 0 <= size <= end - at:
        raise CorruptBatch(f"field of {size} bytes at {at}, the message ends at {end}")
    return buffer[at : at + size], at + size


def _append_bytes(output: bytearray, value: Buffer | None) -> None:
    if value is None:
        output += _NULL
        return
    output += _SIZE.pack(len(value))
    output += value
