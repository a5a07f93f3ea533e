"""A broker's own files beside the logs of topics: what they say about the cluster and about the broker.

The number of partitions of ``__transaction_state`` stands in a KRaft cluster's ``__cluster_metadata``, or in oncelog's
coordination tree; without it a missing coordinator's log cannot be told from one that never was. A clean shutdown says
that the files are of one instant.

The rule: everything here may be missing, damaged or hostile; then the answer is None. Reads are bounded, nothing is
written (a database is opened as a file that does not change).
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from oncelog.base.ids import TRANSACTION_STATE
from oncelog.records.batch import CorruptBatch, read_header
from oncelog.records.record import Record, read_records
from oncelog.storage.file_names import CLEAN_SHUTDOWN

_KRAFT_LOG: Final = "__cluster_metadata-0"
_TREE: Final = "coordination.db"
_TREE_TOPIC: Final = f"/brokers/topics/{TRANSACTION_STATE}"
_MAX_FILE_BYTES: Final = 256 << 20
_MAX_RECORDS_BYTES: Final = 64 << 20
_TOPIC_RECORD: Final = 2
_PARTITION_RECORD: Final = 3


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
