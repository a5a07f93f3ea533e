"""Builds record batches: for internal topics, compaction, markers, and the client.

A batch comes out whole, with its CRC, byte for byte as from Apache Kafka's builder for the same records and codec NONE.
The base timestamp is the first record's, or the delete horizon (KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from oncelog.base.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from oncelog.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL,
    CRC_POSITION,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from oncelog.records.checksum import crc32c
from oncelog.records.compression import Codec, compress
from oncelog.records.control import encode_end_transaction_marker
from oncelog.records.record import Record
from oncelog.records.varint import append_varint

NEXT_OFFSET: Final = -1
"""In place of a record's offset: the next one after the previous record (the base offset, for the first)."""


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """A batch of ``records``, whose absolute offsets rise from ``base_offset`` (−1: the next one).

    ``last_offset`` keeps a compacted batch's range; a batch without records needs it. ``max_timestamp`` replaces the
    records' own (for a batch without records). Raises ValueError if offsets do not rise, or a record lies outside the
    range.
    """
    body = bytearray()
    initial = (0, base_offset - 1, delete_horizon_ms, NO_TIMESTAMP)
    count, last, base_timestamp, latest = encode_records(body, records, base_offset, initial)
    if last_offset is None:
        if not count:
            raise ValueError("a batch without records needs its last offset")
        last_offset = last
    if last > last_offset or last_offset < base_offset:
        raise ValueError(f"last offset {last_offset}, but the records have offsets from {base_offset} to {last}")
    attributes = int(codec) | TRANSACTIONAL * transactional | CONTROL * control
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        latest = log_append_time_ms
    elif max_timestamp is not None:
        latest = max_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
    encoded = (count, last_offset, base_timestamp, latest)
    # Without records there is nothing to compress.
    payload = body if codec is Codec.NONE or not count else compress(codec, body, level)
    return assemble(payload, encoded, base_offset, leader_epoch, attributes, producer_id, producer_epoch, base_sequence)


Encoded = tuple[int, int, int | None, int]
"""Number of records, offset of the last, base timestamp (None: that of the first record to come), latest timestamp."""


def encode_records(body: bytearray, records: Iterable[Record], base_offset: int, before: Encoded) -> Encoded:
    """Append records to a body; ``before`` describes its content. Returns the new description. Raises ValueError if
    offsets do not rise."""
    count, last, base_timestamp, latest = before
    for record in records:
        offset = last + 1 if record.offset == NEXT_OFFSET else record.offset
        if offset <= last:
            raise ValueError(f"record offset {offset} after {last}: offsets must rise")
        if base_timestamp is None:
            base_timestamp = record.timestamp
        append_record(body, record, offset - base_offset, record.timestamp - base_timestamp)
        latest = max(latest, record.timestamp)
        last = offset
        count += 1
    return count, last, base_timestamp, latest


def assemble(
    payload: bytes | bytearray,
    encoded: Encoded,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytearray:
    """A batch around its records, already compressed as ``attributes`` say."""
    count, last_offset, base_timestamp, latest = encoded
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_SIZE - LENGTH_PREFIX + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset - base_offset,
        NO_TIMESTAMP if base_timestamp is None else base_timestamp,
        latest,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch += payload
    seal(batch)
    return batch


def seal(batch: bytearray) -> None:
    crc = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
    batch[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")


def append_record(body: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    """Encode a record at the end of a batch's body."""
    tail = bytearray()
    _append_bytes(tail, record.key)
    _append_bytes(tail, record.value)
    append_varint(tail, len(record.headers))
    for key, value in record.headers:
        _append_bytes(tail, key.encode())
        _append_bytes(tail, value)
    append_tail(body, tail, offset_delta, timestamp_delta)


def append_tail(body: bytearray, tail: bytes | bytearray, offset_delta: int, timestamp_delta: int) -> None:
    """Append a record whose key, value and headers (``tail``) are encoded already."""
    head = bytearray(1)
    append_varint(head, timestamp_delta)
    append_varint(head, offset_delta)
    append_varint(body, len(head) + len(tail))
    body += head
    body += tail


def _append_bytes(output: bytearray, value: bytes | None) -> None:
    if value is None:
        output.append(1)
        return
    append_varint(output, len(value))
    output += value


def end_transaction_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """A batch with a marker that commits or aborts a producer's transaction; ``timestamp`` in milliseconds."""
    key, value = encode_end_transaction_marker(committed=committed, coordinator_epoch=coordinator_epoch)
    record = Record(base_offset, timestamp, key, value)
    return build_batch(
        (record,),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        transactional=True,
        control=True,
    )
