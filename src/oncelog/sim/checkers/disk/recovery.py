"""D9 and D10: opening a data directory recovers the same state as a naive scan of its segments.

A copy in memory is opened as by a broker. For a whole log, the log end, leader epochs, producers, open and aborted
transactions, and reads by offset must equal those of a walk over all batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.ports import Files
from oncelog.records.batch import HEADER_SIZE, read_header
from oncelog.sim.checkers.disk.logs import Finding
from oncelog.sim.checkers.disk.scan import Batch, ScannedLog
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.read import read_batches
from oncelog.storage.log_config import LogConfig, StorageConfig
from oncelog.storage.log_directory import LogDirectory

DIFFERS: Final = "D9 recovery differs from the log"
READ: Final = "D10 read finds another batch"
_CHUNK: Final = 1 << 20
_EPOCHS: Final = "leader epochs"
# Offsets to read in each log, spread evenly over its batches.
_READS: Final = 16

# (epoch, coordinator epoch, last sequence, last data offset, last timestamp, first offset of the open transaction).
Producer = tuple[int, int, int, int, int, int | None]
# Of the last five batches of a producer, a snapshot keeps one: only that one is compared.
# (producer id, first offset, offset of the marker).
Aborted = tuple[int, int, int]


def copy_of(files: Files) -> MemoryFiles:
    copy = MemoryFiles()
    _copy_directory(files, copy, "")
    return copy


def _copy_directory(files: Files, copy: MemoryFiles, directory: str) -> None:
    for name in files.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            files.list(path)
        except NotADirectoryError:
            file = files.open(path)
            size = file.size()
            chunks = [file.read(position, min(_CHUNK, size - position)) for position in range(0, size, _CHUNK)]
            copy.open(path, create=True).append(chunks)
            file.close()
        else:
            copy.make_directory(path)
            _copy_directory(files, copy, path)


def recovery(
    files: Files,
    logs: dict[TopicPartition, ScannedLog],
    *,
    config_of: Callable[[TopicPartition], LogConfig],
    now_ms: int,
    storage: StorageConfig | None = None,
    unreplicated: Collection[TopicPartition] = (),
) -> Iterator[Finding]:
    storage = storage or StorageConfig()
    opened = LogDirectory.open(copy_of(files), config_of=config_of, now_ms=now_ms, storage=storage)
    for partition in sorted(logs.keys() | opened.logs.keys()):
        scanned, log = logs.get(partition), opened.logs.get(partition)
        if scanned is None or log is None:
            yield DIFFERS, f"{partition}: {'not opened' if log is None else 'not recovered'}"
        elif scanned.is_whole:
            expired_before = now_ms - storage.producer_id_expiration_ms
            for fact, recovered, expected in _differences(log, scanned, expired_before):
                if fact == _EPOCHS and partition in unreplicated:
                    continue
                yield DIFFERS, f"{partition}: {fact} {recovered}, the segments have {expected}"
            if log.log_end_offset == scanned.end:
                yield from _reads(log, scanned)


def _differences(log: PartitionLog, scanned: ScannedLog, expired_before: int) -> Iterator[tuple[str, object, object]]:
    if log.log_end_offset != scanned.end:
        yield "log end", log.log_end_offset, scanned.end
        return
    producers, aborted = replay(scanned.batches)
    epochs = _leader_epochs(scanned.batches)
    opened = [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries]
    # An epoch without records at the log's end is optional.
    recovered = [(epoch, start) for epoch, start in opened if start < scanned.end]
    if epochs is not None and recovered != epochs:
        yield _EPOCHS, recovered, epochs
    for producer_id in sorted(producers.keys() | log.producers.entries.keys()):
        expected, entry = producers.get(producer_id), log.producers.entries.get(producer_id)
        recovered_producer: Producer | None = None
        if entry is not None:
            recovered_producer = (
                entry.epoch,
                entry.coordinator_epoch,
                entry.last_sequence,
                entry.last_data_offset,
                entry.last_timestamp,
                entry.transaction_first_offset,
            )
        if (
            recovered_producer is None
            and expected is not None
            and expected[5] is None
            and expected[4] <= expired_before
        ):
            continue
        if recovered_producer != expected:
            yield f"producer {producer_id}", recovered_producer, expected
    entries = sorted(tuple(entry[:3]) for segment in log.segments for entry in segment.aborted)
    if entries != sorted(aborted):
        yield "aborted transactions", entries, sorted(aborted)


def replay(batches: list[Batch]) -> tuple[dict[int, Producer], list[Aborted]]:
    """Producers and aborted transactions after all batches. Independent of ``core.producers`` on purpose."""
    producers: dict[int, Producer] = {}
    aborted: list[Aborted] = []
    for header, marker, _ in batches:
        if header.producer_id < 0:
            continue
        old = producers.get(header.producer_id, (-1, -1, -1, -1, -1, None))
        first = old[5]
        if marker is not None:
            if first is not None and not marker.committed:
                aborted.append((header.producer_id, first, header.base_offset))
            same = header.producer_epoch == old[0]
            sequence, offset = (old[2], old[3]) if same else (-1, -1)
            coordinator_epoch = max(old[1], marker.coordinator_epoch)
            producers[header.producer_id] = (
                header.producer_epoch,
                coordinator_epoch,
                sequence,
                offset,
                marker.timestamp,
                None,
            )
        elif not header.is_control:
            if header.is_transactional and first is None:
                first = header.base_offset
            producers[header.producer_id] = (
                header.producer_epoch,
                old[1],
                header.last_sequence,
                header.last_offset,
                header.max_timestamp,
                first,
            )
    return producers, aborted


def _leader_epochs(batches: list[Batch]) -> list[tuple[int, int]] | None:
    # Leader epochs with their first offsets, or None if they fall (D5) and so prove nothing.
    epochs: list[tuple[int, int]] = []
    for batch in batches:
        epoch = batch.header.partition_leader_epoch
        if epochs and epoch < epochs[-1][0]:
            return None
        if epoch >= 0 and (not epochs or epoch > epochs[-1][0]):
            epochs.append((epoch, batch.header.base_offset))
    return epochs


def _reads(log: PartitionLog, scanned: ScannedLog) -> Iterator[Finding]:
    log.set_high_watermark(log.log_end_offset)
    step = max(1, len(scanned.batches) // _READS)
    for batch in scanned.batches[::step]:
        expected = batch.header
        for offset in (expected.base_offset, expected.last_offset):
            result = read_batches(log, offset, max_bytes=1, isolation_read_committed=False, minimum_one=True)
            header = None
            if result.chunks:
                file, position, _ = result.chunks[0]
                header = read_header(file.read(position, HEADER_SIZE))
            if header != expected:
                yield READ, f"{log.partition}@{offset}: {header}, the segments have {expected}"
