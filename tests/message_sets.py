"""Message sets of formats 0 and 1 from messages, with or without a wrapper.

The rule: the bytes are what Apache Kafka's own builder makes of the same messages, but for the compressor's choices:
the wrapper has the offset of its last message, the latest timestamp, no key; inner offsets are absolute in format 0 and
counted from the first message in format 1 (KIP-31).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.legacy.message_set.conversion import wrap
from oncelog.legacy.message_set.entry import MAGIC_V0, MAGIC_V1, Message, TimestampType, append_entry
from oncelog.records.batch import LOG_APPEND_TIME
from oncelog.records.compression import Codec

_BIT: Final = {TimestampType.NONE: 0, TimestampType.CREATE_TIME: 0, TimestampType.LOG_APPEND_TIME: LOG_APPEND_TIME}


def write(messages: Sequence[Message], magic: int, codec: Codec = Codec.NONE) -> bytes:
    """A message set of ``messages`` in format ``magic`` (theirs does not matter); empty of none.

    With a codec it is one wrapper around all of them. Raises ValueError for an unknown format, for zstd, which these
    formats do not have, and, in a wrapper, for offsets that do not rise or timestamps of both types.
    """
    if magic not in (MAGIC_V0, MAGIC_V1):
        raise ValueError(f"message sets have format 0 or 1, not {magic}")
    output = bytearray()
    if codec is Codec.NONE:
        for message in messages:
            _append(output, message, message.offset, magic)
    elif messages:
        _append_wrapper(output, messages, magic, codec)
    return bytes(output)


def _append_wrapper(output: bytearray, messages: Sequence[Message], magic: int, codec: Codec) -> None:
    base = messages[0].offset if magic >= MAGIC_V1 else 0
    bits = _attributes(messages[0], magic)
    inner = bytearray()
    before = messages[0].offset - 1
    for message in messages:
        if message.offset <= before:
            raise ValueError(f"message offset {message.offset} after {before}")
        if _attributes(message, magic) != bits:
            raise ValueError("a wrapper's messages have timestamps of one type")
        _append(inner, message, message.offset - base, magic)
        before = message.offset
    latest = max(message.timestamp for message in messages)
    output += wrap(inner, before, magic, codec, latest, bits)


def _append(output: bytearray, message: Message, offset: int, magic: int) -> None:
    append_entry(output, offset, magic, _attributes(message, magic), message.timestamp, message.key, message.value)


def _attributes(message: Message, magic: int) -> int:
    return _BIT[message.timestamp_type] if magic >= MAGIC_V1 else 0
