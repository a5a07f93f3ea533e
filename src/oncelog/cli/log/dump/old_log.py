"""Rows of a Kafka 0.7 log file: its entries and, if selected, their messages.

A damaged place is one row of type ``error``; the dump continues at the next sound entry. All messages of a compressed
set have the offset of their entry: 0.7 has no other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from oncelog.cli.log.dump.files import Row, Wanted
from oncelog.legacy.logs.directories import file_start
from oncelog.legacy.logs.entries import (
    DEFAULT_LIMITS,
    HEAD_BYTES,
    BadEntry,
    Entry,
    UnfinishedEntry,
    codec_of,
    crc_matches,
    messages_of,
    read_entry,
)
from oncelog.legacy.logs.resync import Budget, next_entry

ReadAt = Callable[[int, int], bytes]


def old_log_rows(path: Path, selection: Wanted) -> Iterator[Row]:
    start = file_start(path.name) or 0
    with path.open("rb") as file:
        descriptor = file.fileno()

        def read(position: int, size: int) -> bytes:
            return os.pread(descriptor, size, position)

        end = os.fstat(descriptor).st_size
        budget = Budget(end)
        at = 0
        while at < end and (selection.to_offset is None or start + at < selection.to_offset):
            try:
                data, entry = _entry_at(read, at, end)
                if selection.check and not crc_matches(data, entry):
                    raise BadEntry("the checksum of the payload is wrong")
                rows = list(_rows(data, entry, start + at, at, selection))
                behind = at + entry.size_bytes
            except BadEntry as problem:
                behind = next_entry(read, at, end, budget, DEFAULT_LIMITS)
                rows = [_error(start + at, at, behind - at, problem)]
            if start + behind > selection.from_offset:
                yield from rows
            at = behind


def _entry_at(read: ReadAt, at: int, end: int) -> tuple[bytes, Entry]:
    """The entry at a position of the file, and its bytes. Raises BadEntry."""
    data = read(at, min(HEAD_BYTES, end - at))
    try:
        return data, read_entry(data, 0)
    except UnfinishedEntry as problem:
        if problem.needed > end - at:
            raise UnfinishedEntry(problem.needed, end - at) from None
        data = read(at, problem.needed)
        return data, read_entry(data, 0)


def _rows(data: bytes, entry: Entry, offset: int, position: int, selection: Wanted) -> Iterator[Row]:
    codec = codec_of(entry)
    row: Row = {
        "type": "entry",
        "offset": offset,
        "position": position,
        "size_bytes": entry.size_bytes,
        "magic": entry.magic,
        "codec": codec.name.lower(),
        "payload_bytes": entry.payload_bytes,
        "crc": entry.crc,
    }
    messages = messages_of(data, entry) if selection.records else []
    if selection.check:
        row["valid"] = True
    yield row
    for value in messages:
        yield {"type": "record", "offset": offset, "value_bytes": len(value)} | (
            {"value": value} if selection.values else {}
        )


def _error(offset: int, position: int, size: int, problem: BadEntry) -> Row:
    return {"type": "error", "offset": offset, "position": position, "size_bytes": size, "error": str(problem)}
