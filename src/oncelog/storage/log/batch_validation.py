"""Validates a batch by Apache Kafka's rules, by its header alone if that suffices.

``record_validation`` validates the records. Only a batch that the broker must rewrite is changed, after all checks.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.ports import Buffer
from oncelog.records.batch import (
    LENGTH_PREFIX,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    crc_matches,
    magic_at,
    read_header,
    set_timestamp_type,
)
from oncelog.storage.errors import AppendRefused
from oncelog.storage.log.record_validation import ValidatedRecords, validate_at_once, validates
from oncelog.storage.log_config import LogConfig, StorageConfig

_SMALLEST_MESSAGE: Final = 14
"""Size of the oldest format's smallest message, after its length."""


OnlyBatch = tuple[bytearray | memoryview, BatchHeader]
"""The single batch of a buffer, and its header."""
Checked = tuple[bytearray | memoryview, BatchHeader, int]
"""A batch whose bytes may be appended, rewritten if needed; its header; the bytes of records inspected now,
decompressed."""


def check_client_batch(
    data: bytearray | memoryview,
    config: LogConfig,
    storage: StorageConfig,
    now_ms: int,
    partition: object,
    validated: ValidatedRecords | None = None,
    room: memoryview | None = None,
) -> Checked:
    """Validate the single batch of a Produce request. With ``room`` records are validated only if that takes a fraction
    of a millisecond. Raises AppendRefused and TooMuchWork."""
    data, header = _read_only_batch(data, partition)
    if header.base_offset != 0:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch in the append to {partition} should be 0, but it is "
            f"{header.base_offset}",
        )
    check_size(len(data), config, partition)
    _check_crc(data, header, partition)
    _check_counts(header, partition)
    _check_codec(header, partition)
    if header.attributes & 0x20:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"Clients are not allowed to write control records in topic partition {partition}"
        )
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id} in topic partition {partition}",
        )
    if validated is None and validates(header, config, storage, now_ms):
        validated = validate_at_once(data, header, config, now_ms, storage.max_decompressed_bytes, partition, room)
    if validated is None:
        return data, header, 0
    if validated.refusal is not None:
        raise validated.refusal
    if validated.rebuilt is not None:
        check_size(len(validated.rebuilt), config, partition)
        return validated.rebuilt, read_header(validated.rebuilt), validated.size_bytes
    latest = validated.max_timestamp
    if latest is None or (latest == header.max_timestamp and not header.is_log_append_time):
        return data, header, validated.size_bytes
    set_timestamp_type(data, 0, latest, by_broker=False)
    return data, read_header(data), validated.size_bytes


def check_internal_batch(data: bytearray | memoryview, config: LogConfig, partition: object) -> OnlyBatch:
    """Check size and checksum of a batch that this broker made: coordinator records or a marker."""
    data, header = _read_only_batch(data, partition)
    check_size(len(data), config, partition)
    _check_crc(data, header, partition)
    return data, header


def check_size(size_bytes: int, config: LogConfig, partition: object) -> None:
    """Check ``max.message.bytes``. Raises AppendRefused."""
    if size_bytes > config.max_message_bytes:
        raise AppendRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {partition} is {size_bytes} bytes which exceeds the maximum "
            f"configured value of {config.max_message_bytes}.",
        )


def _read_only_batch(data: bytearray | memoryview, partition: object) -> OnlyBatch:
    try:
        header = read_header(data)
        if LENGTH_PREFIX + header.batch_length == len(data):  # nearly always
            return data, header
    except CorruptBatch:
        pass  # refused below, in Apache Kafka's order of checks
    data = _cut_to_only_batch(data, partition)
    try:
        return data, read_header(data)
    except CorruptBatch as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"{error} in topic partition {partition}") from None


def _cut_to_only_batch(data: bytearray | memoryview, partition: object) -> bytearray | memoryview:
    size = _whole_batch_size(data, partition)
    if size is None:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"Produce requests must contain at least one record batch per partition ({partition})",
            by_log=False,
        )
    magic = magic_at(data)
    if magic != MAGIC:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            "Produce requests with version 3 and above are only allowed to contain record batches with magic version "
            f"2, but partition {partition} got magic {magic}",
            by_log=False,
        )
    if size == len(data):
        return data
    if _whole_batch_size(memoryview(data)[size:], partition) is not None:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            "Produce requests with version 3 and above are only allowed to contain exactly one record batch per "
            f"partition ({partition})",
            by_log=False,
        )
    # A partial batch at the end is cut off, as in Apache Kafka; a partial batch alone is refused above.
    return memoryview(data)[:size]


def _whole_batch_size(data: Buffer, partition: object) -> int | None:
    """Size of the batch or message set that begins here; None if it is not whole. Raises AppendRefused."""
    magic = magic_at(data)
    if magic is None:
        return None
    length = int.from_bytes(data[8:LENGTH_PREFIX], "big", signed=True)
    if length < _SMALLEST_MESSAGE:
        raise AppendRefused(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({_SMALLEST_MESSAGE}) in {partition}",
        )
    if not 0 <= magic <= MAGIC:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}", sent_to_client=True)
    size = LENGTH_PREFIX + length
    return size if size <= len(data) else None


def _check_crc(data: Buffer, header: BatchHeader, partition: object) -> None:
    if not crc_matches(data, 0, header):
        raise AppendRefused(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc}) in topic partition {partition}."
        )


def _check_counts(header: BatchHeader, partition: object) -> None:
    count = header.record_count
    if header.last_offset_delta < 0:
        message = f"Batch has an invalid offset range: [0, {header.last_offset_delta}] in topic partition {partition}"
    elif count <= 0:
        message = f"Invalid reported count for record batch: {count} in topic partition {partition}"
    elif header.last_offset_delta + 1 != count:
        message = (
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records {count} "
            f"in topic partition {partition}"
        )
    else:
        return
    raise AppendRefused(ErrorCode.INVALID_RECORD, message)


def _check_codec(header: BatchHeader, partition: object) -> None:
    try:
        _ = header.codec
    except CorruptBatch as error:
        message = f"{error} in topic partition {partition}"
        raise AppendRefused(ErrorCode.UNKNOWN_SERVER_ERROR, message, sent_to_client=True) from None
