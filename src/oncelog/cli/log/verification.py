"""``oncelog log verify``: finds batches that cannot be read, or whose header contradicts their records.

Each batch is checked by itself, like a producer's batch (``records.inspection``): compaction makes gaps. A segment ends
at the first batch with an impossible length.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from oncelog.cli.log.dump.segment import MAX_BATCH_BYTES
from oncelog.records.batch import NO_TIMESTAMP, BatchHeader, crc_matches, iter_headers
from oncelog.records.errors import CorruptBatch, UnsupportedMagic
from oncelog.records.inspection import Inspection
from oncelog.records.record import records_data


class Problem(NamedTuple):
    """A damaged or contradictory batch."""

    base_offset: int
    position: int
    problem: str
    hides_records: bool
    """True where only the largest timestamp is wrong: all records can be read."""


def problems(path: Path) -> Iterator[Problem | None]:
    """The problem of each batch of a segment, None for a sound one."""
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield from _problems_in(view)
        finally:
            view.release()


def _problems_in(view: memoryview) -> Iterator[Problem | None]:
    end, last_offset = 0, -1
    try:
        for position, header in iter_headers(view):
            end, last_offset = position + header.size_bytes, header.last_offset
            yield _problem(view, position, header)
    except UnsupportedMagic as error:
        text = (
            f"message format {error.magic}, which is not looked into; nor are the {len(view) - end} bytes from there on"
        )
        yield Problem(last_offset + 1, end, text, False)
    except CorruptBatch as error:
        text = f"{error}; the {len(view) - end} bytes from there on are not looked into"
        yield Problem(last_offset + 1, end, text, False)


def _problem(view: memoryview, position: int, header: BatchHeader) -> Problem | None:
    def problem(text: str, *, hides: bool = False) -> Problem:
        return Problem(header.base_offset, position, text, hides)

    if not crc_matches(view, position, header):
        return problem("the checksum is wrong")
    count = header.record_count
    if count == 0:
        return None  # compaction has emptied it
    if not 0 < count <= header.last_offset_delta + 1:
        return problem(f"{count} records between offsets {header.base_offset} and {header.last_offset}")
    try:
        inspection = Inspection(records_data(view, position, header, MAX_BATCH_BYTES), count)
        inspection.advance(count)
    except CorruptBatch as error:
        return problem(str(error))
    if inspection.misnumbered and count == header.last_offset_delta + 1:
        return problem("the offsets of the records do not follow each other")
    latest = max(NO_TIMESTAMP, header.base_timestamp + inspection.latest_delta())
    if header.is_log_append_time or header.max_timestamp == latest:
        return None
    return problem(f"the header's largest timestamp is {header.max_timestamp}, the records' {latest}", hides=True)
