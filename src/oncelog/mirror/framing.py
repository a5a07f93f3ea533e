"""Prepares batches of a source for the target: unchanged where the format allows, without reading their records.

1. A batch is copied unchanged (*reframed*: another base offset, no leader epoch, the mirror's producer fields) if it
   has every offset of its range, because brokers refuse holes in what a producer sends.
2. Otherwise it is rebuilt: compaction left holes, the position lies inside it, log append time applies to all its
   records (the target keeps it as each record's own), it is larger than the target accepts, or several small ones can
   be joined. The bytes after a record's two deltas are copied unparsed.
3. Batches of aborted transactions, control batches and batches emptied by compaction are left out.
4. Messages of formats 0 and 1 become records of format 2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.base.units import INT64_MAX, KIB, MIB
from oncelog.client.machine.consumed_records import MAX_BATCH_BYTES, UnreadableRecords, visible_batches
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.whole_batches import formats
from oncelog.legacy.message_set import messages_of, shallow
from oncelog.records.batch import CODEC_MASK, DELETE_HORIZON, BatchHeader, crc_matches, set_base_offset_and_leader_epoch
from oncelog.records.builder import assemble
from oncelog.records.compression import Codec, compress
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import MIN_RECORD_BYTES, records_data
from oncelog.records.varint import append_varint, read_varint, read_varlong

SMALL_BYTES: Final = 8 * KIB
"""Batches up to this size are joined with their neighbours: a request carries one batch per partition."""
JOINED_BYTES: Final = 256 * KIB
_NO_EPOCH: Final = -1
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21


class Run(NamedTuple):
    """Records with consecutive offsets at the source: the first offset, and the count."""

    first: int
    records: int


class Frame(NamedTuple):
    """A batch for the target, with base offset 0, and the source offsets of its records in order."""

    batch: bytearray
    runs: tuple[Run, ...]

    @property
    def records(self) -> int:
        return sum(run.records for run in self.runs)


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """The largest batch that the target's topic accepts, and its codecs (the target may predate zstd)."""

    max_batch_bytes: int = MIB
    zstd: bool = True
    read_committed: bool = True
    end_offset: int = INT64_MAX
    """The source offset where the frames end, exclusive."""

    @property
    def rebuilt_bytes(self) -> int:
        return min(JOINED_BYTES, self.max_batch_bytes) * 9 // 10


class RawRecord(NamedTuple):
    """A record: absolute offset, timestamp in milliseconds, and its bytes after the deltas."""

    offset: int
    timestamp: int
    rest: bytes


@dataclass(slots=True)
class _Joining:
    """Small batches of one codec, waiting to be joined."""

    fetched: Fetched
    limits: FrameLimits
    members: list[tuple[int, BatchHeader]] = field(default_factory=list)
    size_bytes: int = 0

    def takes(self, header: BatchHeader) -> bool:
        if not self.members:
            return True
        same_codec = (self.members[0][1].attributes ^ header.attributes) & CODEC_MASK == 0
        return same_codec and self.size_bytes + header.size_bytes <= min(JOINED_BYTES, self.limits.max_batch_bytes)

    def take(self) -> Iterator[Frame]:
        """The frames of the waiting batches, which are removed."""
        members, self.members, self.size_bytes = self.members, [], 0
        if len(members) == 1 and _may_stay(*members[0], self.fetched, self.limits):
            yield _reframed(self.fetched, *members[0])
        elif members:
            yield from _rebuilt(self.fetched, members, self.limits)


def frames(fetched: Fetched, limits: FrameLimits) -> Iterator[Frame]:
    """Frames in order. Raises UnreadableRecords for damage, naming the place."""
    for stretch, is_old in _parts_by_format(fetched):
        yield from _old_frames(stretch, limits) if is_old else _frames(stretch, limits)


def visible_records(fetched: Fetched, *, read_committed: bool = True) -> Iterator[RawRecord]:
    """The records visible at an isolation level. Raises UnreadableRecords."""
    for stretch, is_old in _parts_by_format(fetched):
        if is_old:
            yield from (record for _, record in _old_records(stretch))
        else:
            for at, header in visible_batches(stretch, read_committed):
                yield from raw_records(stretch, at, header)


def _parts_by_format(fetched: Fetched) -> Iterator[tuple[Fetched, bool]]:
    """The response in parts of format 2 or older formats (True); usually one part."""
    for start, end, is_old in formats(fetched.records):
        yield fetched._replace(records=fetched.records[start:end]), is_old


def _old_frames(fetched: Fetched, limits: FrameLimits) -> Iterator[Frame]:
    waiting: list[RawRecord] = []
    size, codec = 0, Codec.NONE
    for message_codec, record in _old_records(fetched):
        if record.offset >= limits.end_offset:
            break
        if waiting and (message_codec is not codec or size + len(record.rest) > limits.rebuilt_bytes):
            yield _built(waiting, codec)
            waiting, size = [], 0
        codec = message_codec
        waiting.append(record)
        size += len(record.rest) + MIN_RECORD_BYTES
    if waiting:
        yield _built(waiting, codec)


def _old_records(fetched: Fetched) -> Iterator[tuple[Codec, RawRecord]]:
    """The messages of formats 0 and 1 from the requested position on, as records without headers."""
    place = fetched.position
    try:
        for entry in shallow(fetched.records):
            for message in messages_of(fetched.records, entry):
                place = message.offset
                if place >= fetched.position:
                    rest = bytearray()
                    for part in (message.key, message.value):
                        append_varint(rest, -1 if part is None else len(part))
                        rest += part or b""
                    # No headers.
                    rest.append(0)
                    yield entry.codec, RawRecord(place, message.timestamp, bytes(rest))
    except CorruptBatch as error:
        raise UnreadableRecords(f"the message at offset {place} of {fetched.partition} is damaged: {error}") from error


def _frames(fetched: Fetched, limits: FrameLimits) -> Iterator[Frame]:
    joining = _Joining(fetched, limits)
    at_offset = fetched.position
    try:
        for at, header in visible_batches(fetched, limits.read_committed):
            at_offset = header.base_offset
            if header.base_offset >= limits.end_offset:
                break
            # Before a new checksum is written.
            if not crc_matches(fetched.records, at, header):
                raise CorruptBatch("its checksum is wrong")
            if not header.record_count or header.last_offset < fetched.position:
                continue
            if header.size_bytes <= SMALL_BYTES:
                if not joining.takes(header):
                    yield from joining.take()
                joining.members.append((at, header))
                joining.size_bytes += header.size_bytes
                continue
            yield from joining.take()
            if _may_stay(at, header, fetched, limits):
                yield _reframed(fetched, at, header)
            else:
                yield from _rebuilt(fetched, [(at, header)], limits)
        yield from joining.take()
    except CorruptBatch as error:
        raise UnreadableRecords(
            f"the batch at offset {at_offset} of {fetched.partition} is damaged: {error}"
        ) from error


def _may_stay(at: int, header: BatchHeader, fetched: Fetched, limits: FrameLimits) -> bool:
    return (
        header.record_count == header.last_offset_delta + 1
        and header.base_offset >= fetched.position
        and not header.is_log_append_time
        and header.size_bytes <= limits.max_batch_bytes
        and header.last_offset < limits.end_offset
        and (limits.zstd or header.codec is not Codec.ZSTD)
    )


def _reframed(fetched: Fetched, at: int, header: BatchHeader) -> Frame:
    batch = bytearray(fetched.records[at : at + header.size_bytes])
    set_base_offset_and_leader_epoch(batch, 0, 0, _NO_EPOCH)
    # The deltas of a batch with a delete horizon count from that horizon, which is its base timestamp (KIP-534).
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, header.attributes & ~DELETE_HORIZON)
    return Frame(batch, (Run(header.base_offset, header.record_count),))


def _rebuilt(fetched: Fetched, members: list[tuple[int, BatchHeader]], limits: FrameLimits) -> Iterator[Frame]:
    """Frames within the target's limit unless a single record exceeds it."""
    codec = members[0][1].codec
    if codec is Codec.ZSTD and not limits.zstd:
        # The nearest codec that a target without zstd has.
        codec = Codec.LZ4
    most = limits.rebuilt_bytes
    waiting: list[RawRecord] = []
    size = 0
    for at, header in members:
        for raw in raw_records(fetched, at, header):
            if raw.offset >= limits.end_offset:
                break
            if waiting and size + len(raw.rest) > most:
                yield _built(waiting, codec)
                waiting, size = [], 0
            waiting.append(raw)
            size += len(raw.rest) + MIN_RECORD_BYTES
    if waiting:
        yield _built(waiting, codec)


def raw_records(fetched: Fetched, at: int, header: BatchHeader) -> Iterator[RawRecord]:
    """The records of the batch at ``at`` from the requested position on. Raises CorruptBatch."""
    data = records_data(fetched.records, at, header, MAX_BATCH_BYTES)
    append_time = header.max_timestamp if header.is_log_append_time else None
    position = 0
    for _ in range(header.record_count):
        length, start = read_varint(data, position)
        position = start + length
        if length < MIN_RECORD_BYTES - 1 or position > len(data):
            raise CorruptBatch(f"record of {length} bytes at {start}, {len(data) - start} left")
        timestamp_delta, after = read_varlong(data, start + 1)
        offset_delta, after = read_varint(data, after)
        offset = header.base_offset + offset_delta
        if after > position or not 0 <= offset_delta <= header.last_offset_delta:
            raise CorruptBatch(f"a record at {start} has offset delta {offset_delta}")
        if offset >= fetched.position:
            time = header.base_timestamp + timestamp_delta if append_time is None else append_time
            yield RawRecord(offset, time, data[after:position])
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes after the last of {header.record_count} records")


def _built(records: list[RawRecord], codec: Codec) -> Frame:
    body = bytearray()
    base = records[0].timestamp
    for index, raw in enumerate(records):
        head = bytearray(1)
        append_varint(head, raw.timestamp - base)
        append_varint(head, index)
        append_varint(body, len(head) + len(raw.rest))
        body += head
        body += raw.rest
    payload = body if codec is Codec.NONE else compress(codec, body)
    latest = max(raw.timestamp for raw in records)
    batch = assemble(payload, (len(records), len(records) - 1, base, latest), 0, _NO_EPOCH, int(codec), -1, -1, -1)
    return Frame(batch, _runs(records))


def _runs(records: list[RawRecord]) -> tuple[Run, ...]:
    runs: list[Run] = []
    first = last = records[0].offset
    for raw in records[1:]:
        if raw.offset <= last:
            raise CorruptBatch(f"offset {raw.offset} after {last}")
        if raw.offset != last + 1:
            runs.append(Run(first, last - first + 1))
            first = raw.offset
        last = raw.offset
    runs.append(Run(first, last - first + 1))
    return tuple(runs)
