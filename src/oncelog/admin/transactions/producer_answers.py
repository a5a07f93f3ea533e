"""Answers of partition leaders with their producers (DescribeProducers), of which most have none.

A look at a cluster asks about every partition, and few of them have a transaction open. The rule: a partition without
producers and without an error costs some steps of a loop, and no object; everything else is read by the generated
message's own reader, and so is an answer with anything unusual in it. Whatever the bytes are, the result is what
decoding all of them gives, or PeerError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.base.errors import PeerError
from oncelog.wire.chunks import Buffer
from oncelog.wire.message import RESPONSE_MAX_ELEMENTS
from oncelog.wire.messages.describe_producers import PartitionResponse, ProducerState
from oncelog.wire.reader import CompactReader

_VERSION: Final = 0
_LEAST_TOPIC_BYTES: Final = 3
_LEAST_PARTITION_BYTES: Final = 9
_IDLE: Final = b"\0\0\0\1\0"
"""A partition behind its index: no error, no message of one, no producers, no tags."""
_IDLE_BYTES: Final = 4 + len(_IDLE)
_ONE_BYTE: Final = 0x80
"""Lengths below it are a single byte."""


class Answered(NamedTuple):
    """A partition that has producers, or was refused."""

    topic: str
    partition: int
    error_code: int
    producers: list[ProducerState]


def busy_partitions(body: Buffer) -> Iterator[Answered]:
    """The partitions of an answer that have producers, or an error. Raises PeerError."""
    reader = CompactReader(body, RESPONSE_MAX_ELEMENTS)
    reader.int32()  # The throttle time.
    topics = reader.array_count(_LEAST_TOPIC_BYTES)
    try:
        yield from _busy_partitions(reader, topics)
    except IndexError:
        raise PeerError("the message ends within a topic") from None
    reader.skip_tags()
    reader.finish()


def _busy_partitions(reader: CompactReader, topics: int) -> Iterator[Answered]:
    """The busy partitions of ``topics`` topics; the reader is behind them in the end. Raises IndexError, too."""
    whole, at = bytes(reader.view), reader.position
    for _ in range(topics):
        begin, name = at, ""
        if 0 < (length := whole[at]) < _ONE_BYTE:
            at += length
        else:
            reader.position = at
            name = reader.string()
            at = reader.position
        if 0 < (count := whole[at]) < _ONE_BYTE:
            count, at = count - 1, at + 1
        else:
            reader.position = at
            count = reader.array_count(_LEAST_PARTITION_BYTES)
            at = reader.position
        for _ in range(count):
            if whole[at + 4 : at + _IDLE_BYTES] == _IDLE:
                at += _IDLE_BYTES
                continue
            reader.position = at
            one = PartitionResponse.read(reader, _VERSION)
            at = reader.position
            if one.error_code or one.active_producers:
                name = name or str(whole[begin + 1 : begin + length], "utf-8", "replace")
                yield Answered(name, one.partition_index, one.error_code, one.active_producers)
        if whole[at]:
            reader.position = at
            reader.skip_tags()
            at = reader.position
        else:
            at += 1
    reader.position = at
