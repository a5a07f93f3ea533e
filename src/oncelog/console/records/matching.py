"""The records of a batch that match a filter."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.client.machine.positions import Fetched
from oncelog.console.records.record_filter import RecordFilter
from oncelog.console.records.record_states import (
    MAX_BATCH_BYTES,
    PLAIN,
    StoredRecord,
    stored,
    stored_records,
    unreadable,
)
from oncelog.records.batch import BatchHeader, crc_matches
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Record, read_record, records_data
from oncelog.records.varint import read_varint

# A batch is scanned as one block of bytes. Records are located only in a batch that contains the filter's needle, and
# only those that contain it are parsed.


def matching_records(
    fetched: Fetched, at: int, header: BatchHeader, state: str, record_filter: RecordFilter
) -> Iterator[StoredRecord]:
    """The matching records of a batch, in ``state`` if it is transactional, whatever states the filter allows; a
    placeholder for a batch that cannot be read."""
    if not record_filter.conditions:
        yield from stored_records(fetched, at, header, state)
        return
    if header.is_control:
        return
    state = state if header.is_transactional else PLAIN
    try:
        if not crc_matches(fetched.records, at, header):
            raise CorruptBatch("its CRC does not match")
        data = records_data(fetched.records, at, header, MAX_BATCH_BYTES)
        for record in records_with(data, header, record_filter):
            yield stored(record, header, state)
    except CorruptBatch as error:
        yield unreadable(header, error)


def records_with(data: bytes, header: BatchHeader, record_filter: RecordFilter) -> Iterator[Record]:
    """The matching records of ``records_data``. Raises CorruptBatch. One without the needle costs reading its length;
    one with it in another part than the needle's costs locating that part."""
    search_text = record_filter.needle.search_text(data)
    if search_text is None:
        return
    searched, needle = search_text
    part = record_filter.needle.part if needle else None
    append_time = header.max_timestamp if header.is_log_append_time else None
    at, match_at, size = 0, searched.find(needle), len(data)
    for _ in range(header.record_count):
        if match_at < 0:
            return
        begin = at
        try:
            byte = data[at]
            length, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 0x80 else read_varint(data, at)
        except IndexError:
            raise CorruptBatch(f"record at {begin} reaches past the end") from None
        end = at + length
        if length <= 0 or end > size:
            raise CorruptBatch(f"record of {length} bytes at {begin}, {size - begin} left")
        if match_at < end:
            if part is None or _is_in_part(searched, data, at, part, needle):
                _, offset_delta, timestamp_delta, key, value, headers = read_record(data, begin)
                timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
                record = Record(header.base_offset + offset_delta, timestamp, key, value, headers)
                if record_filter.matches(record):
                    yield record
            match_at = searched.find(needle, end)
        at = end


def _is_in_part(searched: bytes, data: bytes, at: int, part: int, needle: bytes) -> bool:
    """True if the part of the record whose fields begin at ``at`` contains the needle. ``part`` is the number of
    varints between the offset delta and its length."""
    try:
        at += 1  # attributes
        while data[at] >= 0x80:
            at += 1
        at += 1
        while data[at] >= 0x80:
            at += 1
        byte = data[at + 1]
        length, at = ((byte >> 1) ^ -(byte & 1), at + 2) if byte < 0x80 else read_varint(data, at + 1)
        if part:
            length, at = read_varint(data, at + max(length, 0))
    except IndexError:
        raise CorruptBatch(f"record reaches past the end at {at}") from None
    return length > 0 and searched.find(needle, at, at + length) >= 0
