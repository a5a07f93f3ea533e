"""The header of a record batch, format v2, read and patched in place; the batch's bytes are never copied.

Layout (big-endian): base offset int64, length int32 (of the rest), partition leader epoch int32, magic int8, CRC-32C
uint32, attributes int16, last offset delta int32, base timestamp int64, max timestamp int64, producer id int64,
producer epoch int16, base sequence int32, record count int32. KIP-98; delete horizon: KIP-534.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.base.units import INT32_MAX
from oncelog.records.checksum import crc32c
from oncelog.records.compression import Codec
from oncelog.records.errors import CorruptBatch as CorruptBatch
from oncelog.records.errors import TruncatedBatch as TruncatedBatch
from oncelog.records.errors import UnsupportedMagic as UnsupportedMagic

Buffer = bytes | bytearray | memoryview

HEADER_SIZE: Final = 61
LENGTH_PREFIX: Final = 12
"""Bytes that ``batch_length`` does not count: the base offset and the length itself."""
MIN_BATCH_LENGTH: Final = HEADER_SIZE - LENGTH_PREFIX
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
# The base offset and the leader epoch precede it: the broker sets them without a new checksum.
ATTRIBUTES_POSITION: Final = 21
"""The CRC covers the batch from here on."""
MAX_TIMESTAMP_POSITION: Final = 35
NO_TIMESTAMP: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
_ATTRIBUTE_BITS: Final = CODEC_MASK | TRANSACTIONAL | CONTROL | DELETE_HORIZON
"""Attributes with a meaning, except the timestamp type."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_PRODUCER_POSITION: Final = 43
_PRODUCER: Final = struct.Struct(">qhi")
_CODECS: Final = tuple(Codec)
"""Codecs by code: calling ``Codec`` takes as long as reading the header."""
_unpack = HEADER.unpack_from
_new = tuple.__new__


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """With the header."""
        return LENGTH_PREFIX + self.batch_length

    @property
    def last_offset(self) -> int:
        """Compaction may have removed the record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Raises CorruptBatch for an unknown codec."""
        try:
            return _CODECS[self.attributes & CODEC_MASK]
        except IndexError:
            raise CorruptBatch(f"unknown compression codec {self.attributes & CODEC_MASK}") from None

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True for control records, which applications never see."""
        return bool(self.attributes & CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        """True if the broker set the timestamps: all records have ``max_timestamp``."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may drop tombstones and markers, or None."""
        # Stored in place of the base timestamp.
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, −1 if the batch has none."""
        if self.base_sequence < 0:
            return -1
        return next_sequence(self.base_sequence, self.last_offset_delta)


def next_sequence(sequence: int, increment: int) -> int:
    """``sequence`` plus ``increment``; 2³¹−1 is followed by 0."""
    return (sequence + increment) & INT32_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``; the batch itself may reach past the buffer. Raises TruncatedBatch for less than 61
    bytes, UnsupportedMagic for other formats, CorruptBatch for a length smaller than a header."""
    try:
        header: BatchHeader = _new(BatchHeader, _unpack(buffer, position))
    except struct.error:
        magic = magic_at(buffer, position)
        if magic not in (None, MAGIC):
            raise UnsupportedMagic(magic or 0) from None
        raise TruncatedBatch(f"{max(0, len(buffer) - position)} bytes left, a batch header has {HEADER_SIZE}") from None
    # By index, which is faster than by name: this runs for every batch.
    if header[3] != MAGIC:
        raise UnsupportedMagic(header[3])
    if header[1] < MIN_BATCH_LENGTH:
        raise CorruptBatch(f"batch length {header[1]} is less than a header's {MIN_BATCH_LENGTH}")
    return header


def magic_at(buffer: Buffer, position: int = 0) -> int | None:
    """The format version at ``position``, None if the buffer ends before it."""
    # The byte has the same place in all formats.
    at = position + MAGIC_POSITION
    if at >= len(buffer):
        return None
    byte: int = buffer[at]
    return byte - 256 if byte > 127 else byte


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the consecutive batches from ``position`` to the end of the buffer; their CRC is not
    checked. Raises CorruptBatch at the first that is not v2 or not whole (TruncatedBatch at the buffer's end)."""
    end = len(buffer)
    while position < end:
        header = read_header(buffer, position)
        following = position + LENGTH_PREFIX + header[1]
        if following > end:
            raise TruncatedBatch(f"batch of {header.size_bytes} bytes at {position}, buffer ends at {end}")
        yield position, header
        position = following


def compute_crc(buffer: Buffer, position: int, header: BatchHeader) -> int:
    """CRC-32C of the batch at ``position``, which lies wholly in ``buffer``."""
    view = memoryview(buffer)
    return int(crc32c(view[position + ATTRIBUTES_POSITION : position + LENGTH_PREFIX + header[1]]))


def crc_matches(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    end = position + LENGTH_PREFIX + header[1]
    # A slice would silently be shorter.
    if end > len(buffer):
        return False
    return bool(crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end]) == header[4])


def set_base_offset_and_leader_epoch(buffer: bytearray | memoryview, position: int, offset: int, epoch: int) -> None:
    """Set the log position of the batch, which the CRC does not cover."""
    _OFFSET.pack_into(buffer, position, offset)
    _EPOCH.pack_into(buffer, position + LENGTH_PREFIX, epoch)


def set_timestamp_type(buffer: bytearray | memoryview, position: int, max_timestamp: int, *, by_broker: bool) -> None:
    """Set the batch's largest timestamp (milliseconds), with ``by_broker`` that of all its records. Recomputes the
    CRC."""
    header = read_header(buffer, position)
    # Unused attribute bits are cleared, as in Apache Kafka.
    attributes = header.attributes & _ATTRIBUTE_BITS | LOG_APPEND_TIME * by_broker
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _OFFSET.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    _CRC.pack_into(buffer, position + CRC_POSITION, compute_crc(buffer, position, header))


def set_producer(
    buffer: bytearray | memoryview,
    position: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    transactional: bool,
) -> None:
    """Set the batch's producer, and its transaction flag. Recomputes the CRC."""
    header = read_header(buffer, position)
    attributes = header.attributes | TRANSACTIONAL if transactional else header.attributes & ~TRANSACTIONAL
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _PRODUCER.pack_into(buffer, position + _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(buffer, position + CRC_POSITION, compute_crc(buffer, position, header))
