"""Rows of a log segment, which is mapped: its batches and, if selected, their records.

A batch that cannot be read is a row of type ``error`` with its position, and the last row of the segment.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from oncelog.base.ids import partition_of_directory
from oncelog.base.units import MIB
from oncelog.cli.log.dump.files import Header, Row, Wanted, error
from oncelog.cli.log.dump.internal import decode_internal
from oncelog.legacy.message_set import MAGIC_V0, MAGIC_V1, Entry, TimestampType, messages_of, read_entry
from oncelog.legacy.message_set import crc_matches as message_crc_matches
from oncelog.records.batch import BatchHeader, crc_matches, iter_headers, magic_at
from oncelog.records.control import ControlType, control_type, end_transaction_marker_of
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Record, read_records

MAX_BATCH_BYTES: Final = 512 * MIB


def segment_rows(path: Path, selection: Wanted) -> Iterator[Row]:
    if path.stat().st_size == 0:
        return
    partition = partition_of_directory(path.resolve().parent.name)
    topic = partition.topic if partition is not None else ""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield from _batches(view, topic, selection)
        finally:
            view.release()


def _batches(view: memoryview, topic: str, selection: Wanted) -> Iterator[Row]:
    end = 0
    try:
        while end < len(view):
            if magic_at(view, end) in (MAGIC_V0, MAGIC_V1):
                message = read_entry(view, end)
                end, first, last = message.end, message.offset, message.offset
                rows = message_rows(view, message, selection)
            else:
                position, header = next(iter_headers(view, end))
                end, first, last = position + header.size_bytes, header.base_offset, header.last_offset
                rows = _batch_rows(view, position, header, topic, selection)
            if selection.to_offset is not None and first >= selection.to_offset:
                return
            if last >= selection.from_offset:
                yield from rows
    except CorruptBatch as problem:
        yield error(f"at position {end}: {problem}; the {len(view) - end} bytes from there on are not read")


def _batch_rows(view: memoryview, position: int, header: BatchHeader, topic: str, selection: Wanted) -> Iterator[Row]:
    sound = not selection.check or crc_matches(view, position, header)
    yield _batch(position, header, sound if selection.check else None)
    if selection.records and sound:
        yield from _records(view, position, header, topic, selection)


def _batch(position: int, header: BatchHeader, sound: bool | None) -> Row:
    row: Row = {
        "type": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "position": position,
        "size_bytes": header.size_bytes,
        "leader_epoch": header.partition_leader_epoch,
        "codec": _codec(header),
        "timestamp_type": "logappend" if header.is_log_append_time else "create",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    }
    if header.delete_horizon_ms is not None:
        row["delete_horizon_ms"] = header.delete_horizon_ms
    if sound is not None:
        row["valid"] = sound
    return row


def _codec(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except CorruptBatch:
        return "unknown"


def _records(view: memoryview, position: int, header: BatchHeader, topic: str, selection: Wanted) -> Iterator[Row]:
    try:
        for number, record in enumerate(read_records(view, position, header, MAX_BATCH_BYTES)):
            row: Row = {"type": "record", "offset": record.offset, "timestamp": record.timestamp}
            if header.base_sequence >= 0:
                row["sequence"] = (header.base_sequence + number) & 0x7FFFFFFF
            yield row | _content(record, header, topic, selection)
    except CorruptBatch as problem:
        yield error(f"batch at offset {header.base_offset}: {problem}")


def _content(record: Record, header: BatchHeader, topic: str, selection: Wanted) -> dict[str, Any]:
    if header.is_control:
        marker = end_transaction_marker_of(record)
        kind = control_type(record.key)
        shown: dict[str, Any] = {"control": kind.name.lower() if kind is not ControlType.UNKNOWN else "unknown"}
        return shown if marker is None else {**shown, "coordinator_epoch": marker.coordinator_epoch}
    if selection.decode_internal:
        decoded = decode_internal(topic, record.key, record.value)
        if decoded is not None:
            return decoded
    sizes = {
        "key_bytes": -1 if record.key is None else len(record.key),
        "value_bytes": -1 if record.value is None else len(record.value),
    }
    if not selection.values:
        return sizes
    headers = [Header(name, value) for name, value in record.headers]
    return {**sizes, "headers": headers or None, "key": record.key, "value": record.value}


def message_rows(view: memoryview, entry: Entry, selection: Wanted) -> Iterator[Row]:
    """A row of type ``message``. A compressed message has the offset of its last inner message."""
    sound = not selection.check or message_crc_matches(view, entry)
    row: Row = {
        "type": "message",
        "offset": entry.offset,
        "position": entry.position,
        "size_bytes": entry.end - entry.position,
        "magic": entry.magic,
        "codec": entry.codec.name.lower(),
        "timestamp_type": _type(entry.timestamp_type),
        "timestamp": entry.timestamp,
        "crc": entry.crc,
    }
    yield {**row, "valid": sound} if selection.check else row
    if not selection.records or not sound:
        return
    try:
        for message in messages_of(view, entry):
            sizes = {"key_bytes": _size(message.key), "value_bytes": _size(message.value)}
            content = {"key": message.key, "value": message.value} if selection.values else {}
            yield {"type": "record", "offset": message.offset, "timestamp": message.timestamp, **sizes, **content}
    except CorruptBatch as problem:
        yield error(f"message at offset {entry.offset}: {problem}")


def _size(field: bytes | None) -> int:
    return -1 if field is None else len(field)


def _type(kind: TimestampType) -> str:
    return {TimestampType.CREATE_TIME: "create", TimestampType.LOG_APPEND_TIME: "logappend"}.get(kind, "none")
