"""Finds the whole batches at the start of a Fetch response: their size in bytes, and the offset after them.

Only headers are read. The magic byte is at the same place in record batches and in entries of message sets (formats 0
and 1, before 0.11); an entry, compressed or not, has the offset of its last message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from oncelog.base.errors import PeerError

_PREFIX = struct.Struct(">qi11xi")
"""Base offset, length of what follows it, last offset delta."""
_ENTRY_PREFIX = struct.Struct(">qi")
_LENGTH_PREFIX: Final = 12
_HEADER_SIZE: Final = 61
_SMALLEST_ENTRY: Final = 14
_MAGIC_AT: Final = 16
_MAGIC: Final = 2


def whole_batches(records: memoryview, position: int, *, old_formats: bool = False) -> tuple[int, int]:
    """The size of the whole batches in ``records``, and the offset after them (``position`` if there are none).

    Raises PeerError for an invalid length, offsets that do not rise, and any format other than 2 (with ``old_formats``,
    0 to 2).
    """
    at, end, next_offset = 0, len(records), position
    while end - at > _MAGIC_AT:
        magic = records[at + _MAGIC_AT]
        if magic < _MAGIC and old_formats:
            last_offset, length = _ENTRY_PREFIX.unpack_from(records, at)
            least = _SMALLEST_ENTRY
        elif magic != _MAGIC:  # before the size: what is older may be smaller than a header
            raise PeerError(f"records in format {magic}; only format 2 (Kafka 0.11 and later) is read")
        elif end - at < _HEADER_SIZE:
            break
        else:
            base_offset, length, last_offset_delta = _PREFIX.unpack_from(records, at)
            last_offset, least = base_offset + last_offset_delta, _HEADER_SIZE - _LENGTH_PREFIX
        if length < least:
            raise PeerError(f"a record batch of {length} bytes")
        following = at + _LENGTH_PREFIX + length
        if following > end:
            break
        # Offsets that do not rise would make the reader loop for ever.
        if last_offset < next_offset:
            raise PeerError(f"a record batch ends at offset {last_offset}, {next_offset} was expected")
        next_offset = last_offset + 1
        at = following
    return at, next_offset


def formats(records: memoryview) -> Iterator[tuple[int, int, bool]]:
    """The start and end of each run of one format in whole batches, and True for message sets."""
    start = at = 0
    was_old: bool | None = None
    while at < len(records):
        is_old = records[at + _MAGIC_AT] < _MAGIC
        if was_old is not None and is_old != was_old:
            yield start, at, was_old
            start = at
        was_old = is_old
        at += _LENGTH_PREFIX + int(_ENTRY_PREFIX.unpack_from(records, at)[1])
    if was_old is not None:
        yield start, at, was_old


def bytes_of_cut(records: memoryview) -> int:
    """The size of the truncated first batch or entry; 0 if its length is not visible."""
    if len(records) < _LENGTH_PREFIX:
        return 0
    return _LENGTH_PREFIX + int(_ENTRY_PREFIX.unpack_from(records, 0)[1])
