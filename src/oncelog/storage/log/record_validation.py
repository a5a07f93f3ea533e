"""Validation of the records in a client's batch: keys on a compacted topic, timestamps when the header shows one out
of range or a lower bound is set; and the batch built anew where the topic wants another compression.

The rule: a batch of a few kilobytes may decompress to a hundred megabytes, or to millions of records, or one record to
millions of headers. So a batch that may be large is validated in steps, by a worker (:func:`validate_records`), and
the append takes the outcome; all others at once (:func:`validate_at_once`). Nothing is changed, no log is touched.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_LEADER_EPOCH
from oncelog.base.units import INT64_MAX, KIB
from oncelog.ports import Buffer
from oncelog.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    read_header,
)
from oncelog.records.builder import Encoded, assemble, encode_records
from oncelog.records.compression import Codec, compress
from oncelog.records.errors import TooMuchOutput
from oncelog.records.record import Record, read_records, records_data
from oncelog.storage.config import PRODUCER, LogConfig
from oncelog.storage.errors import AppendRefused

RECORDS_A_STEP: Final = 5000
AT_ONCE_BYTES: Final = 128 * KIB
"""Bytes of uncompressed records that are validated, and built anew, within the append."""
NAMED_ERRORS: Final = 10_000
"""Records of a batch that a refusal names, each with its reason: there may be millions."""
_RECORD_COUNT_POSITION: Final = 57
_SHOWN_ERRORS: Final = 3


@dataclass(slots=True)
class ValidatedRecords:
    """The outcome of validating the records of a batch: why it is refused, or the batch to append in its place."""

    refusal: AppendRefused | None = None
    rebuilt: bytearray | None = None


def may_be_much(data: Buffer) -> bool:
    """True if the records of a batch may be too many to be validated at once; of compressed ones no size is known."""
    if len(data) < HEADER_SIZE:
        return False
    count = int.from_bytes(data[_RECORD_COUNT_POSITION:HEADER_SIZE], "big")
    compressed = data[ATTRIBUTES_POSITION + 1] & CODEC_MASK
    return bool(compressed) or count > RECORDS_A_STEP


def needs_record_validation(data: Buffer, config: LogConfig, now_ms: int) -> bool:
    """True if a topic has the records of a batch validated, or built anew, before it takes it."""
    try:
        header = read_header(data)
        if header.size_bytes > min(len(data), config.max_message_bytes):
            return False  # it will be refused for that
        return needs_validation_of_header(header, config, now_ms)
    except CorruptBatch:
        return False


def needs_validation_of_header(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """True if the batch of a sound header needs validation of its records. Raises CorruptBatch for an unknown codec."""
    if config.compression_type != PRODUCER and _target_codec(header.codec, config) is not header.codec:
        return True
    return config.compact or _timestamps_suspect(header, config, now_ms)


def size_to_look_into(data: Buffer) -> int | None:
    """Bytes of records that a batch has; None where they are too many to be validated at once."""
    try:
        header = read_header(data)
        return None if header.record_count > RECORDS_A_STEP else len(records_data(data, 0, header, AT_ONCE_BYTES))
    except TooMuchOutput:
        return None
    except CorruptBatch:
        return 0


def validate_records(
    data: Buffer, config: LogConfig, now_ms: int, max_decompressed_bytes: int, where: object
) -> Generator[None, None, ValidatedRecords]:
    """Validate the records of a batch with pauses. Touches nothing but the arguments."""
    try:
        header = read_header(data)
        return (yield from _steps(data, header, config, now_ms, max_decompressed_bytes, where))
    except AppendRefused as refused:
        return ValidatedRecords(refused)


def validate_at_once(
    data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, max_decompressed_bytes: int, where: object
) -> ValidatedRecords:
    """Validate the records of a batch without a pause. Raises AppendRefused."""
    steps = _steps(data, header, config, now_ms, max_decompressed_bytes, where)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            validated: ValidatedRecords = end.value
            return validated


def _steps(
    data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, max_decompressed_bytes: int, where: object
) -> Generator[None, None, ValidatedRecords]:
    target = _target_codec(header.codec, config)
    try:
        if config.compact or _timestamps_suspect(header, config, now_ms):
            records = read_records(data, 0, header, max_decompressed_bytes)
            yield from _validate_each(records, header, config, now_ms, where)
        if target is header.codec:
            return ValidatedRecords()
        records = read_records(data, 0, header, max_decompressed_bytes)
        return ValidatedRecords(rebuilt=(yield from _rebuilt(records, header, target, config)))
    except (CorruptBatch, ValueError) as error:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{error} in topic partition {where}") from None


def _timestamps_suspect(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """True if the records' timestamps must be validated one by one."""
    if header.is_log_append_time:
        return True
    if config.log_append_time:
        return False
    latest = header.max_timestamp
    if latest == NO_TIMESTAMP and header.base_timestamp == NO_TIMESTAMP:
        return False
    return (
        latest - now_ms > config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms != INT64_MAX
        or header.base_timestamp > latest
    )


def _validate_each(
    records: Iterable[Record], header: BatchHeader, config: LogConfig, now_ms: int, where: object
) -> Iterator[None]:
    """Validate keys and timestamps, with pauses. Raises AppendRefused that names the records which are wrong."""
    errors: list[tuple[int, str]] = []
    wrong, timestamps_wrong = 0, False
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for index, record in enumerate(records):
        if index and index % RECORDS_A_STEP == 0:
            yield
        if config.compact and record.key is None:
            message = f"Compacted topic cannot accept message without key in topic partition {where}"
        elif header.is_log_append_time:
            timestamps_wrong, message = True, _TIMESTAMP_TYPE
        elif config.log_append_time or record.timestamp == NO_TIMESTAMP or earliest <= record.timestamp <= latest:
            continue
        else:
            timestamps_wrong, message = True, _out_of_range(record.timestamp, record.offset, earliest, latest)
        wrong += 1
        if wrong <= NAMED_ERRORS:
            errors.append((index, message))
    if timestamps_wrong:
        raise AppendRefused(
            ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors
        )
    if errors:
        shown = ", ".join(message for _, message in errors[:_SHOWN_ERRORS])
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {wrong} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
            errors,
        )


_TIMESTAMP_TYPE: Final = "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."


def _out_of_range(timestamp: int, offset: int, earliest: int, latest: int) -> str:
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )


def _target_codec(codec: Codec, config: LogConfig) -> Codec:
    name = config.compression_type
    if name == PRODUCER:
        return codec
    return Codec.NONE if name == "uncompressed" else Codec[name.upper()]


def _level(codec: Codec, config: LogConfig) -> int | None:
    if codec is Codec.GZIP:
        return None if config.compression_gzip_level < 0 else config.compression_gzip_level
    if codec is Codec.LZ4:
        return config.compression_lz4_level
    return config.compression_zstd_level if codec is Codec.ZSTD else None


def _rebuilt(
    records: Iterator[Record], header: BatchHeader, target: Codec, config: LogConfig
) -> Generator[None, None, bytearray]:
    """A batch of the same records, compressed as the topic wants; made with pauses."""
    body = bytearray()
    encoded: Encoded = (0, -1, None, NO_TIMESTAMP)
    while encoded[0] < header.record_count:
        encoded = encode_records(body, islice(records, RECORDS_A_STEP), 0, encoded)
        yield
    next(records, None)  # raises if more bytes are there
    payload = compress(target, body, _level(target, config))
    attributes = int(target) | TRANSACTIONAL * header.is_transactional
    identity = header.producer_id, header.producer_epoch, header.base_sequence
    return assemble(payload, encoded, 0, NO_LEADER_EPOCH, attributes, *identity)
