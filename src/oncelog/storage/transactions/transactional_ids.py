"""The file ``transactional-ids`` of a partition: the owners of its open transactions
(docs/internals/hanging-transactions.md).

Layout: magic, then entries, each with its id in UTF-8 at the end. Nothing is read after damage; a lost file costs
names, not data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog.ports import Files
from oncelog.records.checksum import crc32c
from oncelog.storage.checkpoints import read_file
from oncelog.storage.errors import UnknownVersion

FILE_NAME: Final = "transactional-ids"
VERSION: Final = 1
MAGIC: Final = b"OTI%d" % VERSION
# CRC-32C of the rest, size of the id, producer id, epoch, start offset, start time here (milliseconds, the broker's
# clock).
_ENTRY: Final = struct.Struct(">IHqhqq")
_CRC_FROM: Final = 4
MAX_ID_BYTES: Final = 2**15 - 1
"""Longest id that is kept, as in the coordinators' log; a request to a leader that does not verify may have more."""


class KnownTransaction(NamedTuple):
    producer_id: int
    epoch: int
    start_offset: int
    started_ms: int
    transactional_id: str


def encode(entries: Iterable[KnownTransaction]) -> bytes:
    """An id that no coordinator would accept is left out."""
    data = bytearray()
    for producer_id, epoch, start_offset, started_ms, transactional_id in entries:
        name = transactional_id.encode("utf-8", "surrogatepass")
        if len(name) > MAX_ID_BYTES:
            continue
        entry = _ENTRY.pack(0, len(name), producer_id, epoch, start_offset, started_ms)[_CRC_FROM:] + name
        data += crc32c(entry).to_bytes(4, "big") + entry
    return bytes(data)


def decode(data: bytes) -> list[KnownTransaction]:
    """The sound entries at the start of a file."""
    return decode_entries(data, len(MAGIC)) if data.startswith(MAGIC) else []


def decode_entries(data: bytes, position: int = 0) -> list[KnownTransaction]:
    """The entries from ``position`` on, up to the first unsound one."""
    entries: list[KnownTransaction] = []
    while position + _ENTRY.size <= len(data):
        crc, size, producer_id, epoch, start_offset, started_ms = _ENTRY.unpack_from(data, position)
        end = position + _ENTRY.size + size
        if end > len(data) or crc32c(data[position + _CRC_FROM : end]) != crc:
            break
        try:
            name = data[position + _ENTRY.size : end].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            break
        entries.append(KnownTransaction(producer_id, epoch, start_offset, started_ms, name))
        position = end
    return entries


def check_version(files: Files, directory: str) -> None:
    """Raises UnknownVersion."""
    magic = (read_file(files, f"{directory}/{FILE_NAME}") or b"")[: len(MAGIC)]
    version = magic[-1:]
    if magic[:-1] == MAGIC[:-1] and version.isdigit() and magic != MAGIC:
        without_it = "open transactions then lose the names of their owners"
        raise UnknownVersion(f"{directory}/{FILE_NAME}", version.decode(), VERSION, without_it)


def read(files: Files, directory: str) -> list[KnownTransaction]:
    return decode(read_file(files, f"{directory}/{FILE_NAME}") or b"")


def write(files: Files, directory: str, entries: Iterable[KnownTransaction], *, rewrites: bool) -> None:
    """Append entries, or with ``rewrites`` replace the file's content by them. Raises OSError."""
    file = files.open(f"{directory}/{FILE_NAME}", create=True)
    try:
        if rewrites:
            file.truncate(0)
        file.append(((MAGIC if rewrites else b"") + encode(entries),))
    finally:
        file.close()
