"""The records of ``__transaction_state``: the state of one transactional id.

The rule: byte for byte Apache Kafka 4.3's. A key or value is a version (int16) and that version's fields. Whatever
cannot be read is answered as Unknown, never raised, so that one record of a newer release does not keep a partition
from loading. A tombstone is the key with no value: the id has expired.

Value version 0 is fixed-width; version 1 (transaction.version 1 and later, KIP-890) is flexible and has four tagged
fields: the previous (0) and the next (1) producer id, the client's transaction version (2), and the next producer
epoch (3, KIP-939), each left out at its default.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.primitives import Reader, Writer

TRANSACTION_KEY_VERSION: Final = 0
HIGHEST_VALUE_VERSION: Final = 1
FLEXIBLE_SINCE: Final = 1
HIGHEST_STATUS: Final = 7
NO_TIMESTAMP: Final = -1
_PREVIOUS_PRODUCER_ID_TAG: Final = 0
_NEXT_PRODUCER_ID_TAG: Final = 1
_CLIENT_TRANSACTION_VERSION_TAG: Final = 2
_NEXT_PRODUCER_EPOCH_TAG: Final = 3
_MIN_TOPIC_BYTES: Final = 2
"""Least bytes of a topic in any version: the lengths of its name and of its partitions."""
_INT32_BYTES: Final = 4
_START: Final = struct.Struct(">qhiB")
"""Producer id, producer epoch, time-out and state."""
_TIMESTAMPS: Final = struct.Struct(">qq")
"""Last update and start."""
_TAG_FORMATS: Final = {
    _PREVIOUS_PRODUCER_ID_TAG: struct.Struct(">q"),
    _NEXT_PRODUCER_ID_TAG: struct.Struct(">q"),
    _CLIENT_TRANSACTION_VERSION_TAG: struct.Struct(">h"),
    _NEXT_PRODUCER_EPOCH_TAG: struct.Struct(">h"),
}


class Unknown(NamedTuple):
    """A key or value this version cannot read: its version (None when not even that is there) and why."""

    version: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class TransactionValue:
    """The state of a transactional id as persisted. Times in milliseconds; ``status`` is the number of the state.

    ``partitions`` is None in state Empty, and otherwise topic by topic.
    """

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
    """The transactional id a record of ``__transaction_state`` is about."""
    version = _version(data)
    if data is None or version is None:
        return Unknown(None, "no key")
    if version != TRANSACTION_KEY_VERSION:
        return Unknown(version, f"key of version {version}")
    try:
        return Reader(data[2:]).string()
    except CorruptBatch as error:
        return Unknown(version, str(error))


def encode_key(transactional_id: str) -> bytes:
    """Key of a transactional id."""
    writer = Writer()
    writer.int16(TRANSACTION_KEY_VERSION)
    writer.string(transactional_id)
    return bytes(writer.output)


def decode_value(data: bytes) -> TransactionValue | Unknown:
    """The state of a transactional id, versions 0 and 1."""
    version = _version(data)
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
    if status > HIGHEST_STATUS:
        return Unknown(version, f"state {status}")
    return value


def encode_value(value: TransactionValue, version: int) -> bytes:
    """``value`` in the version given; what it lacks is dropped."""
    writer = Writer(flexible=version >= FLEXIBLE_SINCE)
    writer.int16(version)
    writer.output += _START.pack(value.producer_id, value.producer_epoch, value.timeout_ms, value.status)
    _write_partitions(writer, value.partitions)
    writer.output += _TIMESTAMPS.pack(value.last_update_timestamp, value.start_timestamp)
    if version >= FLEXIBLE_SINCE:
        fields = (
            (_PREVIOUS_PRODUCER_ID_TAG, value.previous_producer_id, NO_PRODUCER_ID),
            (_NEXT_PRODUCER_ID_TAG, value.next_producer_id, NO_PRODUCER_ID),
            (_CLIENT_TRANSACTION_VERSION_TAG, value.client_transaction_version, 0),
            (_NEXT_PRODUCER_EPOCH_TAG, value.next_producer_epoch, NO_PRODUCER_EPOCH),
        )
        writer.tagged_fields({tag: _TAG_FORMATS[tag].pack(held) for tag, held, default in fields if held != default})
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


def _version(data: bytes | None) -> int | None:
    return None if data is None or len(data) < 2 else int(struct.unpack_from(">h", data)[0])
