"""Producer state in a file, at a roll and at shutdown, in Apache Kafka's format (``%020d.snapshot``, version 1).

Layout: version int16, CRC-32C uint32 of what follows, count int32, then per producer: id int64, epoch int16, last
sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first offset of the
open transaction int64 (−1: none). Only the last batch is kept, so after a restart a duplicate is recognised only if
it repeats that one; an older repeat is then out of order, as in Apache Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from oncelog.core.producers.entry import BatchMetadata, ProducerEntry
from oncelog.records.checksum import crc32c
from oncelog.storage.errors import CorruptFile

VERSION: Final = 1
_HEADER: Final = struct.Struct(">hIi")
_CRC_FROM: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file's bytes."""
    body = bytearray()
    count = 0
    for entry in entries:
        first = entry.transaction_first_offset
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if first is None else first,
        )
        count += 1
    crc = crc32c(bytes(body), crc32c(count.to_bytes(4, "big")))
    return _HEADER.pack(VERSION, crc, count) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Entries of a file. Raises CorruptFile when version, size or checksum are wrong."""
    if len(data) < _HEADER.size:
        raise CorruptFile(f"producer snapshot of {len(data)} bytes")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptFile(f"producer snapshot of version {version}")
    if count < 0 or len(data) != _HEADER.size + count * _ENTRY.size or crc != crc32c(data[_CRC_FROM:]):
        raise CorruptFile("producer snapshot does not match its checksum")
    entries = []
    for fields in _ENTRY.iter_unpack(data[_HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = fields
        batches = (BatchMetadata(sequence, offset, delta, timestamp),) if offset >= 0 else ()
        transaction = first if first >= 0 else None
        entries.append(ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, transaction, batches))
    return entries
