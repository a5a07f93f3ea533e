"""The requested batches of a fetched buffer, with their uncompressed records laid out in one buffer.

A Python loop with one step per *batch*, for those that ``plain_batches`` has left. Skipped, as by every consumer
(KIP-98): the partial batch that may end a response, control batches, aborted batches under read_committed, batches
entirely outside the requested offsets (``decode`` drops single records).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from oncelog.base.ids import Offset
from oncelog.base.units import MIB
from oncelog.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    MIN_BATCH_LENGTH,
    BatchHeader,
    CorruptBatch,
    crc_matches,
    magic_at,
    read_header,
)
from oncelog.records.columns.fields import BatchHeaders
from oncelog.records.columns.plain_batches import MIN_RECORD_BYTES, GroupLimits, Headers, PlainGroup, plain_groups
from oncelog.records.columns.record_starts import Spans
from oncelog.records.columns.varint_columns import GUARD_BYTES, Bytes, ByteView
from oncelog.records.compression import Codec, decompress, decompress_into
from oncelog.records.control import ControlType, control_type
from oncelog.records.errors import UnsupportedMagic
from oncelog.records.record import read_records

# A group is complete at one of these bounds. Positions in it fit an int32, as Arrow's binary arrays require.
GROUP_BYTES: Final = 4 * MIB
"""Uncompressed bytes after which a group is decoded: enough to amortise numpy calls, little enough for caches and a
worker's memory."""
GROUP_RECORDS: Final = 24 * 1024
"""Records after which a group is decoded: each takes some 80 bytes in arrays until its columns are made."""
MAX_BATCH_BYTES: Final = 256 * MIB
_MAX_CONTROL_BYTES: Final = 64 * 1024
_OWN_BYTES: Final = GROUP_BYTES + MIB
"""Room for a decompressed group; a batch that does not fit begins the next group."""


class OffsetBounds(Protocol):
    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def read_committed(self) -> bool:
        """True if records of aborted transactions are dropped."""


@dataclass(frozen=True, slots=True)
class Group:
    """Batches decoded together. ``next_offset`` follows them and the skipped batches behind them."""

    view: ByteView
    spans: Spans
    batch_headers: BatchHeaders
    next_offset: Offset


class AbortedTransactions:
    """Recognises batches of aborted transactions, from the list in a fetch response (KIP-98).

    A producer's transaction is aborted from its first offset to its next abort marker; batches must be passed in offset
    order.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._upcoming = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
        self._open: set[int] = set()

    @property
    def is_empty(self) -> bool:
        return not self._upcoming and not self._open

    def includes(self, records: memoryview, position: int, header: BatchHeader) -> bool:
        """True if the batch at ``position`` is data of an aborted transaction. An abort marker ends it."""
        if header.producer_id < 0:
            return False
        # Transactions that begin up to this batch are open now.
        while self._upcoming and self._upcoming[-1][0] <= header.last_offset:
            self._open.add(self._upcoming.pop()[1])
        if header.producer_id not in self._open:
            return False
        if header.is_control and _is_abort_marker(records, position, header):
            self._open.discard(header.producer_id)
        return header.is_transactional


def _is_abort_marker(records: memoryview, position: int, header: BatchHeader) -> bool:
    first = next(iter(read_records(records, position, header, _MAX_CONTROL_BYTES)), None)
    return first is not None and control_type(first.key) is ControlType.ABORT


class _Pending:
    """Batches collected for the next group: all in the fetched buffer, or all in a buffer of their own."""

    def __init__(self, records: memoryview) -> None:
        self._records = records
        self._batches: list[int] = []
        """Position of each batch in the fetched buffer."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Position of each batch's records, in either buffer."""
        self._own: Bytes | None = None
        self._record_count = 0
        self.size_bytes = 0

    def add(self, position: int, header: BatchHeader) -> bool:
        """Add a batch; False if it cannot be decoded together with the earlier ones. Raises CorruptBatch."""
        body_at, size = position + HEADER_SIZE, header.batch_length - MIN_BATCH_LENGTH
        start = body_at
        if header.attributes & CODEC_MASK or self._own is not None:
            if self._own is None:
                if self._batches:
                    return False
                self._own = np.empty(_OWN_BYTES, np.uint8)
            start = self.size_bytes
            unpacked_size = self._unpack(header.codec, self._records[body_at : body_at + size])
            if unpacked_size is None:
                return False
            size = unpacked_size
        if header.record_count * MIN_RECORD_BYTES > size:
            raise CorruptBatch(f"a batch claims {header.record_count} records in {size} bytes")
        self._batches.append(position)
        self._starts.append(start)
        self._ends.append(start + size)
        self.size_bytes += size
        self._record_count += header.record_count
        return True

    @property
    def is_complete(self) -> bool:
        return self.size_bytes >= GROUP_BYTES or self._record_count >= GROUP_RECORDS

    def _unpack(self, codec: Codec, body: memoryview) -> int | None:
        """Decompress a batch's records behind the earlier ones. Returns their size, None if they do not fit."""
        assert self._own is not None  # the caller made it
        room = memoryview(self._own.data)[self.size_bytes : len(self._own) - GUARD_BYTES]
        if codec is Codec.NONE:
            size: int | None = len(body) if len(body) <= len(room) else None
            room[: size or 0] = body[: size or 0]
        else:
            size = decompress_into(codec, body, room)
        if size is None and not self._batches:  # larger than a group's buffer
            # Alone in its group, a batch may be larger than the buffer.
            plain = decompress(codec, body, MAX_BATCH_BYTES)
            self._own = np.empty(len(plain) + GUARD_BYTES, np.uint8)
            self._own[: len(plain)] = np.frombuffer(plain, np.uint8)
            return len(plain)
        return size

    def group(self, next_offset: int) -> Group:
        starts, ends = np.array(self._starts, np.int64), np.array(self._ends, np.int64)
        headers = Headers(self._records, np.array(self._batches, np.int64))
        if not self._batches:
            data = np.zeros(GUARD_BYTES, np.uint8)
        elif self._own is not None:
            data = self._own[: self.size_bytes + GUARD_BYTES]
        else:
            first = self._starts[0]
            data = _with_guard(self._records, first, self._ends[-1])
            starts, ends = starts - first, ends - first
        return Group(
            ByteView(data), Spans(starts, ends, headers.record_count), headers.batch_headers(), Offset(next_offset)
        )


def _with_guard(records: memoryview, start: int, end: int) -> Bytes:
    """The bytes from ``start`` to ``end`` with readable bytes behind them; copied only at the buffer's end."""
    if end + GUARD_BYTES <= len(records):
        return np.frombuffer(records[start : end + GUARD_BYTES], np.uint8)
    if isinstance(records.obj, bytearray):  # a fetch response: its bytes behind the records will do
        whole = np.frombuffer(records.obj, np.uint8)
        at = _address(np.frombuffer(records, np.uint8)) - _address(whole) + start
        if at + end - start + GUARD_BYTES <= len(whole):
            return whole[at : at + end - start + GUARD_BYTES]
    return np.frombuffer(b"".join((records[start:end], bytes(GUARD_BYTES))), np.uint8)


def _address(data: Bytes) -> int:
    return int(data.__array_interface__["data"][0])


def read_groups(records: memoryview, bounds: OffsetBounds, aborted: Iterable[tuple[int, int]]) -> Iterator[Group]:
    """The requested batches in groups; at least one if the buffer has a whole batch. Raises CorruptBatch."""
    aborted_transactions = AbortedTransactions(aborted) if bounds.read_committed else None
    start_offset, end_offset = bounds.start_offset, bounds.end_offset
    pending, next_offset, start, has_batches = _Pending(records), -1, 0, False
    if aborted_transactions is None or aborted_transactions.is_empty:
        limits = GroupLimits(GROUP_BYTES, GROUP_RECORDS)
        for plain in plain_groups(records, start_offset, end_offset, limits):
            next_offset, start = plain.next_offset, plain.end
            yield _group_of(records, plain)
    for position, header in _whole_batches(records, start):
        before = next_offset
        if header.base_offset < next_offset:
            raise CorruptBatch(f"a batch begins at offset {header.base_offset}, the one before ends at {next_offset}")
        has_batches = True
        # All later batches are beyond the end, too.
        if header.base_offset >= end_offset:
            next_offset = header.base_offset
            break
        next_offset = header.base_offset + header.last_offset_delta + 1
        if aborted_transactions is not None and aborted_transactions.includes(records, position, header):
            continue
        if header.attributes & CONTROL or not header.record_count or next_offset <= start_offset:
            continue
        if not pending.add(position, header):
            yield pending.group(before)
            pending = _Pending(records)
            pending.add(position, header)
        if pending.is_complete:
            yield pending.group(next_offset)
            pending, has_batches = _Pending(records), False
    if has_batches:
        yield pending.group(max(next_offset, start_offset))


def _group_of(records: memoryview, plain: PlainGroup) -> Group:
    first = int(plain.starts[0])
    view = ByteView(_with_guard(records, first, plain.end))
    spans = Spans(plain.starts - first, plain.ends - first, plain.record_count)
    return Group(view, spans, plain.batch_headers, Offset(plain.next_offset))


def _whole_batches(records: memoryview, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch from ``position`` on, with checksum and counts checked."""
    end = len(records)
    while end - position >= HEADER_SIZE:
        header = read_header(records, position)
        following = position + LENGTH_PREFIX + header.batch_length
        if following > end:
            return
        if not crc_matches(records, position, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} does not match its checksum")
        last = header.last_offset_delta
        if header.record_count < 0 or header.base_offset < 0 or last < header.record_count - 1:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} claims {header.record_count} records "
                f"and a last offset {last} above its first"
            )
        if last < 0:
            raise CorruptBatch(f"the batch at offset {header.base_offset} ends before it begins")
        yield position, header
        position = following
    magic = magic_at(records, position)
    if magic not in (None, MAGIC):  # a message set of an older format may be smaller than a header
        raise UnsupportedMagic(magic or 0)
