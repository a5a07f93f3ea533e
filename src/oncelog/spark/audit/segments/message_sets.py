"""Entries of message formats 0 and 1 (Kafka 0.8 to 0.10) as the audit's columns: upgraded logs have them first.

Producers, sequences and transactions they have none; so what can be said is whether they are whole, in order and
without gaps, how many messages there are and of when. Wrappers are opened: their offset is that of the last message
in them, and the first is known from inside only. One that cannot be read counts as unsound, with the offsets up to
its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from oncelog.legacy.message_set import Entry, crc_matches, messages_of, read_entry
from oncelog.records.errors import CorruptBatch
from oncelog.spark.audit.segments.batch_table import Piece


class _Told(NamedTuple):
    """An entry as a row of the audit's columns."""

    position: int
    size_bytes: int
    first_offset: int
    last_offset: int
    messages: int
    attributes: int
    timestamp: int
    sound: bool


def old_piece(data: bytes, at: int, start: int, expected: int) -> Piece | None:
    """The entries of ``data`` (which begins at ``start`` in the file) from ``at`` on, as far as they are whole; None
    if there is none. ``expected`` is the next offset of the log."""
    told: list[_Told] = []
    while True:
        try:
            entry = read_entry(data, at)
        except CorruptBatch:
            break
        if not told and entry.offset < expected:
            break
        told.append(_told(data, entry, told[-1].last_offset + 1 if told else expected))
        at = entry.end
    if not told:
        return None
    columns = [np.array(column, np.int64) for column in zip(*told, strict=True)]
    position, size, first, last, messages, attributes, timestamp, sound = columns
    nobody = np.full(len(told), -1, np.int64)
    return Piece(
        memoryview(data),
        start,
        position + start,
        size,
        first,
        last,
        messages,
        attributes,
        timestamp,
        timestamp,
        nobody,
        nobody,
        nobody,
        sound.astype(np.bool_),
        is_message_set=True,
    )


def _told(data: bytes, entry: Entry, expected: int) -> _Told:
    size = entry.end - entry.position
    attributes = entry.attributes & 0xFF
    first, count, timestamp, sound = entry.offset, 1, entry.timestamp, crc_matches(data, entry)
    if sound and entry.is_compressed:
        try:
            found = [(one.offset, one.timestamp) for one in messages_of(data, entry)]
            first, count, timestamp = found[0][0], len(found), max(stamp for _, stamp in found)
        except CorruptBatch:
            sound = False
    if not sound:
        first = min(expected, entry.offset)
        count = entry.offset - first + 1
    return _Told(entry.position, size, first, entry.offset, count, attributes, timestamp, sound)
