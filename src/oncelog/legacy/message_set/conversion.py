"""Conversion between message sets and record batches, for Produce 0 to 2 and Fetch 0 to 3.

Keys, values, offsets and timestamps are kept; format 0 has no timestamps, neither has headers. Both directions yield
between steps, for a worker: a set of a few kilobytes may contain millions of messages.

Down-conversion never exceeds the given room: it may stop in the middle of a batch, and omits records before the
requested offset, so that the client's next request continues there. Compressed batches become wrappers of at most
``WRAPPER_BYTES``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from oncelog.base.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from oncelog.base.units import KIB
from oncelog.legacy.message_set.entry import (
    LOG_OVERHEAD,
    MAGIC_V0,
    MIN_SIZES,
    Entry,
    Limits,
    TimestampType,
    append_entry,
)
from oncelog.legacy.message_set.lz4 import compress_v0
from oncelog.legacy.message_set.reading import messages_of
from oncelog.records.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, Buffer
from oncelog.records.builder import NEXT_OFFSET, Encoded, assemble, encode_records
from oncelog.records.compression import Codec, compress
from oncelog.records.errors import InvalidSet
from oncelog.records.record import Record, read_records

RECORDS_PER_STEP: Final = 2000
WRAPPER_BYTES: Final = 64 * KIB  # Bytes of messages in one wrapper; a single message may be larger.
_WRAPPER_ROOM: Final = 64  # Bytes that a wrapper adds to incompressible messages.


def up_converted(
    data: Buffer, entries: Iterable[Entry], max_bytes: int, *, log_append_time: bool = False
) -> Generator[None, None, bytearray | None]:
    """The record batch with the messages of ``entries``, which were read from ``data``; None without entries. Offsets
    begin at 0; the codec is the wrapper's.

    If a message claims log append time, the batch does so only if the topic uses it (``log_append_time``) or there is
    no timestamp; otherwise the timestamp counts as the producer's. ``max_bytes`` limits decompression. Raises
    CorruptBatch and its subclasses.
    """
    read = iter(entries)
    first = next(read, None)
    if first is None:
        return None
    codec = first.codec
    by_broker = first.timestamp_type is TimestampType.LOG_APPEND_TIME and (
        log_append_time or first.timestamp == NO_TIMESTAMP
    )
    # The first entry decides the codec and the timestamp type of the batch.
    records = _records_of(data, chain((first,), read), Limits(max_bytes))
    body = bytearray()
    encoded: Encoded = (0, -1, None, NO_TIMESTAMP)
    while True:
        before = encoded[0]
        encoded = encode_records(body, islice(records, RECORDS_PER_STEP), 0, encoded)
        if encoded[0] - before < RECORDS_PER_STEP:
            break
        yield
    attributes = int(codec) | (LOG_APPEND_TIME if by_broker else 0)
    no_producer = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
    return assemble(compress(codec, body), encoded, 0, NO_LEADER_EPOCH, attributes, *no_producer)


def _records_of(data: Buffer, entries: Iterable[Entry], limits: Limits) -> Iterator[Record]:
    before: Entry | None = None
    for entry in entries:
        magic = entry.magic
        if before is not None and magic != before.magic:
            raise InvalidSet(f"the set mixes messages of format {magic} and format {before.magic}")
        if before is not None and (before.is_compressed or entry.is_compressed):
            raise InvalidSet("a compressed message must be the only one in its set")
        before = entry
        for message in messages_of(data, entry, limits):
            if message.magic != magic:
                raise InvalidSet(f"a wrapper of format {magic} contains a message of format {message.magic}")
            if message.timestamp < NO_TIMESTAMP:
                raise InvalidSet(f"a message has the invalid timestamp {message.timestamp}")
            yield Record(NEXT_OFFSET, message.timestamp, message.key, message.value)


class Converted(NamedTuple):
    """A message set made from a batch; ``complete`` if it has all records from the requested offset on."""

    data: bytearray
    complete: bool


def down_converted(
    buffer: Buffer, position: int, header: BatchHeader, *, magic: int, first_offset: int, room: int, max_bytes: int
) -> Generator[None, None, Converted]:
    """The records of the batch at ``position`` from ``first_offset`` on, in format ``magic``, within ``room`` bytes; at
    least one message, which the caller may cut. The caller leaves out control batches.

    ``max_bytes`` limits decompression. Raises CorruptBatch, and ValueError for zstd, which these formats lack.
    """
    if header.codec is Codec.ZSTD:
        raise ValueError("message sets cannot be compressed with zstd")
    kind = _Kind(magic, header)
    max_inner_bytes = room if header.codec is Codec.NONE else min(WRAPPER_BYTES, room - _WRAPPER_ROOM)
    output, inner = bytearray(), _Inner(kind)
    records = (
        read_record
        for read_record in read_records(buffer, position, header, max_bytes)
        if read_record.offset >= first_offset
    )
    for count, record in enumerate(records, 1):
        if inner.data and len(inner.data) + kind.size_of(record) > max_inner_bytes:
            if not _append_if_room(output, inner.finished(), room):
                return Converted(output, complete=False)
            inner = _Inner(kind)
            if header.codec is Codec.NONE:
                return Converted(output, complete=False)
        inner.append(record)
        if count % RECORDS_PER_STEP == 0:
            yield
    complete = not inner.data or _append_if_room(output, inner.finished(), room)
    return Converted(output, complete)


def _append_if_room(output: bytearray, data: Buffer, room: int) -> bool:
    if output and len(output) + len(data) > room:
        return False
    output += data
    return True


class _Kind:
    """The format of the messages that a batch becomes."""

    __slots__ = ("bits", "codec", "magic", "overhead")

    def __init__(self, magic: int, header: BatchHeader) -> None:
        self.magic = magic
        self.codec = header.codec
        self.bits = LOG_APPEND_TIME if magic > MAGIC_V0 and header.is_log_append_time else 0
        self.overhead = LOG_OVERHEAD + MIN_SIZES[magic]

    def size_of(self, record: Record) -> int:
        return self.overhead + len(record.key or b"") + len(record.value or b"")


class _Inner:
    """Consecutive messages, to be sent as they are or in one wrapper."""

    __slots__ = ("_base", "_kind", "_last", "_latest", "data")

    def __init__(self, kind: _Kind) -> None:
        self._kind = kind
        self.data = bytearray()
        self._base = self._last = 0
        self._latest = NO_TIMESTAMP

    def append(self, record: Record) -> None:
        """Append a message. In a wrapper of format 1 its offset is relative to the first."""
        kind = self._kind
        if not self.data and kind.codec is not Codec.NONE and kind.magic > MAGIC_V0:
            self._base = record.offset
        offset, self._last = record.offset - self._base, record.offset
        self._latest = max(self._latest, record.timestamp)
        append_entry(self.data, offset, kind.magic, kind.bits, record.timestamp, record.key, record.value)

    def finished(self) -> Buffer:
        kind = self._kind
        if kind.codec is Codec.NONE:
            return self.data
        return wrap(self.data, self._last, kind.magic, kind.codec, self._latest, kind.bits)


def wrap(data: Buffer, offset: int, magic: int, codec: Codec, timestamp: int = NO_TIMESTAMP, bits: int = 0) -> bytes:
    """The wrapper at ``offset`` around a message set, whose inner offsets stay. ``bits``: attributes beside the codec.
    Raises ValueError for zstd.
    """
    if codec is Codec.ZSTD:
        raise ValueError("message sets cannot be compressed with zstd")
    packed = compress_v0(data) if codec is Codec.LZ4 and magic == MAGIC_V0 else compress(codec, data)
    output = bytearray()
    append_entry(output, offset, magic, bits | codec, timestamp, None, packed)
    return bytes(output)
