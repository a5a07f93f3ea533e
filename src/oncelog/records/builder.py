"""Building record batches: for internal topics, compaction, markers, and the client.

The rule: a batch comes out whole, with its CRC, byte for byte what Apache Kafka's builder would write for the same
records and codec NONE. The base timestamp is the first record's, or the delete horizon where there is one (KIP-534).
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
"""Stands for a record's offset: the one after the record before it (the base offset, for the first)."""


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
    """A batch of ``records``, whose offsets are absolute and rise from ``base_offset`` (−1: the next one).

    ``last_offset`` is given by compaction, which keeps a batch's range when its last records go; it is required for
    a batch without records. ``max_timestamp`` replaces what the records say (needed when there are none).
    Raises ValueError when the offsets do not rise, or a record lies outside the range.
    """
    body = bytearray()
    nothing = (0, base_offset - 1, delete_horizon_ms, NO_TIMESTAMP)
    count, last, base_timestamp, latest = encode_records(body, records, base_offset, nothing)
    if last_offset is None:
        if not count:
            raise ValueError("a batch without records needs its last offset")
        last_offset = last
    if last > last_offset or last_offset < base_offset:
        raise ValueError(f"last offset {last_offset}, but records from {base_offset} to {last}")
    attributes = int(codec) | TRANSACTIONAL * transactional | CONTROL * control
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        latest = log_append_time_ms
    elif max_timestamp is not None:
        latest = max_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
    encoded = (count, last_offset, base_timestamp, latest)
    payload = body if codec is Codec.NONE or not count else compress(codec, body, level)
    return assemble(payload, encoded, base_offset, leader_epoch, attributes, producer_id, producer_epoch, base_sequence)


Encoded = tuple[int, int, int | None, int]
"""Facts of records: how many, the offset of the last, the base of their timestamps (None: the first's, which
is still to come), and the latest timestamp."""


def encode_records(body: bytearray, records: Iterable[Record], base_offset: int, before: Encoded) -> Encoded:
    """Append records to a body that has some; what it has then. Raises ValueError when their offsets do not rise."""
    count, last, base_timestamp, latest = before
    for record in records:
        offset = last + 1 if record.offset == NEXT_OFFSET else record.offset
        if offset <= last:
            raise ValueError(f"record offset {offset} after {last}")
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
    """The batch around its records, which are compressed already if ``attributes`` say so."""
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
    """Write the CRC of a batch that is otherwise finished."""
    crc = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
    batch[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")


def append_record(body: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    """Append one record, encoded, to the body of a batch."""
    tail = bytearray()
    _append_bytes(tail, record.key)
    _append_bytes(tail, record.value)
    append_varint(tail, len(record.headers))
    for key, value in record.headers:
        _append_bytes(tail, key.encode())
        _append_bytes(tail, value)
    append_tail(body, tail, offset_delta, timestamp_delta)


def append_tail(body: bytearray, tail: bytes | bytearray, offset_delta: int, timestamp_delta: int) -> None:
    """Append one record to the body of a batch; its key, value and headers are encoded already."""
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
    """A batch with one marker that commits or aborts a producer's transaction; ``timestamp`` in milliseconds."""
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
