"""Message sets as old clients may send them: read, made batches, and made message sets again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, TypeVar
from zlib import crc32

from oncelog.base.invariant import invariant
from oncelog.base.units import KIB, MIB
from oncelog.legacy.message_set.conversion import down_converted, up_converted, wrap
from oncelog.legacy.message_set.entry import LOG_OVERHEAD, Entry, Limits, shallow
from oncelog.legacy.message_set.reading import deep
from oncelog.records.batch import read_header
from oncelog.records.compression import Codec
from oncelog.records.errors import CorruptBatch, TruncatedBatch
from oncelog.records.record import read_records
from tests.conformance.old_clients.sets import messages, unsound_sets
from tests.message_sets import write
from tests.programs import result_of

DECOMPRESSED_MAX: Final = 256 * KIB
R = TypeVar("R")


def seeds() -> list[bytes]:
    """Sets of every format and codec, those that are unsound, wrappers in wrappers, and bombs."""
    result = [write(messages(magic), magic, codec) for magic in (0, 1) for codec in list(Codec)[:4]]
    bomb = write(messages(1, [(None, bytes(4 * MIB))]), 1)
    result += [wrap(bomb, 0, magic, codec) for magic in (0, 1) for codec in (Codec.GZIP, Codec.LZ4)]
    return [item for item in [*result, *unsound_sets().values()] if len(item) < 16 * KIB]


def read(data: bytes) -> None:
    """Whatever is read can be converted, and gives the same messages both ways."""
    with contextlib.suppress(CorruptBatch):
        _read(data)
    _read(_sound(bytearray(data)))


def _read(data: bytes) -> None:
    for _ in _until_cut(deep(data, Limits(DECOMPRESSED_MAX, 3))):
        pass
    batch = result_of(up_converted(data, _until_cut(shallow(data)), DECOMPRESSED_MAX))
    if batch is None:
        return
    header = read_header(batch)
    records = list(read_records(batch, 0, header, DECOMPRESSED_MAX))
    again = result_of(
        down_converted(
            batch, 0, header, magic=1, first_offset=0, room=64 * DECOMPRESSED_MAX, max_bytes=DECOMPRESSED_MAX
        )
    )
    result = [
        (record.key, record.value, record.timestamp) for record in deep(again.data, Limits(64 * DECOMPRESSED_MAX))
    ]
    invariant(
        result == [(record.key, record.value, record.timestamp) for record in records], "other messages come back"
    )


def _until_cut(items: Iterator[R]) -> Iterator[R]:
    try:
        yield from items
    except TruncatedBatch:
        return


def _sound(data: bytearray) -> bytes:
    """Checksums made right, so that what is behind them is reached."""
    entries: list[Entry] = []
    with contextlib.suppress(CorruptBatch):
        entries.extend(shallow(bytes(data)))
    for entry in entries:
        start = entry.position + LOG_OVERHEAD
        data[start : start + 4] = crc32(data[start + 4 : entry.end]).to_bytes(4, "big")
    return bytes(data)
