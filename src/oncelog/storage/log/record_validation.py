"""Validates the records of a client's batch by Apache Kafka's rules, computes the largest timestamp for its header, and
rebuilds the batch if the topic wants another compression.

A batch of a few kilobytes may decompress to a hundred megabytes, or to millions of records or headers. So output is
bounded, and a worker validates large batches in steps (:func:`validate_records`), others are validated at once
(:func:`validate_at_once`). The append takes the result; nothing changes here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_LEADER_EPOCH
from oncelog.base.units import INT64_MAX, INT64_MIN
from oncelog.ports import Buffer
from oncelog.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    read_header,
)
from oncelog.records.builder import assemble
from oncelog.records.compression import Codec, check_single_frame, compress, decompress, decompress_into
from oncelog.records.errors import RecordTooLarge, TooMuchOutput, TooMuchWork
from oncelog.records.inspection import Inspection, renumbered
from oncelog.records.record import MIN_RECORD_BYTES, Record, bodies_within, records_in
from oncelog.storage.errors import AppendRefused
from oncelog.storage.log_config import PRODUCER, UNLIMITED_RECORD, LogConfig, StorageConfig

RECORDS_PER_STEP: Final = 5000
INLINE_EFFORT: Final = 400
"""Unusual records and headers that are inspected within the append."""
NAMED_ERRORS: Final = 10_000
"""Bad records that a refusal lists with their reasons; a batch may have millions."""
_SHOWN_ERRORS: Final = 3


@dataclass(slots=True)
class ValidatedRecords:
    """The result of validating a batch's records: a refusal, a header correction, or a batch to append instead."""

    refusal: AppendRefused | None = None
    rebuilt: bytearray | None = None
    max_timestamp: int | None = None
    """None if the timestamps were not inspected."""
    size_bytes: int = 0
    """Bytes of records inspected, decompressed."""


def validates(header: BatchHeader, config: LogConfig, storage: StorageConfig, now_ms: int) -> bool:
    """True if the batch's records must be inspected or rebuilt. Raises CorruptBatch for an unknown codec."""
    if storage.validates_records or config.compact or _timestamps_suspect(header, config, now_ms):
        return True
    if header.codec is not Codec.NONE and config.max_decompressed_message_bytes != UNLIMITED_RECORD:
        return True
    return _target_codec(header.codec, config) is not header.codec


def validate_records(
    data: Buffer, config: LogConfig, now_ms: int, max_decompressed_bytes: int, partition: object
) -> Generator[None, None, ValidatedRecords]:
    """Validate a batch's records with pauses. Touches nothing but the arguments."""
    try:
        return (yield from _steps(data, read_header(data), config, now_ms, max_decompressed_bytes, partition))
    except CorruptBatch:
        return ValidatedRecords()  # the header alone gets it refused
    except AppendRefused as refused:
        return ValidatedRecords(refused)


def validate_at_once(
    data: Buffer,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    max_decompressed_bytes: int,
    partition: object,
    room: memoryview | None = None,
) -> ValidatedRecords:
    """Validate a batch's records without a pause.

    ``room``: a reused buffer; with it, work beyond a fraction of a millisecond raises TooMuchWork. Raises
    AppendRefused.
    """
    effort = INT64_MAX
    if room is not None:
        if header.record_count > RECORDS_PER_STEP or header.size_bytes > len(room) + HEADER_SIZE:
            raise TooMuchWork
        effort, max_decompressed_bytes = INLINE_EFFORT, len(room)
    steps = _steps(data, header, config, now_ms, max_decompressed_bytes, partition, effort, room)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            validated: ValidatedRecords = end.value
            return validated


def _steps(
    data: Buffer,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    max_decompressed_bytes: int,
    partition: object,
    effort: int = INT64_MAX,
    room: memoryview | None = None,
) -> Generator[None, None, ValidatedRecords]:
    count = header.record_count
    if count <= 0:
        return ValidatedRecords()  # the header alone gets it refused
    codec, log_append_time = header.codec, config.log_append_time
    records = _records_of(data, header, codec, max_decompressed_bytes, partition, room)
    yield from _check_sizes(records, header, config, effort, partition)
    inspection = Inspection(records, count, effort)
    try:
        while True:
            inspection.advance(inspection.number + RECORDS_PER_STEP)
            if inspection.number >= count:
                break
            yield
        latest = header.base_timestamp + inspection.latest_delta()
        earliest = header.base_timestamp + inspection.earliest_delta()
    except CorruptBatch as error:
        raise _invalid(error, partition) from None
    if (inspection.keyless and config.compact) or not _times_allowed(header, earliest, latest, config, now_ms):
        yield from _name_errors(records, header, config, now_ms, partition)
    latest = NO_TIMESTAMP if log_append_time else max(latest, NO_TIMESTAMP)
    validated = ValidatedRecords(max_timestamp=None if log_append_time else latest, size_bytes=len(records))
    target = _target_codec(codec, config)
    if inspection.misnumbered:
        if target is codec is not Codec.NONE:
            raise _invalid("the offset deltas of the records are not consecutive", partition)
        # Unchanged, consumers would skip records whose offsets do not rise.
        records = yield from _renumbered(records)
    if inspection.misnumbered or target is not codec:
        yield
        validated.rebuilt = _rebuilt(records, header, target, config, latest)
    return validated


def _check_sizes(
    records: bytes, header: BatchHeader, config: LogConfig, effort: int, partition: object
) -> Iterator[None]:
    try:
        for number, _ in enumerate(bodies_within(records, header, config.max_decompressed_message_bytes), 1):
            if number > effort:
                raise TooMuchWork
            if number % RECORDS_PER_STEP == 0:
                yield
    except RecordTooLarge as error:
        raise _invalid(error, partition) from None


def _renumbered(records: bytes) -> Generator[None, None, bytes]:
    body = bytearray()
    for number, record in enumerate(renumbered(records), 1):
        body += record
        if number % RECORDS_PER_STEP == 0:
            yield
    return bytes(body)


def _records_of(
    data: Buffer, header: BatchHeader, codec: Codec, max_bytes: int, partition: object, room: memoryview | None
) -> bytes:
    """The decompressed records. Raises AppendRefused, and TooMuchWork if ``room`` is too small."""
    payload = memoryview(data)[HEADER_SIZE : header.size_bytes]
    try:
        if codec is not Codec.NONE:
            check_single_frame(codec, payload)
        if codec is Codec.NONE or room is None:
            records = decompress(codec, payload, max_bytes)
        else:
            size = decompress_into(codec, payload, room)
            if size is None:
                raise TooMuchWork
            records = bytes(room[:size])
    except TooMuchOutput as error:
        raise _invalid(error, partition) from None
    except CorruptBatch as error:
        raise AppendRefused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The records of a batch for topic partition {partition} cannot be read as {codec.name.lower()}: "
            f"{error}. The producer, or a proxy between, has damaged them",
            sent_to_client=True,
        ) from None
    if header.record_count * MIN_RECORD_BYTES > len(records):
        raise _invalid(f"{header.record_count} records declared, {len(records)} bytes of records", partition)
    return records


def _invalid(error: object, partition: object) -> AppendRefused:
    return AppendRefused(ErrorCode.INVALID_RECORD, f"{error} in topic partition {partition}")


def _timestamps_suspect(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """True if the header alone demands an inspection of each timestamp."""
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


def _bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """The earliest and the latest timestamp that a record may have, within 64 bits."""
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    return max(earliest, INT64_MIN), min(latest, INT64_MAX)


def _times_allowed(header: BatchHeader, earliest: int, latest: int, config: LogConfig, now_ms: int) -> bool:
    if config.log_append_time:
        return not header.is_log_append_time
    unbounded = config.message_timestamp_before_max_ms == INT64_MAX
    if earliest >= 0 and latest <= now_ms and unbounded and not header.is_log_append_time:
        return True  # nearly always
    least, most = _bounds(config, now_ms)
    if header.is_log_append_time and not (
        least <= header.max_timestamp <= most and header.max_timestamp != NO_TIMESTAMP
    ):
        return False
    return least <= earliest and latest <= most


def _name_errors(data: bytes, header: BatchHeader, config: LogConfig, now_ms: int, partition: object) -> Iterator[None]:
    """Collect the records with a refused key or timestamp, with pauses. Raises AppendRefused with a list of them."""
    errors: list[tuple[int, str]] = []
    wrong, timestamps_wrong = 0, False
    bounds = _bounds(config, now_ms)
    for index, record in enumerate(_as_sent(data, header)):
        if index and index % RECORDS_PER_STEP == 0:
            yield
        if config.compact and record.key is None:
            message = f"Compacted topic cannot accept message without key in topic partition {partition}"
        elif (problem := _time_problem(record, header, config, bounds)) is not None:
            timestamps_wrong, message = True, problem
        else:
            continue
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


def _as_sent(data: bytes, header: BatchHeader) -> Iterable[Record]:
    """The records with their final timestamps: a producer's own log-append-time flag is cleared."""
    return records_in(data, header._replace(attributes=header.attributes & ~LOG_APPEND_TIME))


_TIMESTAMP_TYPE: Final = "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."


def _time_problem(record: Record, header: BatchHeader, config: LogConfig, bounds: tuple[int, int]) -> str | None:
    if config.log_append_time:
        return _TIMESTAMP_TYPE if header.is_log_append_time else None
    times = [record.timestamp]
    if header.is_log_append_time:
        # Apache Kafka checks the header's time alone, and accepts any record behind it.
        if header.max_timestamp == NO_TIMESTAMP:
            return _TIMESTAMP_TYPE
        times.insert(0, header.max_timestamp)
    for timestamp in times:
        if timestamp != NO_TIMESTAMP and not bounds[0] <= timestamp <= bounds[1]:
            return (
                f"Timestamp {timestamp} of message with offset {record.offset} is out of range. "
                f"The timestamp should be within [{bounds[0]}, {bounds[1]}]"
            )
    return None


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


def _rebuilt(records: bytes, header: BatchHeader, target: Codec, config: LogConfig, max_timestamp: int) -> bytearray:
    """A batch of these records, byte for byte, in the topic's compression."""
    payload = compress(target, records, _level(target, config))
    attributes = int(target) | TRANSACTIONAL * header.is_transactional
    encoded = header.record_count, header.last_offset_delta, header.base_timestamp, max_timestamp
    identity = header.producer_id, header.producer_epoch, header.base_sequence
    return assemble(payload, encoded, 0, NO_LEADER_EPOCH, attributes, *identity)
