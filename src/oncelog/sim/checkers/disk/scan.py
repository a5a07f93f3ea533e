"""Reads the logs of a data directory without changing it: every batch of every segment, by headers and checksums.

Only segments are trusted, except for the topic id and the log start, which is nowhere else. Leftovers of interrupted
compactions and deletions (``.cleaned``, ``.swap``, ``.deleted``) are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicPartition, partition_of_directory
from oncelog.ports import Files
from oncelog.records.batch import BatchHeader, Buffer, CorruptBatch
from oncelog.records.control import end_transaction_marker_of
from oncelog.records.record import Record, read_records
from oncelog.storage.checkpoints import read_offsets, read_topic_id
from oncelog.storage.file_names import LOG, LOG_START_OFFSETS, SWAP, parse_segment_file
from oncelog.storage.segment.batch_scan import iter_checked

_MAX_BATCH_BYTES: Final = 1 << 30
_MAX_RECORDS_BYTES: Final = 1 << 28


class Marker(NamedTuple):
    committed: bool
    coordinator_epoch: int
    timestamp: int


class Batch(NamedTuple):
    """A batch on the disk: its ``marker``, if it is a control batch, and its ``records``, if requested."""

    header: BatchHeader
    marker: Marker | None = None
    records: tuple[Record, ...] = ()


@dataclass
class ScannedLog:
    partition: TopicPartition
    topic_id: TopicId
    start: int
    batches: list[Batch] = field(default_factory=list)
    # Why the scan ended before the last byte; None for a sound log.
    unsound: str | None = None
    # A compaction was interrupted: the segments are not the log.
    interrupted: bool = False

    @property
    def end(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.start

    def cut_at_gap(self) -> None:
        # A power cut may keep a later unsynced segment and lose an earlier one.
        for index, (before, after) in enumerate(pairwise(self.batches)):
            if after.header.base_offset > before.header.next_offset:
                self.unsound = f"{self.partition}: {after.header.base_offset} follows {before.header.last_offset}"
                del self.batches[index + 1 :]
                return

    @property
    def is_whole(self) -> bool:
        """True if the log has every offset from 0 on."""
        following = 0
        for batch in self.batches:
            header = batch.header
            if header.base_offset != following or header.record_count <= header.last_offset_delta:
                return False
            following = header.next_offset
        return self.start == 0 and not self.interrupted


def scan(files: Files, *, with_records: frozenset[str] = frozenset()) -> dict[TopicPartition, ScannedLog]:
    """All logs of a data directory. ``with_records``: topics whose records are read, too."""
    starts = read_offsets(files, LOG_START_OFFSETS)
    logs: dict[TopicPartition, ScannedLog] = {}
    for name in files.list(""):
        partition = partition_of_directory(name)
        if partition is None or str(partition) != name:
            continue
        try:
            names = files.list(name)
        except NotADirectoryError:
            continue
        logs[partition] = _scan_log(files, partition, names, starts.get(partition, 0), with_records)
    return logs


def _scan_log(
    files: Files, partition: TopicPartition, names: list[str], start: int, with_records: frozenset[str]
) -> ScannedLog:
    directory = str(partition)
    topic_id = read_topic_id(files, directory)
    parsed = [(name, parsed) for name in names if (parsed := parse_segment_file(name)) is not None]
    segments = sorted((base, name) for name, (base, extension, suffix) in parsed if extension == LOG and not suffix)
    log = ScannedLog(partition, topic_id or NO_TOPIC_ID, max(start, segments[0][0] if segments else 0))
    log.interrupted = any(suffix == SWAP for _, (_, _, suffix) in parsed)
    for base, name in segments:
        if not _scan_segment(files, log, f"{directory}/{name}", base, records=partition.topic in with_records):
            break
    return log


def _scan_segment(files: Files, log: ScannedLog, path: str, base: int, *, records: bool) -> bool:
    file = files.open(path)
    try:
        size, position = file.size(), 0
        for at, header, buffer, place in iter_checked(file, 0, size, _MAX_BATCH_BYTES):
            batch = _batch(header, buffer, place, records=records)
            if batch is None or header.base_offset < base:
                log.unsound = f"{path}: the batch at {at} is not what it says"
                return False
            log.batches.append(batch)
            position = at + header.size_bytes
        if position < size:
            log.unsound = f"{path}: no sound batch at {position} of {size}"
        return position == size
    finally:
        file.close()


def _batch(header: BatchHeader, buffer: Buffer, position: int, *, records: bool) -> Batch | None:
    if not (records or header.is_control):
        return Batch(header)
    try:
        records_read = tuple(read_records(buffer, position, header, _MAX_RECORDS_BYTES))
        marker = None
        for record in records_read if header.is_control else ():
            decoded = end_transaction_marker_of(record)
            marker = None if decoded is None else Marker(*decoded, record.timestamp)
    except CorruptBatch:
        return None
    return Batch(header, marker, records_read if records else ())
