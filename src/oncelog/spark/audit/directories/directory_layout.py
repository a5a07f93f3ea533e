"""The segments below some directories, and the files beside each.

A directory may be one broker's data directory, a partition's, or hold several brokers' directories (at most three
levels down). Partitions found twice are replicas: the one whose log reaches furthest (``_Replica.extent``) is the
primary, whose history counts; of the others only the files themselves are checked. Directories waiting for deletion,
moving, or that were found stray are passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oncelog.base.ids import INTERNAL_TOPICS, NO_TOPIC_ID, TopicPartition, partition_of_directory, uuid_bytes
from oncelog.spark.audit.audit_plan import PartitionPlace, Plan, SegmentTask
from oncelog.spark.audit.directories.broker_directory import coordinators_declared, was_stopped
from oncelog.spark.audit.directories.log_end import log_end
from oncelog.storage.file_names import (
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

_MAX_DEPTH: Final = 3
_MAX_CHECKPOINT_BYTES: Final = 64 << 20


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
