"""Producer state of a log in snapshot files, rebuilt from the newest sound one and the batches after it.

The format is Apache Kafka's (``%020d.snapshot``, version 1). It has only a producer's last batch, so after a restart an
older duplicate is out of order. There is a snapshot at every segment's base offset, where a recovery may begin, and one
at the log's end after a clean shutdown. A damaged one is removed.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Final

from oncelog.core.producers.entry import BatchMetadata, ProducerEntry
from oncelog.core.producers.state import ProducerState
from oncelog.ports import Files, OpenFile
from oncelog.records.batch import CorruptBatch
from oncelog.records.checksum import crc32c
from oncelog.storage.checkpoints import read_file
from oncelog.storage.errors import CorruptFile, UnknownVersion
from oncelog.storage.file_names import SNAPSHOT, segment_file
from oncelog.storage.segment.batch_scan import SCAN_CHUNK
from oncelog.storage.segment.segment import Segment
from oncelog.storage.transactions.producer_updates import replayed

VERSION: Final = 1
# No other number is a version yet: it is damage, and the snapshot is rebuilt.
_LATER_VERSIONS: Final = range(VERSION + 1, 100)
# Version, CRC-32C of the rest, count.
_HEADER: Final = struct.Struct(">hIi")
_CRC_FROM: Final = 6
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of the open
# transaction (−1: none).
_ENTRY: Final = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    body = bytearray()
    count = 0
    for entry in entries:
        first = entry.transaction_first_offset
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if first is None else first,
        )
        count += 1
    crc = crc32c(bytes(body), crc32c(count.to_bytes(4, "big")))
    return _HEADER.pack(VERSION, crc, count) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Raises CorruptFile if version, size or checksum is wrong."""
    if len(data) < _HEADER.size:
        raise CorruptFile(f"producer snapshot of {len(data)} bytes is shorter than its header")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptFile(f"producer snapshot of version {version}, expected {VERSION}")
    if count < 0 or len(data) != _HEADER.size + count * _ENTRY.size or crc != crc32c(data[_CRC_FROM:]):
        raise CorruptFile("producer snapshot does not match its checksum")
    entries = []
    for fields in _ENTRY.iter_unpack(data[_HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = fields
        batches = (BatchMetadata(sequence, offset, delta, timestamp),) if offset >= 0 else ()
        transaction = first if first >= 0 else None
        entries.append(ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, transaction, batches))
    return entries


def _has_flipped_bit(version: int, data: bytes) -> bool:
    """True for a snapshot of this version, sound but for one bit of its version, which no checksum covers."""
    if (version ^ VERSION).bit_count() != 1:
        return False
    try:
        decode_snapshot(VERSION.to_bytes(2, "big") + data[2:])
    except CorruptFile:
        return False
    return True


class Snapshots:
    """``offsets`` rise."""

    __slots__ = ("_directory", "_files", "offsets")

    def __init__(self, files: Files, directory: str, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(offsets)

    def check_version(self) -> None:
        """Raise UnknownVersion for the newest snapshot."""
        file = self.file_at(self.offsets[-1]) if self.offsets else None
        if file is None:
            return
        try:
            version = int.from_bytes(file.read(0, 2), "big")
        finally:
            file.close()
        path = self._path(self.offsets[-1])
        if version in _LATER_VERSIONS and not _has_flipped_bit(version, read_file(self._files, path) or b""):
            raise UnknownVersion(path, version, VERSION, "the producers' state is then rebuilt from the segments")

    def take(self, state: ProducerState, log_start_offset: int) -> None:
        """Write the state as of its end offset, unless that file exists."""
        if state.end_offset <= (self.offsets[-1] if self.offsets else log_start_offset):
            return
        file = self._files.open(self._path(state.end_offset), create=True)
        file.truncate(0)
        # Not synced: an older snapshot and the batches after it replace a damaged one.
        file.append((encode_snapshot(state.entries.values()),))
        file.close()
        insort(self.offsets, state.end_offset)

    def load_into(self, state: ProducerState, first_offset: int, log_end_offset: int, expired_before: int) -> None:
        """Load ``state`` from the newest sound snapshot, without producers idle since ``expired_before`` that have
        nothing open; remove files outside the log, whose first segment begins at ``first_offset``."""
        for offset in list(self.offsets):
            # A snapshot at the first segment still has producers whose records are gone; Apache Kafka drops it at a
            # restart, with what the running broker knew.
            if offset > log_end_offset or offset < first_offset:
                self.remove(offset)
        while self.offsets:
            offset = self.offsets[-1]
            try:
                entries = decode_snapshot(read_file(self._files, self._path(offset)) or b"")
            except CorruptFile:
                self.remove(offset)
                continue
            alive = (
                entry
                for entry in entries
                if entry.transaction_first_offset is not None or entry.last_timestamp > expired_before
            )
            state.load(alive, offset)
            return
        state.load((), first_offset)

    def file_at(self, offset: int) -> OpenFile | None:
        return self._files.open(self._path(offset)) if offset in self.offsets else None

    def keep_only(self, base_offsets: Iterable[int]) -> None:
        """Remove files without a segment at their offset, except the newest."""
        kept = set(base_offsets)
        for offset in self.offsets[:-1]:
            if offset not in kept:
                self.remove(offset)

    def remove(self, offset: int) -> None:
        if offset in self.offsets:
            self.offsets.remove(offset)
            self._files.remove(self._path(offset))

    def moved_to(self, directory: str) -> None:
        self._directory = directory

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{segment_file(offset, SNAPSHOT)}"


def rebuild_producers(
    producers: ProducerState,
    snapshots: Snapshots,
    segments: Sequence[Segment],
    first_offset: int,
    end_offset: int,
    expired_before: int,
) -> None:
    """Set ``producers`` to their state at ``end_offset``, where the last of ``segments`` ends.

    Snapshots before ``first_offset`` and after ``end_offset`` are removed, and lost ones at a segment's start written
    again. ``expired_before`` (milliseconds) is that of :meth:`Snapshots.load_into`.
    """
    snapshots.load_into(producers, first_offset, end_offset, expired_before)
    start = producers.end_offset
    for index, segment in enumerate(segments):
        end = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if end <= start:
            continue
        if segment.base_offset > start:
            replace_snapshot(producers, snapshots, segment.base_offset, first_offset)
        if segment.size_bytes:
            _replay(producers, segment, start)
    producers.end_offset = end_offset


def replace_snapshot(producers: ProducerState, snapshots: Snapshots, offset: int, first_offset: int) -> None:
    """Write and sync a lost snapshot at ``offset``."""
    producers.end_offset = offset
    snapshots.take(producers, first_offset)
    file = snapshots.file_at(offset)
    if file is not None:
        file.sync()


def _replay(producers: ProducerState, segment: Segment, start: int) -> None:
    for at, header in segment.batches(segment.start_of(start), chunk_size=SCAN_CHUNK):
        if header.base_offset < start or header.producer_id < 0:
            continue
        data = segment.file.read(at, header.size_bytes) if header.is_control else b""
        try:
            update = replayed(producers, header, data, 0)
        except CorruptBatch:
            continue
        if update is not None:
            producers.commit(update)
