"""What a batch must be to enter a log, by Apache Kafka's rules, looked at in the header alone wherever that suffices.

Records are looked into only where the topic asks for it: keys on a compacted topic, timestamps when the header shows
one out of range or a lower bound is set, another compression than the producer's. Nothing is changed here but the
bytes of a batch that the broker must rewrite, and those only after everything has been checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.units import INT64_MAX
from oncelog.ports import Buffer
from oncelog.records.batch import (
    LENGTH_PREFIX,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    crc_matches,
    magic_at,
    read_header,
)
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import read_records
from oncelog.storage.config import PRODUCER, LogConfig
from oncelog.storage.errors import AppendRefused

NO_TIMESTAMP: Final = -1
_SHOWN_ERRORS: Final = 3
_SMALLEST_MESSAGE: Final = 14
"""What a message of the oldest format takes at least, after its length."""


class Checked(NamedTuple):
    """A batch that may be appended, as far as its bytes go; ``data`` differs from what came only if rewritten."""

    data: bytearray | memoryview
    header: BatchHeader


@dataclass(slots=True)
class Looked:
    """The records of a batch were looked into before; ``refusal`` is what was found wrong."""

    refusal: AppendRefused | None = None


RECORDS_A_STEP: Final = 5000
_RECORD_COUNT_POSITION: Final = 57


def has_many_records(data: Buffer) -> bool:
    """Whether a batch says that it has more records than should be looked into at once."""
    return int.from_bytes(data[_RECORD_COUNT_POSITION : _RECORD_COUNT_POSITION + 4], "big") > RECORDS_A_STEP


def look_into(
    data: Buffer, config: LogConfig, now_ms: int, max_decompressed_bytes: int, where: object
) -> Generator[None, None, Looked | None]:
    """Look into the records of a batch in steps, where the topic asks for it: a megabyte may have millions. The outcome
    is for ``check_client_batch``; None where there is nothing to look into, or nothing that could be."""
    try:
        header = read_header(data)
        if not (config.compact or _timestamps_suspect(header, config, now_ms)):
            return None
        yield  # from here on what is decompressed is held
        yield from _look(data, header, config, now_ms, max_decompressed_bytes, where)
    except CorruptBatch:
        return None
    except AppendRefused as refused:
        return Looked(refused)
    return Looked()


def check_client_batch(
    data: bytearray | memoryview,
    config: LogConfig,
    now_ms: int,
    max_decompressed_bytes: int,
    where: object,
    looked: Looked | None = None,
) -> Checked:
    """The one batch of a Produce request for the log ``where``. Raises AppendRefused."""
    data, header = _read_only_batch(data, where)
    if header.base_offset != 0:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch in the append to {where} should be 0, but it is {header.base_offset}",
        )
    check_size(header.size_bytes, config, where)
    _check_crc(data, header, where)
    _check_counts(header, where)
    codec = _codec(header, where)
    if header.attributes & 0x20:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD, f"Clients are not allowed to write control records in topic partition {where}"
        )
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id} in topic partition {where}",
        )
    target = _target_codec(codec, config)
    if config.compact or _timestamps_suspect(header, config, now_ms):
        if looked is None:
            deque(_look(data, header, config, now_ms, max_decompressed_bytes, where), maxlen=0)
        elif looked.refusal is not None:
            raise looked.refusal
    if target is not codec:
        return _recompressed(data, header, target, config, max_decompressed_bytes, where)
    return Checked(data, header)


def check_internal_batch(data: bytearray | memoryview, config: LogConfig, where: object) -> Checked:
    """A batch that this broker made: coordinator records or a marker. Only size and integrity are looked at."""
    data, header = _read_only_batch(data, where)
    check_size(header.size_bytes, config, where)
    _check_crc(data, header, where)
    return Checked(data, header)


def check_size(size_bytes: int, config: LogConfig, where: object) -> None:
    """``max.message.bytes``. Raises AppendRefused."""
    if size_bytes > config.max_message_bytes:
        raise AppendRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {where} is {size_bytes} bytes which exceeds the maximum "
            f"configured value of {config.max_message_bytes}.",
        )


def _read_only_batch(data: bytearray | memoryview, where: object) -> Checked:
    """The header of the one batch that is there. As in Apache Kafka, half a batch at the end does not count: alone it
    is no batch, after a whole one it is cut off."""
    size = _whole_batch_size(data, where)
    if size is None:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"Produce requests must contain at least one record batch per partition ({where})",
            by_log=False,
        )
    magic = magic_at(data)
    if magic != MAGIC:
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            "Produce requests with version 3 and above are only allowed to contain record batches with magic version "
            f"2, but partition {where} got magic {magic}",
            by_log=False,
        )
    if size != len(data):
        if _whole_batch_size(memoryview(data)[size:], where) is not None:
            raise AppendRefused(
                ErrorCode.INVALID_RECORD,
                "Produce requests with version 3 and above are only allowed to contain exactly one record batch per "
                f"partition ({where})",
                by_log=False,
            )
        data = memoryview(data)[:size]
    try:
        return Checked(data, read_header(data))
    except CorruptBatch as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"{error} in topic partition {where}") from None


def _whole_batch_size(data: Buffer, where: object) -> int | None:
    """Size of the batch or message set that begins here, None when it is not whole. Raises AppendRefused."""
    magic = magic_at(data)
    if magic is None:
        return None
    length = int.from_bytes(data[8:LENGTH_PREFIX], "big", signed=True)
    if length < _SMALLEST_MESSAGE:
        raise AppendRefused(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({_SMALLEST_MESSAGE}) in {where}",
        )
    if not 0 <= magic <= MAGIC:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}", spoken=True)
    size = LENGTH_PREFIX + length
    return size if size <= len(data) else None


def _check_crc(data: Buffer, header: BatchHeader, where: object) -> None:
    if not crc_matches(data, 0, header):
        raise AppendRefused(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc}) in topic partition {where}."
        )


def _check_counts(header: BatchHeader, where: object) -> None:
    count = header.record_count
    if header.last_offset_delta < 0:
        message = f"Batch has an invalid offset range: [0, {header.last_offset_delta}] in topic partition {where}"
    elif count <= 0:
        message = f"Invalid reported count for record batch: {count} in topic partition {where}"
    elif header.last_offset_delta + 1 != count:
        message = (
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of records {count} "
            f"in topic partition {where}"
        )
    else:
        return
    raise AppendRefused(ErrorCode.INVALID_RECORD, message)


def _codec(header: BatchHeader, where: object) -> Codec:
    try:
        return header.codec
    except CorruptBatch as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"{error} in topic partition {where}") from None


def _timestamps_suspect(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether the records' timestamps must be looked at one by one."""
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


def _look(
    data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, max_decompressed_bytes: int, where: object
) -> Iterator[None]:
    """Raises AppendRefused for what is wrong with the records; pauses after some."""
    errors: list[tuple[int, str]] = []
    timestamps_wrong = False
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    try:
        for index, record in enumerate(read_records(data, 0, header, max_decompressed_bytes)):
            if index and index % RECORDS_A_STEP == 0:
                yield
            if config.compact and record.key is None:
                errors.append((index, f"Compacted topic cannot accept message without key in topic partition {where}"))
            elif not config.log_append_time and record.timestamp != NO_TIMESTAMP and not header.is_log_append_time:
                if not earliest <= record.timestamp <= latest:
                    timestamps_wrong = True
                    errors.append((index, _out_of_range(record.timestamp, record.offset, earliest, latest)))
            elif header.is_log_append_time:
                timestamps_wrong = True
                errors.append((index, _TIMESTAMP_TYPE))
    except CorruptBatch as error:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{error} in topic partition {where}") from None
    if timestamps_wrong:
        raise AppendRefused(
            ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors
        )
    if errors:
        shown = ", ".join(message for _, message in errors[:_SHOWN_ERRORS])
        raise AppendRefused(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
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


def _recompressed(
    data: Buffer, header: BatchHeader, target: Codec, config: LogConfig, max_decompressed_bytes: int, where: object
) -> Checked:
    try:
        rebuilt = build_batch(
            read_records(data, 0, header, max_decompressed_bytes),
            codec=target,
            level=_level(target, config),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    except (CorruptBatch, ValueError) as error:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{error} in topic partition {where}") from None
    check_size(len(rebuilt), config, where)
    return Checked(rebuilt, read_header(rebuilt))
