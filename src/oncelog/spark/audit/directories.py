"""Finds the segments below a set of directories, the end of each log, and the broker's files beside them.

A directory may be a broker's, a partition's, or a parent of several brokers' (at most three levels up). Of a partition
found twice, the replica whose log reaches furthest is the primary, whose history counts. Any file may be missing,
damaged or hostile; the result is then None. Reads are bounded and nothing is written.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from oncelog.base.ids import (
    INTERNAL_TOPICS,
    NO_TOPIC_ID,
    TRANSACTION_STATE,
    TopicPartition,
    partition_of_directory,
    uuid_bytes,
)
from oncelog.records.batch import CorruptBatch, read_header
from oncelog.records.record import Record, read_records
from oncelog.spark.audit.audit_plan import PartitionPlace, Plan, SegmentTask
from oncelog.spark.audit.segments.batch_headers import PIECE_BYTES, walk
from oncelog.storage.errors import CorruptFile
from oncelog.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LEADER_EPOCHS,
    LOG,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_segment_file,
)
from oncelog.storage.index.offset_index import load_offset_index

# A parent of several brokers' directories may be this many levels above them.
_MAX_DEPTH: Final = 3
_MAX_CHECKPOINT_BYTES: Final = 64 << 20
_MAX_INDEX_BYTES: Final = 64 << 20
_FIRST_AND_DELTA: Final = slice(0, 27)
_KRAFT_LOG: Final = "__cluster_metadata-0"
_TREE: Final = "coordination.db"
_TREE_TOPIC: Final = f"/brokers/topics/{TRANSACTION_STATE}"
_MAX_FILE_BYTES: Final = 256 << 20
_MAX_RECORDS_BYTES: Final = 64 << 20
_TOPIC_RECORD: Final = 2
_PARTITION_RECORD: Final = 3


class NothingToAudit(Exception):
    """No log segment exists below the given directories."""


def plan(directories: Iterable[str | Path]) -> Plan:
    """List all segments. Raises OSError for a missing directory, NothingToAudit if there are no segments."""
    unreadable: list[tuple[str, str]] = []
    roots = [Path(directory).absolute() for directory in directories]
    log_directories: list[Path] = []
    for root in roots:
        os.listdir(root)  # raises for a directory that is not there
        log_directories += _log_directories(root, unreadable)
    logs = sorted(set(log_directories))
    tasks: list[SegmentTask] = []
    starts: dict[tuple[TopicPartition, int], int] = {}
    places: dict[TopicPartition, list[_Replica]] = {}
    alone = [partition_of_directory(log.name) if _has_segments(log) else None for log in logs]
    parents = [log if only is None else log.parent for log, only in zip(logs, alone, strict=True)]
    # A replica that was copied from another has its gaps, and cleans only later itself.
    cleaned = {partition for parent in set(parents) for partition in _checkpoint(parent / CLEANER_OFFSETS)}
    for replica, (log, parent, only) in enumerate(zip(logs, parents, alone, strict=True)):
        log_starts = _checkpoint(parent / LOG_START_OFFSETS)
        for partition, directory in [(only, log)] if only is not None else _partitions(log, unreadable):
            segments = _segments(partition, replica, directory, partition in cleaned, unreadable)
            if not segments:
                continue
            tasks += segments
            starts[partition, replica] = max(segments[0].base_offset, log_starts.get(partition, 0))
            places.setdefault(partition, []).append(_Replica(replica, str(directory), segments))
    if not tasks:
        raise NothingToAudit(f"no log segments in {', '.join(map(str, roots))}")
    partitions = {}
    for partition, replicas in sorted(places.items()):
        # Names and sizes do not show which log reaches furthest: replicas roll at different offsets, and the last
        # segment of a replica that has just rolled is empty.
        primary = replicas[0] if len(replicas) == 1 else max(replicas, key=_Replica.extent)
        partitions[partition] = PartitionPlace(
            primary.number,
            primary.directory,
            starts[partition, primary.number],
            primary.segments[0].cleaned,
            _topic_id(Path(primary.directory) / PARTITION_METADATA),
            tuple(_leader_epochs(Path(primary.directory) / LEADER_EPOCHS)),
        )
    return Plan(
        tuple(map(str, logs)),
        tuple(tasks),
        partitions,
        tuple(unreadable),
        # A clean shutdown proves that the files are from one instant.
        stopped=all(map(was_shut_down_cleanly, parents)),
        # Without this number, a coordinator's log that is missing looks the same as one that never existed.
        transaction_partitions=max((declared_coordinators(parent) or 0 for parent in set(parents)), default=0) or None,
    )


@dataclass(frozen=True, slots=True)
class _Replica:
    number: int
    directory: str
    segments: list[SegmentTask]

    def extent(self) -> tuple[int, int]:
        """The key that orders replicas; of equal ones, the first directory is the greatest."""
        ends = (log_end(segment.path, segment.base_offset) for segment in reversed(self.segments) if segment.size_bytes)
        return max(next(ends, 0), self.segments[-1].base_offset), -self.number


def _log_directories(root: Path, unreadable: list[tuple[str, str]], depth: int = 0) -> Iterator[Path]:
    """Yield ``root`` if it is a partition or contains partitions, else the log directories below it."""
    entries = _directories(root, unreadable)
    if (root / META_PROPERTIES).exists() or _has_segments(root):
        yield root
        return
    if any(partition_of_directory(entry.name) is not None and _has_segments(entry) for entry in entries):
        yield root
        return
    if depth < _MAX_DEPTH:
        for entry in entries:
            yield from _log_directories(entry, unreadable, depth + 1)


def _directories(root: Path, unreadable: list[tuple[str, str]]) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=True))
    except OSError as error:
        unreadable.append((str(root), error.strerror or str(error)))
        return []


def _has_segments(directory: Path) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(entry.name.endswith(LOG) and parse_segment_file(entry.name) is not None for entry in entries)
    except OSError:
        return False


def _partitions(log: Path, unreadable: list[tuple[str, str]]) -> Iterator[tuple[TopicPartition, Path]]:
    for directory in _directories(log, unreadable):
        partition = partition_of_directory(directory.name)
        # A directory that awaits deletion or is being moved has a suffix after the partition's name.
        if partition is not None and str(partition) == directory.name:
            yield partition, directory


def _segments(
    partition: TopicPartition, replica: int, directory: Path, cleaned: bool, unreadable: list[tuple[str, str]]
) -> list[SegmentTask]:
    try:
        with os.scandir(directory) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    except OSError as error:
        unreadable.append((str(directory), error.strerror or str(error)))
        return []
    by_extension: dict[str, set[int]] = {}
    swapped: set[int] = set()
    for name in sizes:
        parsed = parse_segment_file(name)
        if parsed is not None and not parsed[2]:
            by_extension.setdefault(parsed[1], set()).add(parsed[0])
        elif parsed is not None and parsed[1] == LOG and parsed[2] == SWAP:
            # A broker that died while it compacted leaves an unfinished swap, so records may be missing.
            swapped.add(parsed[0])
    bases = sorted(by_extension.get(LOG, ()))
    snapshots = sorted(by_extension.get(SNAPSHOT, ()))
    tasks = []
    for index, base in enumerate(bases):
        following = bases[index + 1] if index + 1 < len(bases) else -1
        path = str(directory / f"{base:020d}{LOG}")
        beside = tuple(
            extension
            for extension in (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
            if base in by_extension.get(extension, ())
        )
        here = tuple(snapshot for snapshot in snapshots if base <= snapshot and (following < 0 or snapshot < following))
        tasks.append(
            SegmentTask(
                str(partition.topic),
                partition.partition,
                replica,
                base,
                path,
                sizes[os.path.basename(path)],
                following,
                beside,
                here,
                cleaned or bool(swapped) or partition.topic in INTERNAL_TOPICS,
            )
        )
    return tasks


def _rows(path: Path) -> Iterator[list[str]]:
    # The rows of a checkpoint, after its version and its number of rows, as far as it is readable.
    try:
        if path.stat().st_size > _MAX_CHECKPOINT_BYTES:
            return
        lines = path.read_text("utf-8", "replace").splitlines()[2:]
    except OSError:
        return
    yield from map(str.split, lines)


def _leader_epochs(path: Path) -> Iterator[tuple[int, int]]:
    for fields in _rows(path):
        if len(fields) == 2 and all(field.isdecimal() and len(field) < 20 for field in fields):
            yield int(fields[0]), int(fields[1])


def _checkpoint(path: Path) -> dict[TopicPartition, int]:
    # A wrong one can only excuse missing records.
    offsets = {}
    for fields in _rows(path):
        if len(fields) == 3 and fields[1].isdecimal() and fields[2].isdecimal() and max(map(len, fields[1:])) < 20:
            offsets[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])  # type: ignore[arg-type]  # a plain name
    return offsets


def _topic_id(path: Path) -> bytes:
    try:
        for line in path.read_text("utf-8", "replace")[:1000].splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "topic_id":
                return uuid_bytes(value.strip())
    except (OSError, ValueError):
        pass
    return NO_TOPIC_ID


def log_end(path: str, base_offset: int) -> int:
    """The offset after the segment's last whole batch; ``base_offset`` if it has none or cannot be read."""
    end = base_offset
    try:
        with open(path, "rb", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            position = position_before(path, base_offset, 1 << 62, size)
            while position < size:
                data = os.pread(file.fileno(), PIECE_BYTES, position)
                places, after, _ = walk(data, position, size)
                if not places:
                    break
                header = data[places[-1] :][_FIRST_AND_DELTA]
                end = int.from_bytes(header[:8], "big") + int.from_bytes(header[23:27], "big") + 1
                position += after
    except OSError:
        pass
    return max(end, base_offset)


def position_before(path: str, base_offset: int, offset: int, size: int) -> int:
    """A file position at or before the batch that contains ``offset``: from the index, else 0."""
    index = path.removesuffix(LOG) + OFFSET_INDEX
    try:
        if os.path.getsize(index) > _MAX_INDEX_BYTES:
            return 0
        with open(index, "rb") as file:
            return load_offset_index(file.read(), base_offset, size).entry_before(offset)[1]
    except (OSError, CorruptFile):
        return 0


def was_shut_down_cleanly(directory: Path) -> bool:
    return (directory / CLEAN_SHUTDOWN).exists()


def declared_coordinators(directory: Path) -> int | None:
    """Number of partitions of ``__transaction_state`` by a broker's data directory (KRaft's ``__cluster_metadata`` or
    oncelog's coordination tree), or None."""
    return _by_tree(directory / _TREE) or _by_kraft(directory / _KRAFT_LOG)


def _by_tree(path: Path) -> int | None:
    if not path.exists():
        return None
    try:
        # An immutable database is opened without locks and journals, so nothing is written beside it.
        tree = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
        try:
            row = tree.execute("SELECT value FROM node WHERE path = ?", (_TREE_TOPIC,)).fetchone()
        finally:
            tree.close()
        partitions = json.loads(row[0])["partitions"] if row is not None else None
    except (sqlite3.Error, ValueError, KeyError, TypeError, RecursionError):
        return None
    return len(partitions) if isinstance(partitions, dict) else None


def _by_kraft(directory: Path) -> int | None:
    # Count partitions in topic and partition records (KIP-631); a snapshot has those that left the log.
    named: set[bytes] = set()
    partitions: dict[bytes, set[int]] = {}
    for record in _metadata_records(directory):
        value = record.value or b""
        if len(value) < 3 or value[0] != 1:  # frame version, record type, record version: each below 128
            continue
        body = value[3:]
        if value[1] == _TOPIC_RECORD:
            name = TRANSACTION_STATE.encode()
            if body[:1] == bytes((len(name) + 1,)) and body[1 : 1 + len(name)] == name:
                named.add(body[1 + len(name) : 17 + len(name)])
        elif value[1] == _PARTITION_RECORD and len(body) >= 20:
            partitions.setdefault(body[4:20], set()).add(int.from_bytes(body[:4], "big"))
    return max((len(partitions.get(topic_id, ())) for topic_id in named), default=0) or None


def _metadata_records(directory: Path) -> Iterator[Record]:
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith((".checkpoint", ".log")))
    except OSError:
        return
    for name in names:
        try:
            with open(directory / name, "rb") as file:
                data = memoryview(file.read(_MAX_FILE_BYTES))
        except OSError:
            continue
        yield from _records(data)


def _records(data: memoryview) -> Iterator[Record]:
    position = 0
    try:
        while position < len(data):
            header = read_header(data, position)
            if not header.is_control:
                yield from read_records(data, position, header, _MAX_RECORDS_BYTES)
            position += header.size_bytes
    except CorruptBatch:
        return  # the records before the damage count
