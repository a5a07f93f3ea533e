"""Log entries of Kafka 0.7 over bytes: shallow, and down to the messages in compressed sets.

An entry: length int32 N, then a message of N bytes: magic int8; with magic 1 attributes int8, whose low two bits name
the codec; CRC-32 uint32; payload. A payload that is compressed is a set of entries, in which may be compressed ones
again. The CRC covers the payload alone. All messages of a set have the offset of its outer entry, the byte position
at which that begins in the log: nobody can stop, or go on, inside an entry. So an entry is read as a whole or not at
all.

Rules: every length is checked against the bytes there are before anything is cut out, and the sets of one entry
together never decompress to more than ``Limits.set_bytes``. As 0.7's iterator does, a set may end in an unfinished
entry, which is no message. What 0.7 cannot know is looked for as well: a compressed set whose attributes lost their
codec (the CRC does not cover them) would be taken for a message, so such an entry is refused.

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
MIN_MESSAGE_BYTES: Final = 5
"""Magic and CRC: a message of magic 0 without payload."""
HEAD_BYTES: Final = 10
"""Bytes of an entry of magic 1, all before its payload; one less with magic 0."""
CODEC_MASK: Final = 3
_CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY)
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_COMPRESSED_FIRST_BYTES: Final = (_GZIP_MAGIC[0], XERIAL_MAGIC[0])

_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">iBBI")
_CRC: Final = struct.Struct(">I")


class Limits(NamedTuple):
    """Bounds of what is read. Sizes in bytes."""

    entry_bytes: int = 64 * MIB
    """A longer entry counts as damaged. 0.7 takes messages of 1,000,000 bytes, unless told otherwise."""
    set_bytes: int = 256 * MIB
    """All sets of one outer entry together, decompressed."""
    nesting: int = 16
    """Sets in sets."""


DEFAULT_LIMITS: Final = Limits()


class BadEntry(Exception):
    """Bytes that are no entry, or one whose contents contradict it; the text says why."""


class UnfinishedEntry(BadEntry):
    """The bytes end before the entry does. ``needed`` is the size of the whole entry, of its head if less is there."""

    def __init__(self, needed: int, there: int) -> None:
        self.needed = needed
        self.there = there
        super().__init__(f"unfinished entry: {there} of {needed} bytes")


class Entry(NamedTuple):
    """An outer entry: its place in the buffer, and its head."""

    position: int
    size_bytes: int
    """With the length itself."""
    magic: int
    attributes: int
    """0 with magic 0, which has none."""
    crc: int
    payload_position: int

    @property
    def end(self) -> int:
        """The position after the entry."""
        return self.position + self.size_bytes

    @property
    def payload_bytes(self) -> int:
        """Size of the payload."""
        return self.end - self.payload_position


class Scanned(NamedTuple):
    """Messages of whole entries, the position after the last of these, and what is wrong there, if something is."""

    messages: list[bytes]
    entries: int
    position: int
    problem: BadEntry | None


def read_entry(data: bytes, at: int, limits: Limits = DEFAULT_LIMITS) -> Entry:
    """The entry at ``at``, whole; its payload is not looked at. Raises UnfinishedEntry, BadEntry."""
    there = len(data) - at
    if there < LENGTH_BYTES:
        raise UnfinishedEntry(LENGTH_BYTES + MIN_MESSAGE_BYTES, there)
    (length,) = _LENGTH.unpack_from(data, at)
    if length < MIN_MESSAGE_BYTES:
        raise BadEntry(f"length {length}, and a message has {MIN_MESSAGE_BYTES} bytes or more")
    if length > limits.entry_bytes:
        raise BadEntry(f"length {length}, and entries of more than {limits.entry_bytes} bytes are not read")
    if there > LENGTH_BYTES:
        magic = data[at + LENGTH_BYTES]
        if magic > 1:
            raise BadEntry(f"magic {magic}, and 0.7 has 0 and 1")
        if length < MIN_MESSAGE_BYTES + magic:
            raise BadEntry(f"length {length}, and a message of magic 1 has {MIN_MESSAGE_BYTES + 1} bytes or more")
    if there < LENGTH_BYTES + length:
        raise UnfinishedEntry(LENGTH_BYTES + length, there)
    payload_at = at + HEAD_BYTES - 1 + magic
    attributes = data[at + LENGTH_BYTES + 1] if magic else 0
    (crc,) = _CRC.unpack_from(data, payload_at - _CRC.size)
    return Entry(at, LENGTH_BYTES + length, magic, attributes, crc, payload_at)


def codec_of(entry: Entry) -> Codec:
    """The codec in an entry's attributes. Raises BadEntry for one that 0.7 does not have."""
    number = entry.attributes & CODEC_MASK
    if number >= len(_CODECS):
        raise BadEntry(f"codec {number}, and 0.7 has 1 (gzip) and 2 (snappy)")
    return _CODECS[number]


def crc_matches(data: bytes, entry: Entry) -> bool:
    """True if the payload has the checksum in the head."""
    return crc32(memoryview(data)[entry.payload_position : entry.end]) == entry.crc


def messages_of(data: bytes, entry: Entry, limits: Limits = DEFAULT_LIMITS) -> list[bytes]:
    """The payloads of an entry's messages, deep. Raises BadEntry if one of them cannot be read: all or nothing."""
    payload = data[entry.payload_position : entry.end]
    if crc32(payload) != entry.crc:
        raise BadEntry(f"the checksum of the payload is {crc32(payload):08x}, and the entry says {entry.crc:08x}")
    codec = codec_of(entry)
    if codec is Codec.NONE:
        if entry.magic and _is_unmarked_set(payload, limits):
            raise BadEntry("attributes that name no codec, and a compressed set as payload")
        return [payload]
    messages: list[bytes] = []
    _add_set(messages, payload, codec, limits, limits.set_bytes)
    return messages


def read_messages(data: bytes, at: int, limits: Limits = DEFAULT_LIMITS, most_bytes: int = 8 * MIB) -> Scanned:
    """The messages of the entries from ``at`` on: to the end, to the first that cannot be read, or until sets gave
    ``most_bytes``. Entries without compression, nearly all of most logs, are read right here."""
    messages: list[bytes] = []
    entries = given = 0
    end = len(data)
    head, crc_at, take = _HEAD.unpack_from, _CRC.unpack_from, messages.append
    last_head = end - HEAD_BYTES
    while at < end and given < most_bytes:
        if at <= last_head:
            length, magic, attributes, crc = head(data, at)
            following = at + LENGTH_BYTES + length
            if following <= end:
                if magic == 0 and MIN_MESSAGE_BYTES <= length <= limits.entry_bytes:
                    payload = data[at + HEAD_BYTES - 1 : following]
                    if crc32(payload) == crc_at(data, at + 5)[0]:
                        take(payload)
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
                        take(payload)
                        entries += 1
                        at = following
                        continue
        try:
            entry = read_entry(data, at, limits)
            found = messages_of(data, entry, limits)
        except BadEntry as problem:
            return Scanned(messages, entries, at, problem)
        messages += found
        given += sum(map(len, found))
        entries += 1
        at = entry.end
    return Scanned(messages, entries, at, None)


def _add_set(messages: list[bytes], payload: bytes, codec: Codec, limits: Limits, left: int) -> int:
    """Append the messages of a compressed set; how many bytes may still be decompressed. Raises BadEntry."""
    if limits.nesting <= 0:
        raise BadEntry(f"sets in sets, deeper than {DEFAULT_LIMITS.nesting}")
    try:
        data = decompress(codec, payload, left)
    except TooMuchOutput:
        raise BadEntry(f"a set that decompresses to more than {limits.set_bytes} bytes") from None
    except CorruptBatch as error:
        raise BadEntry(f"{codec.name.lower()} set: {error}") from None
    left -= len(data)
    inner = limits._replace(nesting=limits.nesting - 1)
    at = 0
    while len(data) - at >= LENGTH_BYTES:
        try:
            entry = read_entry(data, at, limits)
        except UnfinishedEntry as error:
            if at:  # 0.7's iterator ends here; only a set whose first entry is unfinished is an error to it
                return left
            raise BadEntry(f"set whose first message is unfinished: {error}") from None
        except BadEntry as error:
            raise BadEntry(f"in a {codec.name.lower()} set: {error}") from None
        content = data[entry.payload_position : entry.end]
        if crc32(content) != entry.crc:
            raise BadEntry(f"message in a {codec.name.lower()} set: its checksum is wrong")
        inner_codec = codec_of(entry)
        if inner_codec is Codec.NONE:
            messages.append(content)
        else:
            left = _add_set(messages, content, inner_codec, inner, left)
        at = entry.end
    return left


def _is_unmarked_set(payload: bytes, limits: Limits) -> bool:
    """True if a payload without a codec is a compressed set with at least one sound message."""
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
