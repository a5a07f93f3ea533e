"""Parser for log entries of Kafka 0.7: outer entries, and the messages within compressed sets.

A compressed payload is a set of entries, perhaps with nested sets. The CRC covers the payload alone. All messages of a
set have the outer entry's offset, its byte position in the log, so an entry is read completely or not at all. As in
0.7's iterator, an incomplete entry at the end of a set is ignored.

Every length is checked before a slice is taken. One entry's sets never decompress to more than ``Limits.set_bytes``.

Source: ``log-design-0.7``, Message Format; ``kafka.message`` of 0.7.2.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from zlib import crc32

from oncelog.base.units import MIB
from oncelog.records.compression import XERIAL_MAGIC, Codec, decompress
from oncelog.records.errors import CorruptBatch, TooMuchOutput

LENGTH_BYTES: Final = 4
MIN_MESSAGE_BYTES: Final = 5  # Magic and CRC: a message of magic 0 without payload.
HEAD_BYTES: Final = 10  # Everything before the payload of an entry of magic 1; one less with magic 0.
CODEC_MASK: Final = 3
_CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY)
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_COMPRESSED_FIRST_BYTES: Final = (_GZIP_MAGIC[0], XERIAL_MAGIC[0])

# A length N, then a message of N bytes: magic; with magic 1 attributes, whose low two bits are the codec; CRC-32 of the
# payload; payload.
_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">iBBI")
_CRC: Final = struct.Struct(">I")


class Limits(NamedTuple):
    """Limits of reading. Sizes in bytes."""

    entry_bytes: int = 64 * MIB
    """A longer entry counts as damaged. 0.7's default limit is 1,000,000 bytes."""
    set_bytes: int = 256 * MIB
    """All sets of one outer entry together, after decompression."""
    nesting: int = 16
    """Sets in sets."""


DEFAULT_LIMITS: Final = Limits()


class BadEntry(Exception):
    """Bytes that are not a valid entry; the text says why."""


class UnfinishedEntry(BadEntry):
    """The bytes end before the entry does. ``needed``: the size of the entry, or of its head if that is incomplete."""

    def __init__(self, needed: int, available: int) -> None:
        self.needed = needed
        self.available = available
        super().__init__(f"unfinished entry: {available} of {needed} bytes")


class Entry(NamedTuple):
    position: int
    size_bytes: int
    """Including the length field."""
    magic: int
    attributes: int
    """0 for magic 0, which has none."""
    crc: int
    payload_position: int

    @property
    def end(self) -> int:
        return self.position + self.size_bytes

    @property
    def payload_bytes(self) -> int:
        return self.end - self.payload_position


class Scanned(NamedTuple):
    """Messages of complete entries, the position after the last of them, and the problem found there, if any."""

    messages: list[bytes]
    entries: int
    position: int
    problem: BadEntry | None


def read_entry(data: bytes, at: int, limits: Limits = DEFAULT_LIMITS) -> Entry:
    """The entry at ``at``; its payload is not examined. Raises UnfinishedEntry, BadEntry."""
    available = len(data) - at
    if available < LENGTH_BYTES:
        raise UnfinishedEntry(LENGTH_BYTES + MIN_MESSAGE_BYTES, available)
    (length,) = _LENGTH.unpack_from(data, at)
    if length < MIN_MESSAGE_BYTES:
        raise BadEntry(f"length {length} is below the minimum of {MIN_MESSAGE_BYTES} bytes")
    if length > limits.entry_bytes:
        raise BadEntry(f"length {length} exceeds the limit of {limits.entry_bytes} bytes")
    if available > LENGTH_BYTES:
        magic = data[at + LENGTH_BYTES]
        if magic > 1:
            raise BadEntry(f"magic {magic} is not 0 or 1, the values of 0.7")
        if length < MIN_MESSAGE_BYTES + magic:
            raise BadEntry(f"length {length} is below the minimum of {MIN_MESSAGE_BYTES + 1} bytes for magic 1")
    if available < LENGTH_BYTES + length:
        raise UnfinishedEntry(LENGTH_BYTES + length, available)
    payload_at = at + HEAD_BYTES - 1 + magic
    attributes = data[at + LENGTH_BYTES + 1] if magic else 0
    (crc,) = _CRC.unpack_from(data, payload_at - _CRC.size)
    return Entry(at, LENGTH_BYTES + length, magic, attributes, crc, payload_at)


def codec_of(entry: Entry) -> Codec:
    """The codec in an entry's attributes. Raises BadEntry for a codec that 0.7 lacks."""
    number = entry.attributes & CODEC_MASK
    if number >= len(_CODECS):
        raise BadEntry(f"codec {number} is not 1 (gzip) or 2 (snappy), the codecs of 0.7")
    return _CODECS[number]


def crc_matches(data: bytes, entry: Entry) -> bool:
    return crc32(memoryview(data)[entry.payload_position : entry.end]) == entry.crc


def messages_of(data: bytes, entry: Entry, limits: Limits = DEFAULT_LIMITS) -> list[bytes]:
    """The payloads of all messages in an entry, including those in sets. Raises BadEntry if any of them cannot be
    read."""
    payload = data[entry.payload_position : entry.end]
    if crc32(payload) != entry.crc:
        raise BadEntry(f"the checksum of the payload is {crc32(payload):08x}, but the entry has {entry.crc:08x}")
    codec = codec_of(entry)
    if codec is Codec.NONE:
        # The CRC does not cover the attributes: 0.7 cannot detect a set whose attributes lost their codec, and would
        # return it as a message.
        if entry.magic and _is_unmarked_set(payload, limits):
            raise BadEntry("the payload is a compressed set, but the attributes name no codec")
        return [payload]
    messages: list[bytes] = []
    _add_set(messages, payload, codec, limits, limits.set_bytes)
    return messages


def read_messages(data: bytes, at: int, limits: Limits = DEFAULT_LIMITS, most_bytes: int = 8 * MIB) -> Scanned:
    """The messages of the entries from ``at`` on: to the end, to the first unreadable entry, or until sets gave
    ``most_bytes``.
    """
    messages: list[bytes] = []
    entries = decompressed_bytes = 0
    end = len(data)
    head, crc_at, add_message = _HEAD.unpack_from, _CRC.unpack_from, messages.append
    # Uncompressed entries, nearly all of most logs, are parsed inline for speed.
    last_head = end - HEAD_BYTES
    while at < end and decompressed_bytes < most_bytes:
        if at <= last_head:
            length, magic, attributes, crc = head(data, at)
            following = at + LENGTH_BYTES + length
            if following <= end:
                if magic == 0 and MIN_MESSAGE_BYTES <= length <= limits.entry_bytes:
                    payload = data[at + HEAD_BYTES - 1 : following]
                    if crc32(payload) == crc_at(data, at + 5)[0]:
                        add_message(payload)
                        entries += 1
                        at = following
                        continue
                elif (
                    magic == 1
                    and not attributes & CODEC_MASK
                    and MIN_MESSAGE_BYTES + 1 < length <= limits.entry_bytes
                    and data[at + HEAD_BYTES] not in _COMPRESSED_FIRST_BYTES
                ):
                    payload = data[at + HEAD_BYTES : following]
                    if crc32(payload) == crc:
                        add_message(payload)
                        entries += 1
                        at = following
                        continue
        try:
            entry = read_entry(data, at, limits)
            inner = messages_of(data, entry, limits)
        except BadEntry as problem:
            return Scanned(messages, entries, at, problem)
        messages += inner
        decompressed_bytes += sum(map(len, inner))
        entries += 1
        at = entry.end
    return Scanned(messages, entries, at, None)


def _add_set(messages: list[bytes], payload: bytes, codec: Codec, limits: Limits, left: int) -> int:
    """Returns how many bytes may still be decompressed. Raises BadEntry."""
    if limits.nesting <= 0:
        raise BadEntry(f"compressed sets are nested deeper than {DEFAULT_LIMITS.nesting} levels")
    try:
        data = decompress(codec, payload, left)
    except TooMuchOutput:
        raise BadEntry(f"a compressed set expands to more than {limits.set_bytes} bytes") from None
    except CorruptBatch as error:
        raise BadEntry(f"{codec.name.lower()} set: {error}") from None
    left -= len(data)
    inner = limits._replace(nesting=limits.nesting - 1)
    at = 0
    while len(data) - at >= LENGTH_BYTES:
        try:
            entry = read_entry(data, at, limits)
        except UnfinishedEntry as error:
            if at:  # 0.7's iterator ends here; it fails only if the first entry of a set is incomplete.
                return left
            raise BadEntry(f"the first message of a compressed set is incomplete: {error}") from None
        except BadEntry as error:
            raise BadEntry(f"in a {codec.name.lower()} set: {error}") from None
        content = data[entry.payload_position : entry.end]
        if crc32(content) != entry.crc:
            raise BadEntry(f"message in a {codec.name.lower()} set: its checksum does not match")
        inner_codec = codec_of(entry)
        if inner_codec is Codec.NONE:
            messages.append(content)
        else:
            left = _add_set(messages, content, inner_codec, inner, left)
        at = entry.end
    return left


def _is_unmarked_set(payload: bytes, limits: Limits) -> bool:
    """True if a payload without a codec is a compressed set with at least one valid message."""
    if payload.startswith(_GZIP_MAGIC):
        codec = Codec.GZIP
    elif payload.startswith(XERIAL_MAGIC):
        codec = Codec.SNAPPY
    else:
        return False
    messages: list[bytes] = []
    try:
        _add_set(messages, payload, codec, limits, limits.set_bytes)
    except BadEntry:
        return False
    return bool(messages)
