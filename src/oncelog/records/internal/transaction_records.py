"""The records of ``__transaction_state``: the state of one transactional id.

They are byte for byte Apache Kafka 4.3's: a version (int16) and that version's fields; a tombstone is a key without a
value. Unreadable data decodes to Unknown and never raises, so that a record of a newer release does not keep a
partition from loading.

Value version 0 is fixed-width; version 1 (transaction.version 1 and later, KIP-890) is flexible and has four tagged
fields (``_TAG_FORMATS``; KIP-939 added the last), left out at their defaults.
"""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

from oncelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from oncelog.base.units import INT16_MAX
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.primitives import Reader, Writer, record_version
from oncelog.records.internal.primitives import Unknown as Unknown

TRANSACTION_KEY_VERSION: Final = 0
HIGHEST_VALUE_VERSION: Final = 1
FLEXIBLE_SINCE: Final = 1
STATE_NAMES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Names of states by number."""
HIGHEST_STATUS: Final = len(STATE_NAMES) - 1
NO_TIMESTAMP: Final = -1
_PREVIOUS_PRODUCER_ID_TAG: Final = 0
_NEXT_PRODUCER_ID_TAG: Final = 1
_CLIENT_TRANSACTION_VERSION_TAG: Final = 2
_NEXT_PRODUCER_EPOCH_TAG: Final = 3
_MIN_TOPIC_BYTES: Final = 2
"""Fewest bytes of a topic in any version: the lengths of its name and of its partitions."""
_INT32_BYTES: Final = 4
_START: Final = struct.Struct(">qhiB")
"""Producer id, producer epoch, timeout and state."""
_TIMESTAMPS: Final = struct.Struct(">qq")
"""Last update and start."""
_TAG_FORMATS: Final = {
    _PREVIOUS_PRODUCER_ID_TAG: struct.Struct(">q"),
    _NEXT_PRODUCER_ID_TAG: struct.Struct(">q"),
    _CLIENT_TRANSACTION_VERSION_TAG: struct.Struct(">h"),
    _NEXT_PRODUCER_EPOCH_TAG: struct.Struct(">h"),
}
_TAG_STARTS: Final = {tag: bytes((tag, layout.size)) for tag, layout in _TAG_FORMATS.items()}
"""The first two bytes of each tagged field: its number and size."""
_KEY_START: Final = struct.Struct(">hh")
_USUAL_START: Final = struct.Struct(">hqhiBB")
"""Version, producer id, producer epoch, timeout, state, number of topics plus one."""


class _Ending(NamedTuple):
    """Both times and the tagged fields, which are the previous producer id, the client's version, or both."""

    layout: struct.Struct
    tags_start: bytes
    """Number of tagged fields, and the start of the first."""
    second_start: bytes
    second_at: int
    """The start of the second field, and its position; an empty start matches anywhere."""
    has_previous: bool
    has_version: bool


_PREVIOUS_START: Final = bytes((_PREVIOUS_PRODUCER_ID_TAG, 8))
_VERSION_START: Final = bytes((_CLIENT_TRANSACTION_VERSION_TAG, 2))
"""The start of a tagged field: tag and size."""
_ENDINGS: Final = {
    ending.layout.size: ending
    for ending in (
        _Ending(struct.Struct(">qqx"), b"\0", b"", 0, has_previous=False, has_version=False),
        _Ending(struct.Struct(">qq3xh"), b"\1" + _VERSION_START, b"", 0, has_previous=False, has_version=True),
        _Ending(struct.Struct(">qq3xq"), b"\1" + _PREVIOUS_START, b"", 0, has_previous=True, has_version=False),
        _Ending(
            struct.Struct(">qq3xq2xh"), b"\2" + _PREVIOUS_START, _VERSION_START, 27, has_previous=True, has_version=True
        ),
    )
}
"""Endings by size."""
_TAGS_IN_ENDING: Final = 16
_ONE_BYTE_MAX: Final = 0x7F
"""The largest number in an unsigned varint of one byte."""
_STATUS_POSITION: Final = 16
_AT_REST: Final = re.compile(
    rb"\x00\x01"  # version
    rb".{14}"  # producer id, producer epoch, time-out
    rb"[\x00\x04\x05]"  # Empty, CompleteCommit, CompleteAbort
    rb"[\x00\x01]"  # partitions: null, none
    rb".{16}"  # last update, start
    rb"(?:\x00|\x01\x02\x02..|\x01\x00\x08.{8}|\x02\x00\x08.{8}\x02\x02..)",  # the tags of the endings above
    re.DOTALL,
).fullmatch
_new: Final = tuple.__new__
"""Creates a named tuple without its slower constructor."""


class TransactionValue(NamedTuple):
    """Times in milliseconds; ``status`` is the number of the state. ``partitions`` is None in state Empty, otherwise by
    topic."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: tuple[tuple[str, tuple[int, ...]], ...] | None
    last_update_timestamp: int
    start_timestamp: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0
    next_producer_epoch: int = NO_PRODUCER_EPOCH


def decode_key(data: bytes | None) -> str | Unknown:
    if data is not None and len(data) >= _KEY_START.size:
        version, size = _KEY_START.unpack_from(data)
        if version == TRANSACTION_KEY_VERSION and size == len(data) - _KEY_START.size:
            try:
                return data[_KEY_START.size :].decode()
            except UnicodeDecodeError:
                pass  # the general path returns the reason
    return decode_any_key(data)


def decode_any_key(data: bytes | None) -> str | Unknown:
    version = record_version(data)
    if data is None or version is None:
        return Unknown(None, "no key")
    if version != TRANSACTION_KEY_VERSION:
        return Unknown(version, f"key of version {version}")
    try:
        return Reader(data[2:]).string()
    except CorruptBatch as error:
        return Unknown(version, str(error))


def encode_key(transactional_id: str) -> bytes:
    encoded = transactional_id.encode()
    if len(encoded) > INT16_MAX:
        raise ValueError(f"string of {len(encoded)} bytes")
    return _KEY_START.pack(TRANSACTION_KEY_VERSION, len(encoded)) + encoded


def decode_value(data: bytes) -> TransactionValue | Unknown:
    """The state of a transactional id, versions 0 and 1."""
    return _usual_value(data) or decode_any_value(data)


def decode_any_value(data: bytes) -> TransactionValue | Unknown:
    version = record_version(data)
    if version is None or not 0 <= version <= HIGHEST_VALUE_VERSION:
        return Unknown(version, f"value of version {version}")
    reader = Reader(data[2:], flexible=version >= FLEXIBLE_SINCE)
    try:
        producer_id, producer_epoch, timeout_ms, status = _START.unpack(reader.take(_START.size))
        partitions = _read_partitions(reader)
        last_update_timestamp, start_timestamp = _TIMESTAMPS.unpack(reader.take(_TIMESTAMPS.size))
        tags = reader.tagged_fields()
        value = TransactionValue(
            producer_id,
            producer_epoch,
            timeout_ms,
            status,
            partitions,
            last_update_timestamp,
            start_timestamp,
            _tagged(tags, _PREVIOUS_PRODUCER_ID_TAG, NO_PRODUCER_ID),
            _tagged(tags, _NEXT_PRODUCER_ID_TAG, NO_PRODUCER_ID),
            _tagged(tags, _CLIENT_TRANSACTION_VERSION_TAG, 0),
            _tagged(tags, _NEXT_PRODUCER_EPOCH_TAG, NO_PRODUCER_EPOCH),
        )
    except CorruptBatch as error:
        return Unknown(version, str(error))
    # A state of a newer release.
    if status > HIGHEST_STATUS:
        return Unknown(version, f"state {status}")
    return value


# Nearly all of the million ids loaded at a start are at rest, in version 1, with at most two tags. The fast path
# (``_usual_value``, ``is_usual_at_rest``) reads them in one struct call; it returns the result of the general path
# (``decode_any_…``), or None.
def is_usual_at_rest(data: bytes) -> bool:
    """True if the value certainly decodes to a transaction at rest, by its version, sizes and tags alone. False means
    nothing."""
    return _AT_REST(data) is not None


def status_of(data: bytes) -> int:
    """State number of a value that :func:`is_usual_at_rest`."""
    return data[_STATUS_POSITION]


def state_of(data: bytes) -> tuple[int, int, int]:
    """State number, producer id and start time of a value that :func:`is_usual_at_rest`."""
    _, producer_id, _, _, status, _ = _USUAL_START.unpack_from(data)
    return status, producer_id, _TIMESTAMPS.unpack_from(data, _USUAL_START.size)[1]


def _usual_value(data: bytes) -> TransactionValue | None:
    """A state in version 1 with the usual tags and short lists; None for the general path."""
    try:
        version, producer_id, producer_epoch, timeout_ms, status, topics = _USUAL_START.unpack_from(data)
        if version != FLEXIBLE_SINCE or status > HIGHEST_STATUS or topics > _ONE_BYTE_MAX:
            return None
        at = _USUAL_START.size
        partitions: tuple[tuple[str, tuple[int, ...]], ...] | None = () if topics else None
        if topics > 1:
            partitions, at = _usual_partitions(data, at, topics - 1)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    ending = _ENDINGS.get(len(data) - at)
    if ending is None or not data.startswith(ending.tags_start, at + _TAGS_IN_ENDING):
        return None
    if not data.startswith(ending.second_start, at + ending.second_at):
        return None
    fields = ending.layout.unpack_from(data, at)
    previous_producer_id = fields[2] if ending.has_previous else NO_PRODUCER_ID
    client_version = fields[-1] if ending.has_version else 0
    start = (producer_id, producer_epoch, timeout_ms, status, partitions, fields[0], fields[1])
    return _new(TransactionValue, (*start, previous_producer_id, NO_PRODUCER_ID, client_version, NO_PRODUCER_EPOCH))


def _usual_partitions(data: bytes, at: int, topic_count: int) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], int]:
    """Topics with their partitions, and the position after them. Raises IndexError unless every length is one byte."""
    topics = []
    for _ in range(topic_count):
        end = at + data[at]
        count = data[end] - 1
        after = end + 1 + _INT32_BYTES * count
        if not 0 < data[at] <= _ONE_BYTE_MAX or not 0 <= count < _ONE_BYTE_MAX or data[after]:
            raise IndexError
        topics.append((data[at + 1 : end].decode(), struct.unpack_from(f">{count}i", data, end + 1)))
        at = after + 1
    return tuple(topics), at


def encode_value(value: TransactionValue, version: int) -> bytes:
    """Encode in the given version; fields that it lacks are dropped."""
    usual = _usual_bytes(value) if version == FLEXIBLE_SINCE else None
    return encode_any_value(value, version) if usual is None else usual


def _usual_bytes(value: TransactionValue) -> bytes | None:
    """Version 1 with one byte for every length, as in the records of small transactions; else None."""
    partitions = value.partitions
    if partitions is None:
        output = _USUAL_START.pack(1, *value[:4], 0)
    else:
        if len(partitions) >= _ONE_BYTE_MAX:
            return None
        output = _USUAL_START.pack(1, *value[:4], len(partitions) + 1)
        for topic, indexes in partitions:
            name, count = topic.encode(), len(indexes)
            if len(name) >= _ONE_BYTE_MAX or count >= _ONE_BYTE_MAX:
                return None
            output += b"%c%b%c" % (len(name) + 1, name, count + 1) + struct.pack(f">{count}ix", *indexes)
    output += _TIMESTAMPS.pack(value.last_update_timestamp, value.start_timestamp)
    return output + _tags_of(value)


def _tags_of(value: TransactionValue) -> bytes:
    fields = (
        (_PREVIOUS_PRODUCER_ID_TAG, value.previous_producer_id, NO_PRODUCER_ID),
        (_NEXT_PRODUCER_ID_TAG, value.next_producer_id, NO_PRODUCER_ID),
        (_CLIENT_TRANSACTION_VERSION_TAG, value.client_transaction_version, 0),
        (_NEXT_PRODUCER_EPOCH_TAG, value.next_producer_epoch, NO_PRODUCER_EPOCH),
    )
    tags = [
        _TAG_STARTS[tag] + _TAG_FORMATS[tag].pack(value_of_tag)
        for tag, value_of_tag, default in fields
        if value_of_tag != default
    ]
    return b"%c" % len(tags) + b"".join(tags)


def encode_any_value(value: TransactionValue, version: int) -> bytes:
    writer = Writer(flexible=version >= FLEXIBLE_SINCE)
    writer.int16(version)
    writer.output += _START.pack(value.producer_id, value.producer_epoch, value.timeout_ms, value.status)
    _write_partitions(writer, value.partitions)
    writer.output += _TIMESTAMPS.pack(value.last_update_timestamp, value.start_timestamp)
    if version >= FLEXIBLE_SINCE:
        writer.output += _tags_of(value)
    return bytes(writer.output)


def _read_partitions(reader: Reader) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    topic_count = _nullable_count(reader, _MIN_TOPIC_BYTES)
    if topic_count is None:
        return None
    topics = []
    for _ in range(topic_count):
        topic = reader.string()
        topics.append((topic, tuple(reader.int32() for _ in range(reader.count(_INT32_BYTES)))))
        reader.tagged_fields()
    return tuple(topics)


def _nullable_count(reader: Reader, minimum_element_bytes: int) -> int | None:
    count = reader.unsigned_varint() - 1 if reader.flexible else reader.int32()
    if count == -1:
        return None
    if count < 0 or count * minimum_element_bytes > reader.left:
        raise CorruptBatch(f"array of {count} elements, {reader.left} bytes left")
    return count


def _write_partitions(writer: Writer, partitions: tuple[tuple[str, tuple[int, ...]], ...] | None) -> None:
    writer.count(-1 if partitions is None else len(partitions))
    for topic, indexes in partitions or ():
        writer.string(topic)
        writer.count(len(indexes))
        for index in indexes:
            writer.int32(index)
        writer.tagged_fields()


def _tagged(tags: dict[int, bytes], tag: int, default: int) -> int:
    data = tags.get(tag)
    if data is None:
        return default
    layout = _TAG_FORMATS[tag]
    if len(data) != layout.size:
        raise CorruptBatch(f"tagged field {tag} of {len(data)} bytes")
    return int(layout.unpack(data)[0])
