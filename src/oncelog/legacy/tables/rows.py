"""The rows of one range of an old file, read in a task a few megabytes at a time.

Everything is validated, CRCs too; unreadable data fails the task with file and offset. 0.7's messages get their file's
timestamp, those of format 0 none. ``timestampType`` is −1 for both (KIP-32).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from oncelog.base.units import MIB
from oncelog.legacy.logs.entries import BadEntry, UnfinishedEntry
from oncelog.legacy.logs.entries import messages_of as old_messages_of
from oncelog.legacy.logs.entries import read_entry as read_old_entry
from oncelog.legacy.message_set import LOG_OVERHEAD, TimestampType, messages_of, read_entry
from oncelog.legacy.tables.files import OldLogRange, OldLogsError
from oncelog.records.errors import CorruptBatch, TruncatedBatch, UnsupportedMagic

READ_BYTES: Final = 4 * MIB
MAX_ENTRY_BYTES: Final = 256 * MIB
BATCH_BYTES: Final = 4 * MIB
BATCH_ROWS: Final = 1 << 16


class OldRow(NamedTuple):
    """A message; ``timestamp`` in milliseconds, None if it has none."""

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int | None
    timestamp_type: int


def arrow_rows(log_range: OldLogRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a range in batches of a few megabytes. Raises OldLogsError, OSError."""
    waiting: list[OldRow] = []
    size = 0
    for row in rows_of(log_range):
        waiting.append(row)
        size += len(row.key or b"") + len(row.value or b"")
        if size >= BATCH_BYTES or len(waiting) >= BATCH_ROWS:
            yield _batch(waiting, log_range, schema)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting, log_range, schema)


def rows_of(log_range: OldLogRange) -> Iterator[OldRow]:
    return _of_0_7(log_range) if log_range.kind == "0.7" else _of_message_sets(log_range)


def _of_0_7(log_range: OldLogRange) -> Iterator[OldRow]:
    with open(log_range.path, "rb") as file:
        descriptor = file.fileno()
        stat = os.fstat(descriptor)
        modified_ms = stat.st_mtime_ns // 1_000_000
        at, end = log_range.start - log_range.file_start, log_range.end - log_range.file_start
        room = READ_BYTES
        while at < end:
            data = os.pread(descriptor, min(room, end - at), at)
            inside, room = 0, READ_BYTES
            try:
                while inside < len(data):
                    entry = read_old_entry(data, inside)
                    for value in old_messages_of(data, entry):
                        yield OldRow(None, value, log_range.file_start + at + inside, modified_ms, TimestampType.NONE)
                    inside = entry.end
            except UnfinishedEntry as problem:
                if at + inside + problem.needed > min(end, stat.st_size):
                    raise _unreadable(log_range, log_range.file_start + at + inside, problem) from None
                room = max(READ_BYTES, problem.needed)
            except BadEntry as problem:
                raise _unreadable(log_range, log_range.file_start + at + inside, problem) from None
            if not data:
                raise _unreadable(log_range, log_range.file_start + at, "the file ends before the next one begins")
            at += inside


def _of_message_sets(log_range: OldLogRange) -> Iterator[OldRow]:
    with open(log_range.path, "rb") as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size if log_range.end_position < 0 else log_range.end_position
        at, room = 0, READ_BYTES
        while at < size:
            data = os.pread(descriptor, min(room, size - at), at)
            inside, room = 0, READ_BYTES
            try:
                while inside < len(data):
                    entry = read_entry(data, inside)
                    if entry.offset >= log_range.start:  # A wrapper has the offset of its last message.
                        for message in messages_of(data, entry):
                            if log_range.start <= message.offset < log_range.end:
                                timestamp = message.timestamp if message.timestamp >= 0 else None
                                yield OldRow(
                                    message.key, message.value, message.offset, timestamp, message.timestamp_type
                                )
                    inside = entry.end
            except TruncatedBatch as problem:
                entry_size = _entry_bytes(data, inside)
                if at + inside + entry_size > size or entry_size > MAX_ENTRY_BYTES:
                    raise _unreadable(log_range, at + inside, problem, "position") from None
                room = max(READ_BYTES, entry_size)
            except UnsupportedMagic:
                raise OldLogsError(
                    f"{log_range.path} has record batches (format 2, Kafka 0.11 and later), and only a broker knows "
                    "which of them are committed; serve the directory with a broker and load the topic"
                ) from None
            except CorruptBatch as problem:
                raise _unreadable(log_range, at + inside, problem, "position") from None
            at += inside


def _entry_bytes(data: bytes, at: int) -> int:
    """The size of the entry at ``at`` by its length; that of its head if the head is incomplete."""
    head = data[at : at + LOG_OVERHEAD]
    return LOG_OVERHEAD + int.from_bytes(head[8:], "big") if len(head) == LOG_OVERHEAD else LOG_OVERHEAD


def _unreadable(log_range: OldLogRange, position: int, problem: object, unit: str = "offset") -> OldLogsError:
    return OldLogsError(
        f"{log_range.path}: {unit} {position}: {problem}. `oncelog log dump` shows the contents. For a 0.7 log, "
        "`oncelog log import --on-corruption skip` imports the valid messages into a topic, which can then be loaded"
    )


def _batch(rows: list[OldRow], log_range: OldLogRange, schema: pa.Schema) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
        "topic": [log_range.topic] * len(rows),
        "partition": [log_range.partition] * len(rows),
        "offset": [row.offset for row in rows],
        "timestamp": pa.array([row.timestamp for row in rows], pa.int64()).cast(pa.timestamp("ms", "UTC")),
        "timestampType": [row.timestamp_type for row in rows],
        "headers": [None] * len(rows),
    }
    try:
        arrays = [pa.array(columns[column.name], column.type) for column in schema if column.name != "timestamp"]
        arrays.insert(schema.get_field_index("timestamp"), columns["timestamp"].cast(schema.field("timestamp").type))
    except pa.ArrowInvalid as problem:
        raise _unreadable(log_range, rows[0].offset, problem) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
