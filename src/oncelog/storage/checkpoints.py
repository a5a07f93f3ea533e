"""Small text files beside the logs, in Apache Kafka's formats, replaced atomically.

docs/internals/storage.md has the steps of a replacement. A damaged checkpoint counts as empty: each can be rebuilt, or
only saves work. Unknown versions are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicName, TopicPartition, uuid_bytes, uuid_text
from oncelog.base.units import INT32_MAX, INT64_MAX, MIB
from oncelog.ports import Files
from oncelog.storage.errors import UnknownVersion
from oncelog.storage.file_names import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    TEMPORARY,
)
from oncelog.storage.leader_epochs import EpochStart

VERSION: Final = 0  # of every checkpoint, and of ``partition.metadata``
# The effect of removing a file of an unknown version.
_WITHOUT: Final = {
    RECOVERY_POINTS: "every log is then checked from its beginning",
    HIGH_WATERMARKS: "the high watermarks then begin at 0 and rise again",
    LOG_START_OFFSETS: "records that DeleteRecords removed may then be readable again",
    CLEANER_OFFSETS: "compaction then begins again",
    LEADER_EPOCHS: "the leader epochs are then read from the segments",
    PARTITION_METADATA: "the log then counts as one without a topic id",
}
_MAX_BYTES: Final = 64 * MIB
MAX_DIGITS: Final = 19
"""Digits of the largest 64-bit number."""
_METADATA_ID: Final = re.compile(rf"version: ?{VERSION}\s+topic_id: ?([A-Za-z0-9_-]{{22}})\s*")
_METADATA_VERSION: Final = re.compile(r"version: ?([0-9]{1,9})\s")


def number(text: str, maximum: int = INT64_MAX) -> int | None:
    """A number from 0 to ``maximum``; None for any other text."""
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        # int() refuses to parse thousands of digits, and no field has room for them.
        return None
    value = int(text)
    return value if value <= maximum else None


class Sync(Enum):
    """The parts of a replaced file that are on disk when the replacement returns."""

    NOTHING = 0
    CONTENT = 1
    """After a power cut the file is the old or the new one, both whole; a sync of the directory decides for the new
    one."""
    ALL = 2


def replace_file(files: Files, path: str, data: bytes, sync: Sync = Sync.ALL) -> None:
    temporary = path + TEMPORARY
    file = files.open(temporary, create=True)
    file.truncate(0)
    file.append((data,))
    if sync is not Sync.NOTHING:
        file.sync()
    file.close()
    files.rename(temporary, path)
    if sync is Sync.ALL:
        files.sync_directory(path.rpartition("/")[0])


def read_file(files: Files, path: str) -> bytes | None:
    """None if missing or absurdly large."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        return file.read(0, size) if size <= _MAX_BYTES else None
    finally:
        file.close()


def _read_rows(files: Files, path: str) -> list[list[str]]:
    data = read_file(files, path)
    if data is None:
        return []
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2:
        return []
    _check_version(path, lines[0])
    if lines[0] != str(VERSION) or number(lines[1]) != len(lines) - 2:
        return []
    return [line.split() for line in lines[2:]]


def _check_version(path: str, text: str) -> None:
    # A text that is no version is damage.
    version = number(text, INT32_MAX)
    if version is not None and version != VERSION:
        raise UnknownVersion(path, version, VERSION, _WITHOUT[path.rpartition("/")[2]])


def _encode_rows(rows: Iterable[str]) -> bytes:
    body = list(rows)
    return "\n".join((str(VERSION), str(len(body)), *body, "")).encode()


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Empty if missing or damaged. Raises UnknownVersion."""
    offsets = {}
    for row in _read_rows(files, path):
        if len(row) != 3:
            return {}
        partition, offset = number(row[1], INT32_MAX), number(row[2])
        if partition is None or offset is None:
            return {}
        offsets[TopicPartition(TopicName(row[0]), partition)] = offset
    return offsets


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    rows = (f"{partition.topic} {partition.partition} {offset}" for partition, offset in sorted(offsets.items()))
    replace_file(files, path, _encode_rows(rows))


def read_leader_epochs(files: Files, directory: str) -> list[EpochStart]:
    """Empty if missing or damaged. Raises UnknownVersion."""
    entries: list[EpochStart] = []
    for row in _read_rows(files, f"{directory}/{LEADER_EPOCHS}"):
        if len(row) != 2:
            return []
        epoch, start_offset = number(row[0], INT32_MAX), number(row[1])
        if epoch is None or start_offset is None:
            return []
        entry = EpochStart(epoch, start_offset)
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset <= entries[-1].start_offset):
            return []
        entries.append(entry)
    return entries


def write_leader_epochs(files: Files, directory: str, entries: Iterable[EpochStart], sync: Sync) -> None:
    data = _encode_rows(f"{entry.epoch} {entry.start_offset}" for entry in entries)
    replace_file(files, f"{directory}/{LEADER_EPOCHS}", data, sync)


def read_topic_id(files: Files, directory: str) -> TopicId:
    """Zero if missing. Raises UnknownVersion."""
    path = f"{directory}/{PARTITION_METADATA}"
    text = (read_file(files, path) or b"").decode("utf-8", "replace")
    if version := _METADATA_VERSION.match(text):
        _check_version(path, version[1])
    match = _METADATA_ID.fullmatch(text)
    return NO_TOPIC_ID if match is None else TopicId(uuid_bytes(match[1]))


def write_topic_id(files: Files, directory: str, topic_id: TopicId, sync: Sync = Sync.ALL) -> None:
    data = f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}\n".encode()
    replace_file(files, f"{directory}/{PARTITION_METADATA}", data, sync)
