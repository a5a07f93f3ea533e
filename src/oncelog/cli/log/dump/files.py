"""Rows of each kind of file in a partition's directory, and of those beside the partitions.

Rows are plain dicts with a ``type``. Layouts are Apache Kafka's (KIP-98, KIP-101, KIP-516); an index of an active
segment ends in zeros, which are counted, not shown.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from oncelog.base.notation.java_properties import decode_properties, parse_properties
from oncelog.records.checksum import crc32c

Row = dict[str, Any]
Reader = Callable[[Path], Iterator[Row]]

_INDEX: Final = struct.Struct(">ii")
_TIME: Final = struct.Struct(">qi")
_ABORTED: Final = struct.Struct(">hqqqq")
_SNAPSHOT_HEADER: Final = struct.Struct(">hIi")
_PRODUCER: Final = struct.Struct(">qhiqiqiq")
_SNAPSHOT_CRC_FROM: Final = 6


class Header(NamedTuple):
    """A header of a record. Names may repeat, and their order counts."""

    key: str
    value: bytes | None

    def __repr__(self) -> str:
        return f"{self.key!r}: {'null' if self.value is None else bytes_text(self.value)}"


def bytes_text(value: bytes) -> str:
    """A key or a value on a line of text: quoted where it is ASCII, else hexadecimal."""
    return ascii(value.decode()) if value.isascii() else f"0x{value.hex()}"


def error(text: str) -> Row:
    return {"type": "error", "error": text}


def base_offset_of(path: Path) -> int | None:
    """The offset in the file name of a segment."""
    stem = path.name.partition(".")[0]
    return int(stem) if len(stem) == 20 and stem.isdigit() else None


def offset_index(path: Path) -> Iterator[Row]:
    """Offset and position in the segment, for about every 4 KiB of it."""
    base = base_offset_of(path) or 0
    for number, (relative, position) in enumerate(_entries(path, _INDEX)):
        if not relative and not position:
            yield {"type": "preallocated", "entries": path.stat().st_size // _INDEX.size - number}
            return
        yield {"type": "offset_index", "offset": base + relative, "position": position}
    yield from _odd_size(path, _INDEX)


def time_index(path: Path) -> Iterator[Row]:
    """The largest timestamp so far, and its offset."""
    base = base_offset_of(path) or 0
    for number, (timestamp, relative) in enumerate(_entries(path, _TIME)):
        if not timestamp and not relative:
            yield {"type": "preallocated", "entries": path.stat().st_size // _TIME.size - number}
            return
        yield {"type": "time_index", "timestamp": timestamp, "offset": base + relative}
    yield from _odd_size(path, _TIME)


def transaction_index(path: Path) -> Iterator[Row]:
    """Aborted transactions whose marker lies in the segment."""
    for version, producer_id, first, last, stable in _entries(path, _ABORTED):
        yield {
            "type": "aborted_transaction",
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }
    yield from _odd_size(path, _ABORTED)


def producer_snapshot(path: Path) -> Iterator[Row]:
    """The producers at an offset."""
    data = path.read_bytes()
    if len(data) < _SNAPSHOT_HEADER.size:
        yield error(f"{len(data)} bytes are no producer snapshot")
        return
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    yield {"type": "producer_snapshot", "offset": base_offset_of(path), "version": version, "producers": count}
    if crc != crc32c(data[_SNAPSHOT_CRC_FROM:]):
        yield error("the checksum is wrong")
    body = data[_SNAPSHOT_HEADER.size :]
    if version != 1 or count * _PRODUCER.size != len(body):
        yield error(f"version {version} with {count} producers in {len(body)} bytes")
        return
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first in _PRODUCER.iter_unpack(body):
        yield {
            "type": "producer",
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "last_sequence": sequence,
            "last_offset": offset,
            "offset_delta": delta,
            "timestamp": timestamp,
            "coordinator_epoch": coordinator_epoch,
            "transaction_first_offset": None if first < 0 else first,
        }


def leader_epochs(path: Path) -> Iterator[Row]:
    """The start offset of each leader epoch."""
    for epoch, start in _checkpoint(path, 2):
        yield {"type": "leader_epoch", "leader_epoch": int(epoch), "start_offset": int(start)}


def offset_checkpoint(path: Path) -> Iterator[Row]:
    """An offset for each partition of a data directory."""
    for topic, partition, offset in _checkpoint(path, 3):
        yield {"type": "checkpoint", "topic": topic, "partition": int(partition), "offset": int(offset)}


def properties(path: Path) -> Iterator[Row]:
    """Keys and values; a topic's id is written as ``key: value``, which Java's format reads, too."""
    yield {"type": "properties", **parse_properties(decode_properties(path.read_bytes()))}


def reader_of(path: Path) -> Reader | None:
    """The reader of a file, by its name; None for segments and for files that are not of a log."""
    return BY_NAME.get(path.name) or (BY_SUFFIX.get(path.suffix) if base_offset_of(path) is not None else None)


BY_SUFFIX: Final[dict[str, Reader]] = {
    ".index": offset_index,
    ".timeindex": time_index,
    ".txnindex": transaction_index,
    ".snapshot": producer_snapshot,
}
BY_NAME: Final[dict[str, Reader]] = {
    "leader-epoch-checkpoint": leader_epochs,
    "partition.metadata": properties,
    "meta.properties": properties,
    "recovery-point-offset-checkpoint": offset_checkpoint,
    "replication-offset-checkpoint": offset_checkpoint,
    "log-start-offset-checkpoint": offset_checkpoint,
    "cleaner-offset-checkpoint": offset_checkpoint,
}


def _entries(path: Path, layout: struct.Struct) -> Iterator[tuple[Any, ...]]:
    """Fixed-size entries, read in pieces."""
    with path.open("rb") as file:
        while piece := file.read(layout.size * 4096):
            yield from layout.iter_unpack(piece[: len(piece) // layout.size * layout.size])


def _odd_size(path: Path, layout: struct.Struct) -> Iterator[Row]:
    rest = path.stat().st_size % layout.size
    if rest:
        yield error(f"{rest} bytes after the last whole entry")


def _checkpoint(path: Path, width: int) -> Iterator[list[str]]:
    """Rows of a checkpoint file: a version, a count, then the rows. Raises ValueError with the reason."""
    lines = path.read_text(errors="replace").splitlines()
    if len(lines) < 2 or not lines[1].strip().isdigit():
        raise ValueError("it does not begin with a version and a count")
    if lines[0].strip() != "0":
        raise ValueError(f"version {lines[0].strip()}")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]):
        raise ValueError(f"{len(rows)} rows, and {lines[1].strip()} announced")
    for row in rows:
        if len(row) != width:
            raise ValueError(f"a row of {len(row)} columns")
        yield row


class Wanted(NamedTuple):
    """The part of a segment to show; offsets select whole batches."""

    records: bool = False
    values: bool = True
    decode_internal: bool = True
    from_offset: int = 0
    to_offset: int | None = None
    check: bool = True
