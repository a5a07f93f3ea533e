"""Reader of the messages in message sets, including those in wrappers.

Offsets are those that a consumer of Apache Kafka sees. In a wrapper of format 0 the inner offsets are absolute, in
format 1 relative (KIP-31): the wrapper has the absolute offset of its last message. A wrapper at offset 0 has not been
in a log yet (some librdkafka versions): its inner offsets are used as they are. A wrapper's log append time applies to
all its messages of format 1 (KIP-32).

Every CRC, of wrappers and inner messages, is checked before a message is returned. ``Limits`` bounds decompression
before memory is allocated. Raises only CorruptBatch and its subclasses: InvalidSet for an "invalid record" of Apache
Kafka, the others for a "corrupt message".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from oncelog.legacy.message_set.entry import (
    DEFAULT_LIMITS,
    LOG_OVERHEAD,
    MAGIC_V0,
    MAGIC_V1,
    MIN_SIZES,
    Entry,
    Limits,
    Message,
    TimestampType,
    ensure_crc,
    shallow,
)
from oncelog.legacy.message_set.lz4 import decompress_v0
from oncelog.records.compression import Buffer, Codec, decompress
from oncelog.records.errors import CorruptBatch, InvalidSet, TruncatedBatch

_PREFIX: Final = struct.Struct(">qi")


def deep(data: Buffer, limits: Limits = DEFAULT_LIMITS) -> Iterator[Message]:
    """The messages in the entries of ``data``, in order; ``limits`` applies to each outer entry.

    Yields all before an error, then raises CorruptBatch, TooMuchOutput, UnsupportedMagic or, at an incomplete entry,
    TruncatedBatch.
    """
    for entry in shallow(data):
        yield from messages_of(data, entry, limits)


def messages_of(buffer: Buffer, entry: Entry, limits: Limits = DEFAULT_LIMITS) -> Iterator[Message]:
    """The messages of one entry read from ``buffer``: itself, or its contents. Raises like ``deep``."""
    ensure_crc(buffer, entry)
    if not entry.is_compressed:
        yield _message(entry, entry.offset, None)
        return
    yield from _inner_messages(entry, entry.offset, _Budget(limits.max_bytes), limits.max_depth, None)


class _Budget:
    """The bytes that decompressing an outer entry may still produce."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def _inner_messages(
    wrapper: Entry, offset: int, budget: _Budget, depth: int, append_time: int | None
) -> Iterator[Message]:
    """The messages in a wrapper with the absolute offset ``offset``; ``append_time`` is that of an enclosing
    wrapper."""
    if depth <= 0:
        raise InvalidSet(f"the message at offset {offset} is compressed where that is not allowed")
    data = _unwrapped(wrapper, budget)
    base = _base_offset(wrapper, offset, data)
    if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME and append_time is None:
        append_time = wrapper.timestamp
    try:
        for entry in shallow(data):
            ensure_crc(data, entry)
            absolute = base + entry.offset
            if entry.is_compressed:
                yield from _inner_messages(entry, absolute, budget, depth - 1, append_time)
            else:
                yield _message(entry, absolute, append_time)
    except TruncatedBatch as error:
        raise CorruptBatch(f"compressed message at offset {offset} ends inside a message of its own: {error}") from None


def _unwrapped(wrapper: Entry, budget: _Budget) -> bytes:
    if wrapper.value is None:
        raise InvalidSet(f"compressed message at offset {wrapper.offset} has no value")
    codec = wrapper.codec
    if codec is Codec.LZ4 and wrapper.magic == MAGIC_V0:
        data = decompress_v0(wrapper.value, budget.left)
    else:
        data = decompress(codec, wrapper.value, budget.left)
    budget.left -= len(data)
    if not data:
        raise InvalidSet(f"compressed message at offset {wrapper.offset} has no messages in it")
    return data


def _base_offset(wrapper: Entry, offset: int, data: bytes) -> int:
    if wrapper.magic < MAGIC_V1 or offset == 0:
        return 0
    last = _last_offset(data)
    if last > offset:
        raise InvalidSet(f"compressed message at offset {offset} has an inner one at {last}, relative to it")
    return offset - last


def _last_offset(data: bytes) -> int:
    """The offset of the last entry, located by sizes alone; other errors are found when the entries are read."""
    position = last = 0
    while len(data) - position >= LOG_OVERHEAD:
        last, size = _PREFIX.unpack_from(data, position)
        if size < MIN_SIZES[0]:
            break
        position += LOG_OVERHEAD + size
    return last


def _message(entry: Entry, offset: int, append_time: int | None) -> Message:
    key = None if entry.key is None else bytes(entry.key)
    value = None if entry.value is None else bytes(entry.value)
    if append_time is not None and entry.magic >= MAGIC_V1:
        return Message(offset, append_time, TimestampType.LOG_APPEND_TIME, key, value, entry.magic)
    return Message(offset, entry.timestamp, entry.timestamp_type, key, value, entry.magic)
