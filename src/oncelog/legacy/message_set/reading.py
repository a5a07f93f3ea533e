"""Reading messages out of message sets, those in wrappers too.

The rule: an offset given out is the one that a consumer of Apache Kafka sees. In a wrapper of format 0 the inner
offsets are absolute. In one of format 1 they are relative (KIP-31): the wrapper has the offset of its last message,
so all are known when the last is; a wrapper at offset 0 has not been in a log yet (some librdkafka), and its inner
offsets stand as they are. A wrapper whose timestamp the broker set gives it to all its messages of format 1 (KIP-32).

Each CRC is checked, the wrapper's and the inner ones, before a message of theirs is given out. What decompressing
gives is bounded by ``Limits`` before it is allocated. Only CorruptBatch and its kin are raised: InvalidSet for what
Apache Kafka calls an invalid record, the others for what it calls a corrupt message.
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
    """The messages in the entries of ``data``, in order; ``limits`` hold for each outer entry.

    Raises CorruptBatch, TooMuchOutput, UnsupportedMagic or, when ``data`` ends inside an entry, TruncatedBatch: after
    the messages before it were given out.
    """
    for entry in shallow(data):
        yield from messages_of(data, entry, limits)


def messages_of(buffer: Buffer, entry: Entry, limits: Limits = DEFAULT_LIMITS) -> Iterator[Message]:
    """The messages of one entry that was read from ``buffer``: itself, or those in it. Raises as ``deep`` does."""
    ensure_crc(buffer, entry)
    if not entry.is_compressed:
        yield _message(entry, entry.offset, None)
        return
    yield from _inner_messages(entry, entry.offset, _Budget(limits.max_bytes), limits.max_depth, None)


class _Budget:
    """The bytes that decompressing an outer entry may still give."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def _inner_messages(
    wrapper: Entry, offset: int, budget: _Budget, depth: int, append_time: int | None
) -> Iterator[Message]:
    """The messages in a wrapper whose absolute offset is ``offset``; ``append_time`` is the one around it, if any."""
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
    """Added to the inner offsets it gives absolute ones."""
    if wrapper.magic < MAGIC_V1 or offset == 0:
        return 0
    last = _last_offset(data)
    if last > offset:
        raise InvalidSet(f"compressed message at offset {offset} has an inner one at {last}, relative to it")
    return offset - last


def _last_offset(data: bytes) -> int:
    """The offset of the last entry, found by its size alone: what is wrong otherwise is found by reading."""
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
