"""Plain batches, those of the usual fetch (neither compressed nor control nor aborted), taken together in numpy steps.

Deciding batch by batch in Python, as ``batches`` does, is a good part of all work at 64 KB a batch. Here only lengths
are followed one by one. The first group with anything unusual or wrong is left to ``batches``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from oncelog.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    CRC_POSITION,
    HEADER_SIZE,
    LENGTH_PREFIX,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    MIN_BATCH_LENGTH,
)
from oncelog.records.checksum import crc32c
from oncelog.records.columns.fields import BatchHeaders
from oncelog.records.columns.varint_columns import Positions

MIN_RECORD_BYTES: Final = 7
"""One byte each for length, attributes, timestamp, offset, key length, value length and header count."""
_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_LAST_OFFSET_DELTA_POSITION: Final = 23
_BASE_TIMESTAMP_POSITION: Final = 27
_RECORD_COUNT_POSITION: Final = 57


class Headers:
    """Header fields of many batches at once, from the batches' positions."""

    def __init__(self, records: memoryview, batches: Positions) -> None:
        self._records = records
        self._batches = batches
        self.record_count = self.field(">i4", _RECORD_COUNT_POSITION)
        self.base_offset = self.field(">i8", 0)
        self.last_offset_delta = self.field(">i4", _LAST_OFFSET_DELTA_POSITION)
        self.attributes = self.field(">i2", ATTRIBUTES_POSITION)

    def field(self, kind: str, position: int) -> Positions:
        """A header field of all batches; ``kind`` is numpy's name of its type, ``position`` its place in the header."""
        if not len(self._batches):
            return np.zeros(0, np.int64)
        count = len(self._records) - position - int(kind[-1]) + 1
        at_every_byte: Positions = np.ndarray(count, kind, self._records, position, (1,))
        return at_every_byte[self._batches].astype(np.int64)

    def batch_headers(self, selected: slice = slice(None)) -> BatchHeaders:
        return BatchHeaders(
            base_offset=self.base_offset[selected],
            last_offset_delta=self.last_offset_delta[selected],
            base_timestamp=self.field(">i8", _BASE_TIMESTAMP_POSITION)[selected],
            max_timestamp=self.field(">i8", MAX_TIMESTAMP_POSITION)[selected],
            log_append_time=self.attributes[selected] & LOG_APPEND_TIME != 0,
        )


class PlainGroup(NamedTuple):
    """Consecutive batches, all to be decoded: header fields, positions of their records, end of the last batch."""

    starts: Positions
    ends: Positions
    record_count: Positions
    batch_headers: BatchHeaders
    next_offset: int
    end: int


class GroupLimits(NamedTuple):
    """Bytes and records from which a group is complete."""

    size_bytes: int
    records: int


def plain_groups(records: memoryview, start_offset: int, end_offset: int, limits: GroupLimits) -> Iterator[PlainGroup]:
    """Groups up to the limits plus one batch, from the beginning of a fetched buffer, as long as everything in them is
    plain."""
    positions = _batch_positions(records)
    batches, following = np.array(positions[:-1], np.int64), np.array(positions[1:], np.int64)
    if not len(batches):
        return
    headers = Headers(records, batches)
    plain = _are_plain(headers, following - batches, start_offset, end_offset)
    checksums = headers.field(">u4", CRC_POSITION).tolist()
    usual = len(batches) if plain.all() else int(plain.argmin())
    first, counted, before = 0, np.cumsum(headers.record_count), 0
    while first < usual:
        by_size = int(np.searchsorted(following, batches[first] + limits.size_bytes))
        last = min(by_size, int(np.searchsorted(counted, before + limits.records))) + 1
        last = min(last, len(batches))
        if last > usual:
            return
        for batch in range(first, last):
            if crc32c(records[positions[batch] + ATTRIBUTES_POSITION : positions[batch + 1]]) != checksums[batch]:
                return
        group = slice(first, last)
        next_offset = int(headers.base_offset[last - 1] + headers.last_offset_delta[last - 1]) + 1
        starts, ends = batches[group] + HEADER_SIZE, following[group]
        yield PlainGroup(
            starts, ends, headers.record_count[group], headers.batch_headers(group), next_offset, positions[last]
        )
        first, before = last, int(counted[last - 1])


def _batch_positions(records: memoryview) -> list[int]:
    """The position of each whole batch, and the end of the last."""
    positions, at, end = [0], 0, len(records)
    unpack = _LENGTH.unpack_from
    while end - at >= HEADER_SIZE:
        (length,) = unpack(records, at + _LENGTH_POSITION)
        at += LENGTH_PREFIX + length
        if length < MIN_BATCH_LENGTH or at > end:
            break
        positions.append(at)
    return positions


def _are_plain(headers: Headers, size: Positions, start_offset: int, end_offset: int) -> npt.NDArray[np.bool_]:
    """True for each batch that is plain, partly requested, and consistent in itself and with the one before."""
    count, base, last_delta = headers.record_count, headers.base_offset, headers.last_offset_delta
    following = base + last_delta + 1
    usual = headers.attributes & (CODEC_MASK | CONTROL) == 0
    usual &= headers.field("i1", MAGIC_POSITION) == MAGIC
    usual &= (count > 0) & (count * MIN_RECORD_BYTES <= size - HEADER_SIZE) & (last_delta >= count - 1)
    usual &= (base >= 0) & (base < end_offset) & (following > start_offset)
    usual[1:] &= base[1:] >= following[:-1]
    plain: npt.NDArray[np.bool_] = usual
    return plain
