"""Reads entries of message formats 0 and 1 (Kafka 0.8 to 0.10) as audit columns; upgraded logs begin with them.

The formats have no producers, sequences or transactions. Compressed wrappers are opened.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from oncelog.legacy.message_set import Entry, crc_matches, messages_of, read_entry
from oncelog.records.errors import CorruptBatch
from oncelog.spark.audit.segments.batch_table import BatchTable


class _EntryRow(NamedTuple):
    position: int
    size_bytes: int
    first_offset: int
    last_offset: int
    messages: int
    attributes: int
    timestamp: int
    sound: bool


def read_message_set(data: bytes, position: int, start: int, expected: int) -> BatchTable | None:
    """Read the whole entries of ``data`` from ``at`` on; None if there are none. ``start`` is the position of ``data``
    in the file, ``expected`` the log's next offset."""
    rows: list[_EntryRow] = []
    while True:
        try:
            entry = read_entry(data, position)
        except CorruptBatch:
            break
        # Garbage may look like an entry; a real one does not go back in the log.
        if not rows and entry.offset < expected:
            break
        rows.append(_entry_row(data, entry, rows[-1].last_offset + 1 if rows else expected))
        position = entry.end
    if not rows:
        return None
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    positions, size, first, last, messages, attributes, timestamp, sound = columns
    no_producer = np.full(len(rows), -1, np.int64)
    return BatchTable(
        memoryview(data),
        start,
        positions + start,
        size,
        first,
        last,
        messages,
        attributes,
        timestamp,
        timestamp,
        no_producer,
        no_producer,
        no_producer,
        sound.astype(np.bool_),
        is_message_set=True,
    )


def _entry_row(data: bytes, entry: Entry, expected: int) -> _EntryRow:
    size = entry.end - entry.position
    attributes = entry.attributes & 0xFF
    first, count, timestamp, sound = entry.offset, 1, entry.timestamp, crc_matches(data, entry)
    # A wrapper's offset is that of its last message; only its content shows the first.
    if sound and entry.is_compressed:
        try:
            inner = [(message.offset, message.timestamp) for message in messages_of(data, entry)]
            first, count, timestamp = inner[0][0], len(inner), max(stamp for _, stamp in inner)
        except CorruptBatch:
            sound = False
    # An unreadable wrapper covers the offsets up to its own.
    if not sound:
        first = min(expected, entry.offset)
        count = entry.offset - first + 1
    return _EntryRow(entry.position, size, first, entry.offset, count, attributes, timestamp, sound)
