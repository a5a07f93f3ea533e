"""The segments below some directories, the ends of their logs, and the files of the broker beside them.

A directory may be one broker's data directory, a partition's, or hold several brokers' directories (at most three
levels down). Partitions found twice are replicas: the one whose log reaches furthest is the primary, whose history
counts; of the others only the files themselves are checked. Neither names nor sizes of files say which one that is:
replicas roll at different offsets, and one that has just rolled has an empty last segment. Directories waiting for
deletion, moving, or that were found stray are passed over.

The number of partitions of ``__transaction_state`` stands in a KRaft cluster's ``__cluster_metadata``, or in oncelog's
coordination tree; without it a missing coordinator's log cannot be told from one that never was. A clean shutdown says
that the files are of one instant. The rule for these files: each may be missing, damaged or hostile; then the answer is
None. Reads are bounded, nothing is written (a database is opened as a file that does not change).
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
    """No segment below the directories named."""


def plan(directories: Iterable[str | Path]) -> Plan:
    """Look through the directories. Raises OSError for one that is not there, NothingToAudit if there is no log."""
    unreadable: list[tuple[str, str]] = []
    roots = [Path(directory).absolute() for directory in directories]
    found: list[Path] = []
    for root in roots:
        os.listdir(root)  # raises for a directory that is not there
        found += _log_directories(root, unreadable)
    logs = sorted(set(found))
    tasks: list[SegmentTask] = []
    starts: dict[tuple[TopicPartition, int], int] = {}
    places: dict[TopicPartition, list[_Replica]] = {}
    parents: list[Path] = []
    for replica, log in enumerate(logs):
        only = partition_of_directory(log.name) if _has_segments(log) else None
        parent = log.parent if only is not None else log
        parents.append(parent)
        cleaned = _checkpoint(parent / CLEANER_OFFSETS)
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
        primary = replicas[0] if len(replicas) == 1 else max(replicas, key=_Replica.extent)
        partitions[partition] = PartitionPlace(
            primary.number,
            primary.directory,
            starts[partition, primary.number],
            primary.segments[0].cleaned,
            _topic_id(Path(primary.directory) / PARTITION_METADATA),
        )
    return Plan(
        tuple(map(str, logs)),
        tuple(tasks),
        partitions,
        tuple(unreadable),
        stopped=all(map(was_stopped, parents)),
        transaction_partitions=max((coordinators_declared(one) or 0 for one in set(parents)), default=0) or None,
    )


@dataclass(frozen=True, slots=True)
class _Replica:
    number: int
    directory: str
    segments: list[SegmentTask]

    def extent(self) -> tuple[int, int]:
        """The key by which replicas are compared; of equal ones the first directory is greatest."""
        ends = (log_end(one.path, one.base_offset) for one in reversed(self.segments) if one.size_bytes)
        return max(next(ends, 0), self.segments[-1].base_offset), -self.number


def _log_directories(root: Path, unreadable: list[tuple[str, str]], depth: int = 0) -> Iterator[Path]:
    """``root`` if it is a partition or has some in it, else the log directories below."""
    entries = _directories(root, unreadable)
    if (root / META_PROPERTIES).exists() or _has_segments(root):
        yield root
        return
    if any(partition_of_directory(one.name) is not None and _has_segments(one) for one in entries):
        yield root
        return
    if depth < _MAX_DEPTH:
        for one in entries:
            yield from _log_directories(one, unreadable, depth + 1)


def _directories(root: Path, unreadable: list[tuple[str, str]]) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            return sorted(Path(one.path) for one in entries if one.is_dir(follow_symlinks=True))
    except OSError as error:
        unreadable.append((str(root), error.strerror or str(error)))
        return []


def _has_segments(directory: Path) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(one.name.endswith(LOG) and parse_segment_file(one.name) is not None for one in entries)
    except OSError:
        return False


def _partitions(log: Path, unreadable: list[tuple[str, str]]) -> Iterator[tuple[TopicPartition, Path]]:
    for directory in _directories(log, unreadable):
        partition = partition_of_directory(directory.name)
        if partition is not None and str(partition) == directory.name:
            yield partition, directory


def _segments(
    partition: TopicPartition, replica: int, directory: Path, cleaned: bool, unreadable: list[tuple[str, str]]
) -> list[SegmentTask]:
    try:
        with os.scandir(directory) as entries:
            sizes = {one.name: one.stat().st_size for one in entries if one.is_file()}
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
            swapped.add(parsed[0])
    bases = sorted(by_extension.get(LOG, ()))
    snapshots = sorted(by_extension.get(SNAPSHOT, ()))
    tasks = []
    for index, base in enumerate(bases):
        following = bases[index + 1] if index + 1 < len(bases) else -1
        path = str(directory / f"{base:020d}{LOG}")
        beside = tuple(
            one for one in (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX) if base in by_extension.get(one, ())
        )
        here = tuple(one for one in snapshots if base <= one and (following < 0 or one < following))
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


def _checkpoint(path: Path) -> dict[TopicPartition, int]:
    """An offset checkpoint as far as it can be read; it can only excuse missing records."""
    try:
        if path.stat().st_size > _MAX_CHECKPOINT_BYTES:
            return {}
        lines = path.read_text("utf-8", "replace").splitlines()[2:]
    except OSError:
        return {}
    offsets = {}
    for words in map(str.split, lines):
        if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal() and max(map(len, words[1:])) < 20:
            offsets[TopicPartition(words[0], int(words[1]))] = int(words[2])  # type: ignore[arg-type]  # a plain name
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
    """The offset after the last whole batch of a segment file; ``base_offset`` if there is none, or the file cannot be
    read."""
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
    """A position in a segment file at or before the batch with ``offset``, by the index, else 0."""
    index = path.removesuffix(LOG) + OFFSET_INDEX
    try:
        if os.path.getsize(index) > _MAX_INDEX_BYTES:
            return 0
        with open(index, "rb") as file:
            return load_offset_index(file.read(), base_offset, size).entry_before(offset)[1]
    except (OSError, CorruptFile):
        return 0


def was_stopped(directory: Path) -> bool:
    """True if the broker closed this data directory itself, in a clean shutdown."""
    return (directory / CLEAN_SHUTDOWN).exists()


def coordinators_declared(directory: Path) -> int | None:
    """Number of partitions of ``__transaction_state`` by a broker's data directory; None if it does not say."""
    return _by_tree(directory / _TREE) or _by_kraft(directory / _KRAFT_LOG)


def _by_tree(path: Path) -> int | None:
    if not path.exists():
        return None
    try:
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
    """Topic and partition records (KIP-631); a snapshot has what the log no longer has."""
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
        names = sorted(one for one in os.listdir(directory) if one.endswith((".checkpoint", ".log")))
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
    at = 0
    try:
        while at < len(data):
            header = read_header(data, at)
            if not header.is_control:
                yield from read_records(data, at, header, _MAX_RECORDS_BYTES)
            at += header.size_bytes
    except CorruptBatch:
        return  # what stands before it counts
