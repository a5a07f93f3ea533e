"""Arrays and tagged fields of the group records of ``__consumer_offsets``: strings, numbers, partitions by topic."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from oncelog.base.ids import TopicId
from oncelog.records.internal.primitives import Reader, Writer

LEAST_TOPIC_BYTES: Final = 18
"""A topic's id, an empty array and no tagged fields."""
FEW: Final = 31
"""Up to here a count, and the size of as many epochs, takes one byte."""
COUNT_AT: Final = 16
"""Position of the count behind the topic's id."""
_INT64: Final = struct.Struct(">q")
# A member may have 100,000 topics of few partitions each: a topic is read and written by one struct call.
_TARGETS: Final = [struct.Struct(f">16sB{count}iB") for count in range(FEW + 1)]
_NO_TAGGED_FIELDS: Final = 0


def encode_strings(version: int, strings: Iterable[str]) -> bytes:
    """A version and strings: the keys of groups."""
    writer = Writer()
    writer.int16(version)
    for text in strings:
        writer.string(text)
    return bytes(writer.output)


def decode_strings(count: int, data: bytes) -> list[str]:
    reader = Reader(data)
    return [reader.string() for _ in range(count)]


def write_partitions(writer: Writer, partitions: Mapping[TopicId, Collection[int]]) -> None:
    """Topics with their partitions."""
    writer.count(len(partitions))
    for topic, numbers in partitions.items():
        if (count := len(numbers)) <= FEW:
            writer.output += _TARGETS[count].pack(topic, count + 1, *numbers, _NO_TAGGED_FIELDS)
            continue
        writer.output += topic
        write_int32s(writer, numbers)
        writer.tagged_fields()


def read_partitions(reader: Reader) -> dict[TopicId, tuple[int, ...]]:
    partitions: dict[TopicId, tuple[int, ...]] = {}
    for _ in range(reader.count(LEAST_TOPIC_BYTES)):
        few = reader.ahead(_TARGETS, COUNT_AT)
        if few and few[-1] == _NO_TAGGED_FIELDS:
            reader.take(_TARGETS[few[1] - 1].size)
            partitions[few[0]] = few[2:-1]
            continue
        topic = TopicId(reader.take(16))
        partitions[topic] = read_int32s(reader)
        reader.tagged_fields()
    return partitions


def write_int32s(writer: Writer, numbers: Collection[int]) -> None:
    writer.count(len(numbers))
    writer.output += struct.pack(f">{len(numbers)}i", *numbers)


def read_int32s(reader: Reader) -> tuple[int, ...]:
    count = reader.count(4)
    return struct.unpack(f">{count}i", reader.take(4 * count))


def write_strings(writer: Writer, texts: Collection[str]) -> None:
    writer.count(len(texts))
    for text in texts:
        writer.string(text)


def read_strings(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.string() for _ in range(reader.count(1)))


def int64_tag(tag: int, value: int) -> dict[int, bytes]:
    """A tagged field; its default, 0, is left out."""
    return {tag: _INT64.pack(value)} if value else {}


def tagged_int64(reader: Reader, tag: int) -> int:
    data = reader.tagged_fields().get(tag)
    if data is None:
        return 0
    return int(Reader(data).int64())
