"""The oracle: a decoder that reads one byte after another, written from the format's description only."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from oncelog.records.compression import Codec, decompress

HEADER = struct.Struct(">qiibIhiqqqhii")


class Reader:
    """A position in bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                value &= (1 << 64) - 1
                return (value >> 1) ^ -(value & 1)

    def sized(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)


def naive_rows(records: bytes, aborted: Iterable[tuple[int, int]] = ()) -> list[dict[str, Any]]:
    """Every data record of whole batches, aborted ones left out, as dicts named like the columns."""
    rows: list[dict[str, Any]] = []
    coming = sorted(aborted, key=lambda entry: entry[1])
    open_producers: set[int] = set()
    position = 0
    while len(records) - position >= HEADER.size:
        base, length, _, _, _, attributes, last, base_time, max_time, producer, _, _, count = HEADER.unpack_from(
            records, position
        )
        end = position + 12 + length
        if end > len(records):
            break
        reader = Reader(decompress(Codec(attributes & 7), records[position + HEADER.size : end], 1 << 30))
        position = end
        while coming and coming[0][1] <= base + last:
            open_producers.add(coming.pop(0)[0])
        if attributes & 0x20:
            reader.varint(), reader.take(1), reader.varint(), reader.varint()
            if (reader.sized() or b"")[2:4] == b"\0\0":
                open_producers.discard(producer)
            continue
        if attributes & 0x10 and producer in open_producers:
            continue
        for _ in range(count):
            size = reader.varint()
            record = Reader(reader.take(size))
            record.take(1)
            time, offset = base_time + record.varint(), base + record.varint()
            key, value = record.sized(), record.sized()
            headers = [
                {"key": (record.sized() or b"").decode(), "value": record.sized()} for _ in range(record.varint())
            ]
            assert record.at == size
            appended = bool(attributes & 8)
            rows.append(
                {
                    "key": key,
                    "value": value,
                    "offset": offset,
                    "timestamp": max_time if appended else time,
                    "timestampType": int(appended),
                    "headers": headers or None,
                }
            )
    return rows
