"""Which batches of a fetched buffer count, and their uncompressed records laid out in one buffer.

The only Python loop over a fetch's contents, one turn a *batch*. Skipped, as every consumer does (KIP-98): the
partial batch a broker may end a response with, control batches, batches of aborted transactions when reading
committed, batches that lie entirely outside the wanted offsets. A batch that only overlaps them is kept; ``decode``
drops its other records.

Bounds: a batch's record count by its bytes, its decompressed size by ``MAX_BATCH_BYTES``, a group by
``GROUP_BYTES`` and one batch more; so positions in a group fit an int32, which Arrow's binary arrays need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from oncelog.base.ids import Offset
from oncelog.base.units import MIB
from oncelog.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, crc_matches, read_header
from oncelog.records.columns.fields import BatchFacts
from oncelog.records.columns.starts import Spans
from oncelog.records.columns.varint import GUARD_BYTES, Bytes, ByteView, Positions
from oncelog.records.compression import Codec, decompress
from oncelog.records.control import ControlType, control_type
from oncelog.records.record import read_records

GROUP_BYTES: Final = 8 * MIB
"""Uncompressed bytes after which a group is decoded: large enough to amortise numpy calls, small enough for caches."""
MAX_BATCH_BYTES: Final = 256 * MIB
MIN_RECORD_BYTES: Final = 7
"""One byte each for length, attributes, timestamp, offset, key length, value length and header count."""
_MAX_CONTROL_BYTES: Final = 64 * 1024


class OffsetBounds(Protocol):
    """What this module needs to know of a selection."""

    @property
    def start_offset(self) -> int:
        """First offset wanted."""

    @property
    def end_offset(self) -> int:
        """First offset not wanted."""

    @property
    def read_committed(self) -> bool:
        """Whether records of aborted transactions are left out."""


@dataclass(frozen=True, slots=True)
class Group:
    """Batches decoded together. ``next_offset`` is the one after them and after everything skipped behind them."""

    view: ByteView
    spans: Spans
    facts: BatchFacts
    next_offset: Offset


class AbortedTransactions:
    """Tells which transactional batches belong to aborted transactions, from the list a fetch response carries.

    A producer's transaction is aborted from its first offset to the producer's next abort marker; batches must be
    shown in offset order (KIP-98; the consumer's side of the last stable offset).
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
        self._open: set[int] = set()

    def includes(self, records: memoryview, position: int, header: BatchHeader) -> bool:
        """Whether the batch at ``position`` is data of an aborted transaction; an abort marker ends one."""
        if header.producer_id < 0:
            return False
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])
        if header.producer_id not in self._open:
            return False
        if header.is_control and _is_abort_marker(records, position, header):
            self._open.discard(header.producer_id)
        return header.is_transactional


def _is_abort_marker(records: memoryview, position: int, header: BatchHeader) -> bool:
    first = next(iter(read_records(records, position, header, _MAX_CONTROL_BYTES)), None)
    return first is not None and control_type(first.key) is ControlType.ABORT


@dataclass(slots=True)
class _Pending:
    """Batches collected for the next group."""

    headers: list[BatchHeader] = field(default_factory=list)
    bodies: list[bytes | memoryview] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    size_bytes: int = 0
    compressed: bool = False

    def add(self, header: BatchHeader, body: bytes | memoryview, position: int) -> None:
        if header.record_count * MIN_RECORD_BYTES > len(body):
            raise CorruptBatch(f"a batch says it has {header.record_count} records in {len(body)} bytes")
        self.headers.append(header)
        self.bodies.append(body)
        self.positions.append(position)
        self.size_bytes += len(body)
        self.compressed |= isinstance(body, bytes)

    def group(self, records: memoryview, next_offset: int) -> Group:
        sizes = np.array([len(body) for body in self.bodies], np.int64)
        if self.compressed or not self.headers:
            ends = np.cumsum(sizes)
            data = np.frombuffer(b"".join((*self.bodies, bytes(GUARD_BYTES))), np.uint8)
        else:
            first = self.positions[0]
            ends = np.array(self.positions, np.int64) - first + sizes
            data = _with_guard(records, first, first + int(ends[-1]))
        spans = Spans(ends - sizes, ends, np.array([header.record_count for header in self.headers], np.int64))
        return Group(ByteView(data), spans, _facts(self.headers), Offset(next_offset))


def _with_guard(records: memoryview, start: int, end: int) -> Bytes:
    """The bytes from ``start`` to ``end`` with readable bytes behind them; a copy only at the buffer's end."""
    if end + GUARD_BYTES <= len(records):
        return np.frombuffer(records[start : end + GUARD_BYTES], np.uint8)
    return np.frombuffer(b"".join((records[start:end], bytes(GUARD_BYTES))), np.uint8)


def _facts(headers: list[BatchHeader]) -> BatchFacts:
    def column(values: Iterable[int]) -> Positions:
        return np.fromiter(values, np.int64, len(headers))

    return BatchFacts(
        base_offset=column(header.base_offset for header in headers),
        last_offset_delta=column(header.last_offset_delta for header in headers),
        base_timestamp=column(header.base_timestamp for header in headers),
        max_timestamp=column(header.max_timestamp for header in headers),
        log_append_time=np.array([header.is_log_append_time for header in headers], np.bool_),
    )


def read_groups(records: memoryview, bounds: OffsetBounds, aborted: Iterable[tuple[int, int]]) -> Iterator[Group]:
    """The wanted batches in groups; one at least when the buffer has a whole batch. Raises CorruptBatch."""
    aborted_transactions = AbortedTransactions(aborted if bounds.read_committed else ())
    pending, next_offset, seen = _Pending(), -1, False
    for position, header in _whole_batches(records):
        if header.base_offset < next_offset:
            raise CorruptBatch(f"a batch begins at offset {header.base_offset}, the one before ends at {next_offset}")
        seen = True
        if header.base_offset >= bounds.end_offset:
            next_offset = header.base_offset
            break
        next_offset = header.next_offset
        is_aborted = aborted_transactions.includes(records, position, header)
        if is_aborted or header.is_control or not header.record_count or header.next_offset <= bounds.start_offset:
            continue
        pending.add(header, _body(records, position, header), position + HEADER_SIZE)
        if pending.size_bytes >= GROUP_BYTES:
            yield pending.group(records, next_offset)
            pending, seen = _Pending(), False
    if seen:
        yield pending.group(records, max(next_offset, bounds.start_offset))


def _whole_batches(records: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch that is whole, with its checksum and counts checked."""
    position = 0
    while len(records) - position >= HEADER_SIZE:
        header = read_header(records, position)
        if header.size_bytes > len(records) - position:
            return
        if not crc_matches(records, position, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} does not have the checksum it says")
        if header.record_count < 0 or header.base_offset < 0 or header.last_offset_delta < header.record_count - 1:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} says it has {header.record_count} records "
                f"and a last offset {header.last_offset_delta} above its first"
            )
        if header.last_offset_delta < 0:
            raise CorruptBatch(f"the batch at offset {header.base_offset} ends before it begins")
        yield position, header
        position += header.size_bytes


def _body(records: memoryview, position: int, header: BatchHeader) -> bytes | memoryview:
    """The batch's records: a view where they are stored as they are, else decompressed."""
    body = records[position + HEADER_SIZE : position + header.size_bytes]
    codec = header.codec
    return body if codec is Codec.NONE else decompress(codec, body, MAX_BATCH_BYTES)
